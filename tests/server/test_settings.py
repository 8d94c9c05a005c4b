"""What a server may be told, and what may not be together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topics.cli.config.settings import TABLE
from topics.kernel.errors import Rejected
from topics.server.auth.lines import parse_keys
from topics.server.settings import ServerSettings, parse_origins


@pytest.mark.rule("H1.2")
def test_unless_told_otherwise_it_is_this_machines_only() -> None:
    assert ServerSettings().url(ServerSettings().port) == "http://127.0.0.1:4000"
    assert ServerSettings().is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_a_loopback_address_needs_no_leave(host: str) -> None:
    assert ServerSettings(host=host).is_loopback


@pytest.mark.rule("H2.16")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", "1"])
def test_any_other_address_is_refused_until_it_is_allowed(host: str) -> None:
    with pytest.raises(Rejected, match="TOPICS_ALLOW_INSECURE_NO_AUTH=1") as refused:
        ServerSettings(host=host)
    assert refused.value.message.startswith("host: ")

    assert not ServerSettings(host=host, allow_insecure_no_auth=True).is_loopback
    assert not ServerSettings(host=host, api_keys=parse_keys("k")).is_loopback
    assert not ServerSettings(host=host, api_keys_file=Path("keys")).is_loopback


def test_tls_needs_both_files() -> None:
    with pytest.raises(Rejected, match="keyfile: must be given too, because certfile is"):
        ServerSettings(certfile=Path("c"))
    with pytest.raises(Rejected, match="certfile: must be given too, because keyfile is"):
        ServerSettings(keyfile=Path("k"))

    assert ServerSettings(certfile=Path("c"), keyfile=Path("k")).is_secure


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:7"),
        ("::1", "http://[::1]:7"),
        ("[::1]", "http://[::1]:7"),
        ("0.0.0.0", "http://127.0.0.1:7"),
        ("::", "http://[::1]:7"),
    ],
)
def test_the_url_is_one_this_machine_can_open(host: str, url: str) -> None:
    assert ServerSettings(host=host, allow_insecure_no_auth=True).url(7) == url


def test_origins_and_host_names_are_told_apart() -> None:
    settings = ServerSettings(
        host="::1", allowed_origins=parse_origins(" https://A.example:8443/, b.example:80,,[::2]:1 ")
    )

    assert settings.origins == {b"https://a.example:8443"}
    assert settings.host_names == {b"a.example", b"b.example", b"[::2]", b"[::1]"}


@pytest.mark.parametrize(
    ("listed", "sent"),
    [
        ("https://a.example:443", b"https://a.example"),
        ("http://[::2]:80", b"http://[::2]"),
        ("https://a.example:80", b"https://a.example:80"),
        ("http://a.example:443", b"http://a.example:443"),
        ("http://a.example:8080", b"http://a.example:8080"),
    ],
)
def test_an_origin_is_compared_as_browsers_send_it(listed: str, sent: bytes) -> None:
    """They leave out the port that its scheme has anyway."""
    assert ServerSettings(allowed_origins=parse_origins(listed)).origins == {sent}


@pytest.mark.parametrize("text", ["https://a/b", "ftp://a", "a b", "https://", "https://a:port", "*"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="origins such as"):
        parse_origins(text)


@pytest.mark.rule("O3.3")
def test_the_page_has_every_setting_with_its_default_and_every_event() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_0-9]+)` \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)

    assert [(key, default) for key, default, _ in rows] == [
        (setting.key, setting.shown(setting.default)) for setting in TABLE.values()
    ]
    for source in (root / "topics" / "server").rglob("*.py"):
        for event in re.findall(
            r'\blog\.(?:info|warning|error|exception)\(\s*"([a-z._]+)"', source.read_text()
        ):
            assert f"`{event}`" in page or source.name == "log.py", (event, source)
