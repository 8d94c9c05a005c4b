"""A real server under eight HTTP writers in class fsync is killed, or told to end: nothing acknowledged is missing."""

from __future__ import annotations

import random
import signal
import socket
import time
from contextlib import closing

import pytest

import topics
from tests.crash.serving import Served, Writers, ask
from tests.support.killed import check, note

WRITERS = 8
DRAIN_S = 2.0


def kill_once(path, life, acks, *, event=None, **env):
    """Serve until so many acknowledgements came, and the event; SIGKILL. What was acknowledged: {seq: data}."""
    acknowledged = {}
    with Served(path, **env) as server:
        writers = Writers(server, str(life), WRITERS)
        told = writers.wait_for(acks)
        if event is not None:
            server.until(event)
        code, _ = server.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
        for line in told + writers.end():
            note(acknowledged, life, line)
    return acknowledged


def kill_often(path, kills, seed):
    with topics.open(path) as store:
        store.create("t", durability="fsync")
    rng = random.Random(seed)
    acknowledged = {}
    for life in range(kills):
        acknowledged |= kill_once(path, life, rng.randrange(1, 400))
        check(path, acknowledged)
    print(f"{kills} kills, {len(acknowledged)} acknowledged records, all there")
    assert len(acknowledged) > kills


@pytest.mark.rule("H4.8", "H4.10", "S2.5", "S2.23")
@pytest.mark.invariant("I-07")
def test_kill_9_under_eight_http_writers_loses_nothing_acknowledged(tmp_path):
    kill_often(tmp_path / "data", 3, 1)


def test_kill_9_right_behind_a_checkpoint_loses_nothing_acknowledged(tmp_path):
    """The last lives begin from a snapshot, with segments and the rest of the log."""
    path = tmp_path / "data"
    with topics.open(path) as store:
        store.create("t", durability="fsync")
    acknowledged = {}
    for life in range(3):
        acknowledged |= kill_once(
            path,
            life,
            50,
            event="checkpoint.taken",
            TOPICS_CHECKPOINT_INTERVAL_MS="1",
            TOPICS_SEGMENT_MAX_EVENTS="400",
        )
        check(path, acknowledged)

    assert len(list((path / "meta").iterdir())) == 2
    assert len(list((path / "topics" / f"{1:016x}").glob("*.data"))) > 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_under_eight_http_writers_lose_nothing_acknowledged(tmp_path):
    kill_often(tmp_path / "data", 20, 2)


def read_never(port, request):
    """A client that asks for megabytes and reads none of them."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", port))
    peer.sendall(request * 20)
    return peer


@pytest.mark.rule("A4.3", "O3.5")
def test_sigterm_under_load_ends_within_its_bound_and_keeps_everything_acknowledged(tmp_path):
    path = tmp_path / "data"
    with topics.open(path) as store:
        store.create("t", durability="fsync")
        store.create("big").put_many([{"data": "x" * 500_000}] * 8)
    head = b"POST /v0/topics/big/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Served(path, TOPICS_DRAIN_MS=str(int(DRAIN_S * 1000))) as server:
        writers = Writers(server, "0", WRITERS)
        silent = read_never(server.port, head + b"Content-Length: 2\r\n\r\n{}")
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(head + b"Content-Length: 100\r\n\r\n{")
        told = writers.wait_for(100)
        with closing(server.connect()) as other:
            assert ask(other, "GET", "/v0/ready")[0] == 200

        begun = time.monotonic()
        code, rest = server.end(signal.SIGTERM)
        took_s = time.monotonic() - begun

        assert code == 0, rest
        assert took_s < DRAIN_S + 1.5, rest
        acknowledged = {}
        for line in told + writers.end():
            note(acknowledged, 0, line)
        assert {code for _, code in writers.refusals} <= {"shutting_down"}
        silent.close()
        half.close()
    check(path, acknowledged)
    with topics.open(path) as store:
        assert store.topic("big").state().head_seq == 8
