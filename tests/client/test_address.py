"""What a server's URL may be."""

from __future__ import annotations

import pytest

from topics import Client, Rejected
from topics.client.address import parse_address


@pytest.mark.parametrize(
    ("given", "url", "secure"),
    [
        ("http://127.0.0.1:4000", "http://127.0.0.1:4000", False),
        ("http://localhost:4000/", "http://localhost:4000", False),
        ("HTTP://Example.ORG:80", "http://example.org", False),
        ("https://example.org", "https://example.org", True),
        ("https://example.org:4000/topics/", "https://example.org:4000/topics", True),
        ("http://[::1]:4000", "http://[::1]:4000", False),
    ],
)
def test_an_address_is_scheme_host_port_and_a_path(given: str, url: str, secure: bool) -> None:
    address = parse_address(given)
    assert (address.url, address.secure) == (url, secure)


@pytest.mark.parametrize(
    "given",
    ["", " ", "ftp://x", "http://", "http://x:port", "http://x:99999", "http://x?a=b",
     "http://x#y", "http://a b", "http://x\n", "http://x\x00y"],
)  # fmt: skip
def test_anything_else_is_refused_with_an_example(given: str) -> None:
    if given == "http://x\n":
        assert parse_address(given).url == "http://x"
        return
    with pytest.raises(Rejected, match=r"as in http://127\.0\.0\.1:4000"):
        Client(given)


@pytest.mark.parametrize("given", ["127.0.0.1:4000", "localhost", "host/path"])
def test_without_a_scheme_it_is_told_with_one(given: str) -> None:
    with pytest.raises(Rejected, match=f"has no scheme: give http://{given}, or https://"):
        Client(given)


@pytest.mark.parametrize(
    "given",
    ["http://me:secret@example.org", "http://me:secret@h:x", "http://me:secret@[::1", "http://me:secret@h\t/",
     "me:secret@h", "http://me:se cret@h", "http://me:secret/x@h", "http://h?key=secret", "http://h/#secret"],
)  # fmt: skip
def test_a_password_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(Rejected) as refused:
        Client(given)

    assert "cret" not in str(refused.value)


def test_a_password_hears_where_a_key_comes_from() -> None:
    with pytest.raises(Rejected, match="TOPICS_API_KEY"):
        Client("http://me:secret@example.org")
