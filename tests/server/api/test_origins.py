"""Which pages may call, and under which names (http-api 2)."""

import pytest

from topics.kernel.errors import Rejected
from topics.server.api.message import Head
from topics.server.api.origins import Origins, host_name

ORIGINS = Origins(allowed=frozenset({b"https://good.example"}), hosts=frozenset({b"box.lan"}))


def head(*, secure: bool = False, **headers: str) -> Head:
    fields = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Head(b"GET", b"/v0/topics", headers={b"host": b"localhost:4000"} | fields, secure=secure)


@pytest.mark.rule("H2.18")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"origin": "http://localhost:4000"},
        {"origin": "https://good.example"},
        {"sec_fetch_site": "same-origin"},
    ],
)
def test_own_and_listed_pages_are_served(fields):
    ORIGINS.check(head(**fields))


@pytest.mark.rule("H2.18")
@pytest.mark.rule("H2.19")
@pytest.mark.rule("H1.22")
@pytest.mark.parametrize(
    "fields",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:4001"},
        {"origin": "https://localhost:4000"}, {"sec_fetch_site": "cross-site"}, {"origin": ""},
    ],
)  # fmt: skip
def test_other_pages_are_refused(fields):
    with pytest.raises(Rejected) as refused:
        ORIGINS.check(head(**fields))

    assert refused.value.code.value == "forbidden"


@pytest.mark.rule("H2.21")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:4000", "127.8.9.1", "[::1]:4000", "box.lan:80"]
)
def test_names_of_this_server_are_answered(host):
    ORIGINS.check(head(host=host))


@pytest.mark.rule("H2.21")
@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
)
def test_other_names_are_misdirected(host):
    with pytest.raises(Rejected) as refused:
        ORIGINS.check(head(host=host))

    assert refused.value.code.value == "misdirected_request"
    assert refused.value.message.endswith("is not a name of this server; list it in TOPICS_ALLOWED_ORIGINS")


def test_with_auth_on_any_name_is_answered():
    Origins(check_host=False).check(head(host="any.example"))


def test_over_tls_the_own_origin_is_https():
    ORIGINS.check(head(secure=True, origin="https://localhost:4000"))
    with pytest.raises(Rejected):
        ORIGINS.check(head(secure=True, origin="http://localhost:4000"))


def test_a_host_is_split_from_its_port():
    assert [host_name(h) for h in (b"a:1", b"a", b"[::1]:2", b"[::1]")] == [b"a", b"a", b"[::1]", b"[::1]"]
