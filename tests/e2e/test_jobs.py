"""Workers, killed and frozen, and a server that is killed: each job is done once, or a dead letter."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.crash.serving import ROOT, Served, ask
from tests.e2e.fleet import Fleet, Q


@pytest.mark.rule("Q2.5", "Q2.6", "Q3.6", "Q4.7", "Q5.1", "Q5.2")
@pytest.mark.parametrize(
    ("over", "leases_durable"),
    [
        ("websocket", False),
        *(pytest.param(over, True, marks=pytest.mark.slow) for over in ("websocket", "http")),
    ],
)
def test_a_fleet_that_is_killed_here_and_there_does_every_job(tmp_path, over, leases_durable):
    with Fleet(tmp_path, over=over, jobs=500, workers=4, leases_durable=leases_durable) as fleet:
        fleet.run(server_kills=1, worker_kills=3)
        fleet.check()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_sixteen_workers_do_fifty_thousand_jobs_over_five_kills_of_the_server(tmp_path, durability):
    durable = durability == "fsync"
    with Fleet(tmp_path, jobs=50_000, workers=16, durability=durability, leases_durable=durable) as fleet:
        fleet.run(server_kills=5, worker_kills=40)
        fleet.check()


CHILD = """
import json, os, sys, threading
import topics

def tell(*event):
    os.write(1, json.dumps(event).encode() + b"\\n")

def extend():
    while not ended.wait(lease_ms / 4000):
        tell("extended", job.extend(lease_ms))

lease_ms = int(sys.argv[2])
with topics.Client(sys.argv[1]) as client:
    job = client.queue("q", node="stopped").get()
    tell("claimed", job.seq, job.lease_id)
    ended = threading.Event()
    extending = threading.Thread(target=extend)
    extending.start()
    sys.stdin.readline()
    tell("acked", job.ack())
    ended.set()
    extending.join()
"""
LEASE_MS = 1000
LATE_MS = 1000  # of a busy machine


def until(process, wanted):
    for line in process.stdout:
        kind, *rest = json.loads(line)
        if kind == wanted:
            return rest
    raise AssertionError(f"it ended without {wanted!r}")


@pytest.mark.rule("Q2.6", "Q4.6", "Q4.7")
def test_a_worker_that_is_stopped_loses_its_lease_after_one_and_its_late_ack_is_refused(tmp_path):
    """While it runs, it extends what it works on; SIGSTOP ends that, and nothing else."""
    with Served(tmp_path / "data") as server, closing(server.connect()) as line:
        assert ask(line, "PUT", Q, {"type": "queue", "lease_ms": LEASE_MS})[0] == 201
        assert ask(line, "POST", Q, {"records": [{"data": 1}]})[0] == 200
        command = [sys.executable, "-c", CHILD, f"http://127.0.0.1:{server.port}", str(LEASE_MS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as worker:
            try:
                seq, lease = until(worker, "claimed")
                for _ in range(6):  # which is longer than a lease
                    assert until(worker, "extended") == [True]
                claim = {"node": "other", "wait_ms": 10 * LEASE_MS}
                assert ask(line, "POST", f"{Q}/claim", claim | {"wait_ms": 0})[1]["claimed"] == []

                worker.send_signal(signal.SIGSTOP)
                begun_s = time.monotonic()
                (again,) = ask(line, "POST", f"{Q}/claim", claim)[1]["claimed"]
                took_ms = (time.monotonic() - begun_s) * 1000
                worker.send_signal(signal.SIGCONT)
                worker.stdin.write(b"\n")
                worker.stdin.flush()

                assert until(worker, "acked") == [False]
                assert took_ms <= LEASE_MS + LATE_MS
                assert (again["$seq"], again["deliveries"]) == (seq, 2)
                assert again["lease_id"] != lease
                done = {"node": "other", "seqs": [seq], "lease_ids": [again["lease_id"]]}
                assert ask(line, "POST", f"{Q}/ack", done)[1]["acked"] == [seq]
            finally:
                worker.kill()
