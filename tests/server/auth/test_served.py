"""Keys of a server in a process of its own: read again at SIGHUP, told to nobody, and given by clients."""

from __future__ import annotations

import base64
import json
import pathlib
import signal
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

import topics
from tests.server.process import CERTIFICATES, Process, trusting
from topics.cli.main import main

TOKENS = ("k3y-of-the-reader", "k3y-of-the-boss", "k3y-of-a-stranger", "k3y-that-is:malformed")
READER, BOSS, STRANGER, MALFORMED = TOKENS
ASKED = "qu3ry-of-somebody"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x"


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Process]:
    (tmp_path / "keys").write_text(f"{READER}:read\n{BOSS}\n")
    with Process(
        "--port", 0, "--data", "data", "--api-keys-file", "keys", cwd=tmp_path, TOPICS_LOG_LEVEL="debug"
    ) as found:
        yield found.ready()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def raw(server: Process, text: bytes) -> bytes:
    """All that is answered to these bytes, up to the end that the peer makes."""
    with server.connect() as peer:
        peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        found = b""
        while data := peer.recv(65_536):
            found += data
    return found


def until_end(peer: socket.socket) -> float:
    """How long the server takes to end the connection."""
    began = time.monotonic()
    try:
        while peer.recv(65_536):
            pass
    except (ConnectionResetError, ssl.SSLError):
        pass
    return time.monotonic() - began


def opened(server: Process, request: str, token: str) -> socket.socket:
    """A connection on which something was answered, or waits."""
    peer = server.connect()
    peer.sendall(f"{request}\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode())
    return peer


@pytest.mark.rule("O3.9", "H2.23")
def test_at_sighup_the_file_is_read_again_and_what_a_revoked_key_has_ends(server, tmp_path):
    server.ask("PUT", "/v0/topics/t", {}, **bearer(BOSS))
    (tmp_path / "keys").write_text(f"{BOSS}\n{MALFORMED}\n")
    server.signal(signal.SIGHUP)
    told = server.until("keys.not_reloaded")
    assert (told["level"], told["keys"]) == ("error", 2)
    assert "keys: line 2: the scopes, behind the key and a colon" in told["why"]
    assert server.ask("GET", "/v0/topics/t", **bearer(READER))[0] == 200

    poll = "POST /v0/topics/t/diff HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 17"
    get = "GET /v0/topics/t HTTP/1.1"
    with (
        opened(server, poll, READER) as waiting,
        opened(server, poll, BOSS) as other,
        opened(server, get, READER) as idle,
    ):
        for peer in (waiting, other):
            peer.sendall(b'\r\n{"wait_ms":30000}')
        idle.sendall(b"\r\n")
        assert idle.recv(65_536).startswith(b"HTTP/1.1 200")
        (tmp_path / "keys").write_text(f"{BOSS}\n")
        server.signal(signal.SIGHUP)
        told = server.until("keys.reloaded")

        assert (told["keys"], told["revoked"]) == (1, 1)
        assert until_end(idle) < 1
        assert until_end(waiting) < 1
        assert server.ask("GET", "/v0/topics/t", **bearer(READER))[0] == 401
        server.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]}, **bearer(BOSS))
        assert b'"data":1' in other.recv(65_536)
    (tmp_path / "keys").write_text("")  # nobody, and not: everybody
    server.signal(signal.SIGHUP)
    assert server.until("keys.reloaded")["keys"] == 0
    assert server.ask("GET", "/v0/topics/t")[0] == 401
    server.stop()


@pytest.mark.rule("H2.15")
def test_it_says_whether_it_asks_for_keys(server, tmp_path):
    told = {event["event"]: event for event in server.events}

    assert told["auth.on"]["keys"] == 2
    assert "auth.off" not in told


@pytest.mark.rule("H2.5")
def test_no_token_and_no_query_is_in_what_the_server_writes(server, tmp_path):
    """Tokens good and bad, wherever one can be given, also where what is around them is wrong."""
    answers: list[bytes] = []
    for token in (READER, BOSS, STRANGER, MALFORMED):
        coded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        for fields in (
            f"Authorization: Bearer {token}", f"Authorization: Basic {token}", f"Authorization: {token}",
            f"Authorization: Bearer {token}\r\nAuthorization: Bearer {token}",
            f"Authorization: Bearer {token}\r\nOrigin: http://evil.example",
            f"Authorization: Bearer {token}\r\n{UPGRADE}",
            f"{UPGRADE}\r\nSec-WebSocket-Protocol: topics.key.{coded}, topics.v0",
            f'{UPGRADE}\r\nSec-WebSocket-Protocol: topics.key.{coded}, "{token}"',
            f"Authorization : Bearer {token}",
        ):  # fmt: skip
            lines = (
                "GET /v0/ws", "GET /v0/topics/t", f"GET /v0/topics/t/work?token={token}&node={ASKED}",
                f"GET /v0/topics?page_size={ASKED}", f"DELETE /v0/topics/t?if_empty={ASKED}", "BREW /v0/topics/t",
                f"GET /v0/nothing?token={token}", f"GET http://a@{token}/v0/topics", f"GET /?token={token}",
                "POST /v0/topics/t", "GET /v0/openapi.json", "GET /v0/metrics", f"GET /v0/health?token={token}",
            )  # fmt: skip
            around = f"Host: localhost\r\nConnection: close\r\n{fields}\r\n\r\n"
            answers += [raw(server, f"{line} HTTP/1.1\r\n{around}".encode()) for line in lines]
    (tmp_path / "keys").write_text(f"{BOSS}\n{MALFORMED}\n")
    server.signal(signal.SIGHUP)
    server.until("keys.not_reloaded")
    (tmp_path / "keys").write_text(f"{BOSS} {STRANGER}\n")
    server.signal(signal.SIGHUP)
    server.until("keys.not_reloaded")
    answers.append(
        json.dumps(server.ask("GET", "/v0/metrics", Accept="application/json", **bearer(BOSS))).encode()
    )
    _, out, noise = server.end(signal.SIGTERM)
    written = "\n".join(
        [out, noise, *map(json.dumps, server.events), *(answer.decode() for answer in answers)]
    )

    assert "unauthorized" in written
    assert "forbidden" in written
    for secret in (
        *TOKENS,
        "malformed",
        *(base64.urlsafe_b64encode(one.encode()).decode()[:12] for one in TOKENS),
    ):
        assert secret not in written.replace("is malformed", "")
    logged = "\n".join([out, noise, *map(json.dumps, server.events)])
    assert ASKED not in logged
    assert STRANGER.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("data/**/*") if path.is_file()
    )


@pytest.mark.rule("O3.2")
def test_a_client_gives_its_key_and_is_told_what_to_do_without_one(server, tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{server.port}"
    monkeypatch.delenv("TOPICS_API_KEY", raising=False)
    (tmp_path / "key").write_text(f"{BOSS}\n")
    with topics.Client(url) as store, pytest.raises(topics.Rejected) as refused:
        store.topic("q").put(1)
    assert refused.value.code.value == "unauthorized"
    assert "give it in TOPICS_API_KEY, or in a file that --api-key-file or api_key_file= names" in str(
        refused.value
    )

    with topics.Client(url, api_key_file=tmp_path / "key") as store:
        queue = store.create("q", type="queue")
        queue.put(1)
    monkeypatch.setenv("TOPICS_API_KEY", READER)
    with topics.Client(url) as store:
        assert store.topic("q").state().head_seq == 1
        with pytest.raises(topics.Rejected, match="needs the scope write") as refused:
            store.topic("q").put(2)
        assert refused.value.code.value == "forbidden"
        with store.worker("q") as worker, pytest.raises(topics.Rejected, match="work needs the scope write"):
            worker.run(print)
    done: list[object] = []
    monkeypatch.setenv("TOPICS_API_KEY", BOSS)
    with topics.Client(url) as store, store.worker("q") as worker:

        def work(job: topics.Job) -> None:
            done.append(job.data)
            worker.stop()

        worker.run(work)
    assert done == [1]
    monkeypatch.setenv("TOPICS_API_KEY", STRANGER)
    with (
        pytest.raises(topics.Rejected, match="none of the server's keys; give it in TOPICS_API_KEY"),
        topics.Client(url) as store,
        store.worker("q") as worker,
    ):
        worker.run(work)


def test_a_key_that_may_only_write_can_put(server, tmp_path, monkeypatch, capsys):
    (tmp_path / "keys").write_text("writer:write\nother:read:a\n")
    server.signal(signal.SIGHUP)
    server.until("keys.reloaded")
    (tmp_path / "in.jsonl").write_text("1\n")
    url = f"http://127.0.0.1:{server.port}"
    monkeypatch.setenv("TOPICS_API_KEY", "writer")
    assert main(["put", "t", str(tmp_path / "in.jsonl"), "--url", url]) == 0
    assert main(["get", "t", "--url", url]) == 1
    assert "needs the scope read, which it has not" in capsys.readouterr().err
    monkeypatch.setenv("TOPICS_API_KEY", "other")
    assert main(["get", "t", "--url", url]) == 1
    assert "'t' does not begin with a prefix of this key" in capsys.readouterr().err
    assert main(["get", "a", "--url", url]) == 1
    assert "topic 'a' does not exist" in capsys.readouterr().err


@pytest.mark.rule("H2.23")
def test_what_a_revoked_key_has_over_tls_ends_too(tmp_path):
    (tmp_path / "keys").write_text("k\nother\n")
    files = [CERTIFICATES / f"one.{kind}" for kind in ("pem", "key")]
    tls = ("--certfile", files[0], "--keyfile", files[1])
    with Process("--port", 0, "--memory", *tls, "--api-keys-file", "keys", cwd=tmp_path) as server:
        server.ready()
        context = trusting("one")
        assert server.ask("PUT", "/v0/topics/q", {"type": "queue"}, context=context, **bearer("k"))[0] == 201
        with context.wrap_socket(server.connect(), server_hostname="localhost") as peer:
            peer.sendall(b"GET /v0/topics/q/work?node=n&token=k HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert peer.recv(65_536).startswith(b"HTTP/1.1 200")
            (tmp_path / "keys").write_text("other\n")
            server.signal(signal.SIGHUP)
            server.until("keys.reloaded")
            assert until_end(peer) < 1
        server.stop()


@pytest.mark.rule("H2.23")
def test_a_worker_whose_key_is_revoked_ends_and_says_why(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TOPICS_API_KEY", BOSS)
    with topics.Client(f"http://127.0.0.1:{server.port}") as store:
        store.create("q", type="queue").put(1)

        def work(_: topics.Job) -> None:
            (tmp_path / "keys").write_text("another\n")
            server.signal(signal.SIGHUP)
            server.until("keys.reloaded")

        with pytest.raises(topics.Rejected) as refused, store.worker("q") as worker:
            worker.run(work)
    assert refused.value.code.value == "unauthorized"
    _, state = server.ask("GET", "/v0/topics/q", **bearer("another"))
    assert (state["queue"]["ready"], state["queue"]["in_flight"]) == (1, 0)
