"""A real server is killed while it forwards: a chain, a queue that is worked on; each dest is as if nobody had."""

from __future__ import annotations

import random
import signal
import threading

import pytest

import topics
from tests.crash.serving import Served, Writers, ask
from tests.support.killed import note

WRITERS = 4
CLASSES = {"t": "fsync", "copy": "disk", "far": "fsync", "jobs": "disk", "once": "fsync"}
ROUTERS = (
    ("t", "copy", {}),
    ("copy", "far", {}),
    ("t", "jobs", {}),
    ("t", "once", {"guarantee": "exactly_once"}),
)


def begin(path):
    with Served(path) as server:
        connection = server.connect()
        for name, durability in CLASSES.items():
            of_queue = {"type": "queue", "lease_ms": 60_000} if name == "jobs" else {}
            status, _ = ask(connection, "PUT", f"/v0/topics/{name}", {"durability": durability} | of_queue)
            assert status == 201
        for source, dest, fields in ROUTERS:
            asked = {"source": source, "dest": dest} | fields
            assert ask(connection, "PUT", f"/v0/routers/{source}>{dest}", asked)[0] == 201
        connection.close()
        server.end(signal.SIGTERM)


def work(server, rng):
    """Jobs are acked, and records of the chain's middle deleted, until the server is gone. What was acked."""
    acked = []
    client = topics.Client(f"http://127.0.0.1:{server.port}", patience=topics.Patience(total_ms=1000))

    def run():
        try:
            while True:
                for job in client.queue("jobs").claim(5, wait_ms=50):
                    acked.append(job.seq)  # whether it is answered or not
                    job.ack()
                head = client.topic("copy").state().head_seq
                if rng.random() < 0.3:
                    client.topic("copy").delete(before_seq=max(head - 200, 1))
        except topics.TopicsError:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return client, thread, acked


def kill_once(path, life, rng):
    acknowledged = {}
    with Served(path) as server:
        writers = Writers(server, str(life), WRITERS)
        client, thread, acked = work(server, rng)
        told = writers.wait_for(rng.randrange(5, 60))
        assert server.end(signal.SIGKILL)[0] == -signal.SIGKILL
        for line in told + writers.end():
            note(acknowledged, life, line)
        thread.join(30)
        client.close()
    return acknowledged, acked


def check(path, acknowledged, acked):
    with topics.open(path) as store:
        source = {record.seq: record.data for record in store.topic("t").records()}
        head_seq = store.topic("t").state().head_seq
        assert acknowledged.items() <= source.items()
        for name in ("copy", "far", "jobs", "once"):
            found = {record.seq: record for record in store.topic(name).records()}
            assert store.topic(name).state().head_seq == head_seq, name
            assert {seq: record.data for seq, record in found.items()}.items() <= source.items(), name
            if name in ("far", "once"):
                assert found.keys() == source.keys()
            if name == "jobs":
                assert source.keys() - found.keys() <= acked
            if name == "once":
                assert all(
                    record.meta["_topics_router"] == f"t>once:1:{seq}" for seq, record in found.items()
                )
        for source_name, dest, _ in ROUTERS:
            told = store.router(f"{source_name}>{dest}")
            assert (told.cursor, told.forwarded_total, told.lag) == (head_seq, head_seq, 0)
    return head_seq


def kill_often(path, kills, seed):
    begin(path)
    rng, acknowledged, acked = random.Random(seed), {}, set()
    head_seq = 0
    for life in range(kills):
        told, done = kill_once(path, life, rng)
        acknowledged |= told
        acked |= set(done)
        head_seq = check(path, acknowledged, acked)
    print(
        f"{kills} kills, {head_seq} records, each copied once by each of {len(ROUTERS)} routers; {len(acked)} acks"
    )
    assert len(acknowledged) > kills


@pytest.mark.rule("S8.1", "S8.11")
@pytest.mark.invariant("I-21")
def test_kill_9_while_it_forwards_leaves_each_dest_as_if_nobody_had(tmp_path):
    kill_often(tmp_path / "data", 2, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_kills_while_it_forwards_leave_each_dest_as_if_nobody_had(tmp_path):
    kill_often(tmp_path / "data", 40, 2)
