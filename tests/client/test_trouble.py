"""Servers that are not there, lie, or say later: what is repeated, what is not, and what is said."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

import topics
from tests.client.peer import Peer, Time, answer, error
from tests.support.awaited import awaited
from topics.calls.patience import Pace, Patience
from topics.client import Trouble, Unreachable

WRITTEN = answer(
    200,
    b'{"topic":"t","first_seq":1,"last_seq":1,"seqs":[1],"head_seq":1,"durable_seq":1,"count":1,"created":true,"deduped":false}',
)
GONE = answer(200, b'{"topic":"t","deleted":true}')


class Make(Protocol):
    def __call__(self, url: str, time: Time | None = None, **how: Any) -> Any: ...


@pytest.fixture(params=["blocking", "trio", "asyncio"])
def client(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes clients, of each kind, and ends their loops."""
    with contextlib.ExitStack() as loops:

        def make(url: str, time: Time | None = None, **how: Any) -> Any:
            how = {"pace": (time or Time()).pace} | how
            if request.param == "blocking":
                return topics.Client(url, **how)
            return loops.enter_context(awaited(topics.AsyncClient(url, **how), request.param))

        yield make


def test_a_write_whose_answer_was_lost_is_repeated_under_its_key(client: Make) -> None:
    time = Time()
    with Peer(None, None, WRITTEN) as peer, client(peer.url, time) as store:
        assert store.topic("t").put(1).seqs == [1]

    bodies = [json.loads(peer.body(i)) for i in range(3)]
    assert bodies[0] == bodies[1] == bodies[2]
    assert len(bodies[0]["idempotency_key"]) == 24
    assert time.slept == [0.025, 0.05]


def test_each_write_has_a_key_of_its_own_unless_one_is_given(client: Make) -> None:
    with Peer(WRITTEN) as peer, client(peer.url) as store:
        store.topic("t").put(1)
        store.topic("t").put(1)
        store.topic("t").put(1, idempotency_key="mine", expected_head=7, create=False)

    first, second, third = (json.loads(peer.body(i)) for i in range(3))
    assert first["idempotency_key"] != second["idempotency_key"]
    assert "create" not in first  # whether a write creates is the server's to say, unless the caller does
    assert (third["idempotency_key"], third["expected_head"], third["create"]) == ("mine", 7, False)


@pytest.mark.parametrize(
    "then", [error(503, "not_ready", "retry-after: 20"), answer(503, b"<html>proxy</html>")]
)
def test_a_write_that_may_have_arrived_is_unknown_whatever_comes_after(client: Make, then: bytes) -> None:
    with Peer(None, then) as peer, client(peer.url) as store, pytest.raises(Unreachable) as lost:
        store.topic("t").put(1)

    assert lost.value.sent is True
    assert len(str(lost.value.detail["idempotency_key"])) == 24
    assert len(peer.requests) >= 2


def test_a_write_that_was_lost_and_finds_nobody_afterwards_is_unknown_too(client: Make) -> None:
    peer = Peer(None)
    time = Time()

    def wait(seconds: float) -> None:
        time.go_on(seconds)
        if len(time.slept) == 1:
            peer.__exit__(None, None, None)

    store = client(peer.url, pace=Pace(now_s=lambda: time.now, sleep=wait, chance=lambda: 0.0))
    with peer.started(), store, pytest.raises(Unreachable) as lost:
        store.topic("t").put(1)

    assert (lost.value.reason, lost.value.sent) == (Trouble.REFUSED, True)


def test_a_delete_that_may_have_arrived_is_not_repeated(client: Make) -> None:
    with Peer(None, GONE) as peer, client(peer.url) as store:
        with pytest.raises(Unreachable, match="lost before the answer") as lost:
            store.delete("t")
        assert (lost.value.reason, lost.value.sent) == (Trouble.LOST, True)
        assert store.delete("t") is True

    assert len(peer.requests) == 2


def test_later_is_waited_for_as_long_as_it_says(client: Make) -> None:
    time = Time()
    later = error(503, "not_ready", "retry-after: 3"), error(429, "throttled", "retry-after: 2")
    with Peer(*later, GONE) as peer, client(peer.url, time) as store:
        assert store.delete("t") is True

    assert time.slept == [3.0, 2.0]


def test_patience_ends(client: Make) -> None:
    time = Time()
    with (
        Peer(error(503, "not_ready", "retry-after: 1")) as peer,
        client(peer.url, time) as store,
        pytest.raises(topics.Rejected) as refused,
    ):
        store.topic("t").state()

    assert refused.value.code == "not_ready"
    assert 23 <= sum(time.slept) <= 30
    assert len(peer.requests) == len(time.slept) + 1


def test_what_may_have_failed_in_the_middle_is_unknown_and_not_repeated_without_need(client: Make) -> None:
    script = error(500, "internal"), error(503, "storage_read_only", "retry-after: 31")
    with Peer(*script) as peer, client(peer.url) as store:
        for _ in range(2):
            with pytest.raises(topics.Fatal) as fatal:
                store.topic("t").put(1)
            assert len(str(fatal.value.detail["idempotency_key"])) == 24
        with pytest.raises(topics.Rejected) as refused:
            store.topic("t").state()
        assert refused.value.code == "storage_read_only"

    assert len(peer.requests) == 3


@pytest.mark.rule("T5.11")
def test_a_damaged_record_is_the_error_that_an_embedded_store_raises(client: Make) -> None:
    body = (
        b'{"error":{"code":"internal","message":"topic \'t\': seq 4 is damaged","detail":'
        b'{"topic":"t","seq":4,"last_seq":5,"files":["wal"],"next_from_seq":5}}}'
    )
    with Peer(answer(500, body)) as peer, client(peer.url) as store:
        with pytest.raises(topics.Corrupt, match="seq 4 is damaged") as caught:
            store.topic("t").read()
        with pytest.raises(topics.Fatal):
            store.topic("t").put(1)

    assert caught.value.detail["next_from_seq"] == 5
    assert len(peer.requests) == 2


def test_nobody_listening_is_told_soon_and_named(client: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    time = Time()
    with client(url, time) as store, pytest.raises(Unreachable) as refused:
        store.list()

    assert str(refused.value).startswith(f"{url}: nobody listens there; start a server (topics serve)")
    assert (refused.value.reason, refused.value.sent) == (Trouble.REFUSED, False)
    assert 0 < sum(time.slept) <= 2


def test_a_server_that_answered_before_is_waited_for_longer(client: Make) -> None:
    time = Time()
    with Peer(GONE) as peer:
        store = client(peer.url, time)
        assert store.delete("t") is True
    with store, pytest.raises(Unreachable):
        store.delete("t")

    assert 20 <= sum(time.slept) <= 30


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer(200, b"no gzip", "content-encoding: gzip"), "its answer cannot be read"),
        (answer(200, b"<html>hello</html>"), "answered what is not of its form"),
        (answer(200, b'{"topic":"t"}'), "answered what is not of its form"),
        (answer(404, b"<html>nope</html>"), "answered 404 with '<html>nope"),
        (answer(302, b"", "location: http://elsewhere/"), "redirects are not followed"),
        (b"SSH-2.0-OpenSSH_9\r\n", "lost before the answer"),
        (answer(200, b"[" * 100_000), "answered what is not of its form"),
        (answer(200, b"\xff\xfe"), "answered what is not of its form"),
    ],
)
def test_what_no_topics_server_says_is_one_line_with_the_url(client: Make, said: bytes, words: str) -> None:
    with (
        Peer(said) as peer,
        client(peer.url, patience=Patience(attempts_max=2)) as store,
        pytest.raises(Unreachable) as found,
    ):
        store.topic("t").state()

    assert words in str(found.value)
    assert str(found.value).startswith(f"{peer.url}: ")
    assert "\n" not in str(found.value)


def test_codes_that_only_a_newer_server_knows_are_told_by_their_status(client: Make) -> None:
    with (
        Peer(
            error(401, "key_expired"), error(403, "key_frozen"), error(409, "moved_on"), error(599, "odd")
        ) as peer,
        client(peer.url) as store,
    ):
        found = []
        for _ in range(4):
            with pytest.raises(topics.Rejected) as refused:
                store.topic("t").state()
            found.append((refused.value.code.value, refused.value.detail["server_code"]))

    assert found == [
        ("unauthorized", "key_expired"), ("forbidden", "key_frozen"), ("invalid_request", "moved_on"),
        ("internal", "odd"),
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["a" * 300, "x" * 60 + "." + "y" * 70, "nowhere.invalid", "a..b"])
def test_a_host_that_there_is_not_is_one_line(client: Make, host: str) -> None:
    with pytest.raises(topics.TopicsError) as found:
        client(f"http://{host}:4000").list()

    assert "\n" not in str(found.value)
    assert isinstance(found.value, Unreachable | topics.Rejected)


def test_an_answer_without_end_is_cut_off(client: Make) -> None:
    long = answer(200, b" " * (65 << 20))
    with Peer(long) as peer, client(peer.url) as store, pytest.raises(Unreachable, match="longer than"):
        store.topic("t").state()


@pytest.mark.rule("O3.2")
def test_a_key_comes_from_the_environment_or_a_file_and_goes_out_as_a_bearer(
    client: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TOPICS_API_KEY", " s3cret\n")
    (tmp_path / "key").write_text("of-a-file\n")
    with Peer(GONE) as peer:
        with client(peer.url) as store:
            store.delete("t")
        with client(peer.url, api_key_file=tmp_path / "key") as store:
            store.delete("t")

    assert b"authorization: bearer s3cret\r\n" in peer.requests[0].replace(b"Bearer", b"bearer").replace(
        b"A", b"a"
    )
    assert b"of-a-file" in peer.requests[1]


@pytest.mark.rule("O3.2")
def test_a_key_that_is_none_is_refused_and_not_repeated(
    client: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for key in ("two words", "sch\u00f6n", "x\r\ny"):
        monkeypatch.setenv("TOPICS_API_KEY", key)
        with pytest.raises(topics.Rejected, match="one word of visible ASCII") as refused:
            client("http://127.0.0.1:1")
        assert key not in str(refused.value)
    (tmp_path / "empty").write_text("\n")
    for file, words in (("missing", "cannot be read"), ("empty", "is empty")):
        with pytest.raises(topics.Rejected, match=words):
            client("http://127.0.0.1:1", api_key_file=tmp_path / file)


def test_a_closed_client_says_so(client: Make) -> None:
    store = client("http://127.0.0.1:1")
    store.close()
    store.close()
    with pytest.raises(topics.Rejected, match="the client is closed"):
        store.list()


CERTIFICATE = pathlib.Path(__file__).resolve().parents[1] / "server" / "tls" / "one.pem"  # signed by itself


@pytest.fixture
def tls() -> Iterator[Callable[[bytes], str]]:
    """A TLS server that answers once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def start(said: bytes) -> str:
        def serve() -> None:
            raw, _ = listener.accept()
            with (
                raw,
                contextlib.suppress(OSError),
                context.wrap_socket(raw, server_side=True) as connection,
            ):
                connection.recv(65_536)
                connection.sendall(said)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"https://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(10)
    listener.close()


def test_a_certificate_is_checked(client: Make, tls: Callable[[bytes], str]) -> None:
    with client(tls(GONE)) as store, pytest.raises(Unreachable) as found:
        store.delete("t")
    assert found.value.reason is Trouble.TLS
    assert "is not trusted" in str(found.value)
    assert "--cafile" in str(found.value)

    with client(tls(GONE), cafile=CERTIFICATE) as store:
        assert store.delete("t") is True


def test_tls_where_there_is_none_and_files_that_hold_no_certificate(client: Make, tmp_path: Any) -> None:
    with Peer(GONE) as peer, client(peer.url.replace("http:", "https:")) as store:
        with pytest.raises(Unreachable) as found:
            store.delete("t")
        assert "try http://" in str(found.value)

    (tmp_path / "not.pem").write_text("hello")
    for file, words in (("not.pem", "holds no PEM certificate"), ("missing", "does not exist")):
        with pytest.raises(topics.Rejected, match=words):
            client("https://127.0.0.1:1", cafile=tmp_path / file)
