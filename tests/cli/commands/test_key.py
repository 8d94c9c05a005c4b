"""`topics key`: a key is printed once, its digest is kept, and the server that serves the directory is told."""

from __future__ import annotations

import json
import pathlib
import stat
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.process import Process
from topics.server.auth.lines import digest_of

Call = Callable[..., Any]


def new(call: Call, name: str, *arguments: str) -> str:
    answer = call("key", "new", name, *arguments)
    assert answer.code == 0, answer.err
    (key,) = answer.text.splitlines()
    return str(key)


def test_a_key_is_printed_once_and_its_digest_is_kept(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS_FILE", "keys")
    path = pathlib.Path("keys")
    path.write_text("# ours\nplain:read # by hand\n")
    first = new(call, "dashboards", "--scopes", "r", "--prefix", "orders.", "--prefix", "audit.")
    second = new(call, "the boss")

    assert first != second
    assert path.read_text().splitlines() == [
        "# ours",
        "plain:read # by hand",
        f"sha256:{digest_of(first).hex()}:read:orders.|audit. # dashboards",
        f"sha256:{digest_of(second).hex()} # the boss",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [(one["name"], one["scopes"], one["prefixes"]) for one in call("key", "ls", "--json").lines] == [
        ("by hand", ["read"], []),
        ("dashboards", ["read"], ["orders.", "audit."]),
        ("the boss", ["read", "write", "delete", "admin"], []),
    ]
    shown = call("key", "ls").text
    assert "dashboards" in shown
    assert "orders. audit." in shown
    assert first not in shown
    assert json.loads(call("key", "new", "x", "--json").out)["key"].startswith("topics_")


def test_a_key_is_revoked_by_its_name_or_its_id_and_the_rest_stays(call: Call) -> None:
    path, file = pathlib.Path("keys"), ("--api-keys-file", "keys")
    for name in ("a", "b", "c"):
        new(call, name, *file)
    path.write_text("# ours\nplain:read\n" + path.read_text() + "twin # c\n")
    lines = path.read_text().splitlines()
    assert call("key", "revoke", "b", *file).code == 0
    assert path.read_text().splitlines() == [line for line in lines if not line.endswith("# b")]
    assert call("key", "revoke", digest_of("plain").hex()[:8].upper(), *file).code == 0
    assert "plain" not in path.read_text()
    assert call("key", "revoke", "a", *file, "--json").lines[0]["name"] == "a"
    for which, message in [
        ("b", "keys has no key 'b'"), ("abcdef", "has no key"), ("c", "'c' may be any of"), ("", "has no key ''"),
    ]:  # fmt: skip
        answer = call("key", "revoke", which, *file)
        assert answer.code == 1
        assert message in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("new", "x"), "name the file of keys: --api-keys-file FILE, or TOPICS_API_KEYS_FILE"),
        (("ls", "--api-keys-file", "absent"), "absent does not exist; topics key new NAME makes it"),
        (("new", "", "--api-keys-file", "keys"), "NAME is empty"),
        (("new", "a\nb", "--api-keys-file", "keys"), "NAME: its name is printable text"),
        (
            ("new", "x", "--scopes", "reed", "--api-keys-file", "keys"),
            "--scopes: 'reed' is none of: read, write, delete, admin",
        ),
        (
            ("new", "x", "--prefix", "-", "--api-keys-file", "keys"),
            "--prefix: '-' is none of: beginnings of names",
        ),
        (("new", "x", "--api-keys-file", "no/keys"), "no/keys: cannot be written: No such file or directory"),
        (("ls", "--api-keys-file", "bad"), "bad: line 2: white space"),
        (("new", "x", "--api-keys-file", "bad"), "bad: line 2: white space"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    pathlib.Path("bad").write_text("a\nb s3cret\n")
    answer = call("key", *arguments)

    assert answer.code in (1, 2)
    assert message in answer.err
    assert "s3cret" not in answer.err
    assert [path.name for path in pathlib.Path().iterdir()] == ["bad"]


def test_the_server_of_the_directory_reads_its_keys_again(call: Call, tmp_path: pathlib.Path) -> None:
    file = ("--api-keys-file", "keys", "--data", "data")
    first = new(call, "first", *file)
    with Process("--port", 0, *file, cwd=tmp_path) as server:
        server.ready()
        second = call("key", "new", "second", "--scopes", "read", *file)
        assert f"told the server of data (process {server.pid}) to read its keys again" in second.err
        assert "it asks for them if it was started with --api-keys-file keys" in second.err
        assert server.until("keys.reloaded")["keys"] == 2
        bearer = {"Authorization": f"Bearer {second.text.strip()}"}
        assert server.ask("GET", "/v0/topics", **bearer)[0] == 200
        assert call("key", "revoke", "second", *file).code == 0
        assert server.until("keys.reloaded")["revoked"] == 1
        assert server.ask("GET", "/v0/topics", **bearer)[0] == 401
        assert server.ask("GET", "/v0/topics", Authorization=f"Bearer {first}")[0] == 200
        server.stop()
    told = call("key", "new", "third", *file).err
    assert (
        "no server of data runs here (--data names another). One that has keys knows the keys it had until it reads"
        in told
    )
    assert "SIGHUP" in told
