"""A queue struck at every disk call: no job is lost, none that was acked comes back, and no two leases of one are live.

What workers were told is held against the state by `simulation.queues.job_claims`, beside the oracle of all logs.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.sweep import PROCESS, Operation
from tests.support.scene import append, put_topic
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import Ack, Claim, Extend, Nack, Pause, Purge, Release

GATE_POINTS = 10  # of each operation
PARTS = 4
SMALL_SEGMENTS = SegmentRules(records_max=4, bytes_max=1200)
KEYS = [b"a", b"", b"a", b"b", b"", b"b", b"", b"a"]


class Worker:
    """It claims, and remembers what it was given."""

    def __init__(self, scene, node, topic="q"):
        self.scene, self.node, self.topic = scene, node, topic
        self.leases = {}

    def claiming(self, count, **fields):
        return Claim(topic=self.topic, node=self.node, count_max=count, **fields)

    def claim(self, count, *others, **fields):
        reply = self.scene.do(self.claiming(count, **fields), *others)[0]
        self.leases.update((job.seq, (job.nonce, job.counter)) for job in reply.jobs)
        return [job.seq for job in reply.jobs]

    def says(self, kind, seqs, **fields):
        """What it would say of jobs that it had, still has or never had."""
        seqs = [seq for seq in seqs if seq in self.leases]
        leases = [self.leases[seq] for seq in seqs]
        if kind is not Release:
            fields["node"] = self.node
        return kind(topic=self.topic, seqs=seqs, leases=leases, **fields)


def queue(durability, leases_durable):
    def setup(scene):
        config = {"lease_ms": 1000, "retry_backoff": {"base_ms": 20, "factor": 2, "max_ms": 100}}
        scene.do(put_topic("q", type="queue", durability=durability, leases_durable=leases_durable, **config))
        scene.do(put_topic("log", durability="disk"))
        scene.do(append("q", *range(8), key=KEYS, priority=[0, 5] * 4), append("log", 1))
        worker = Worker(scene, b"before")
        worker.claim(2)
        scene.do(worker.says(Nack, worker.leases, delay_ms=0, reason=b"not now"))
        worker.claim(1)

    return setup


def jobs(scene):
    """Leases that are settled in every way, and one that runs out."""
    one, other = Worker(scene, b"one"), Worker(scene, b"other")
    mine, theirs = one.claim(3), other.claim(2)
    scene.do(
        one.says(Ack, mine[:1]), one.says(Nack, mine[1:2], reason=b"no"), append("q", 100), append("log", 2)
    )
    scene.do(one.says(Extend, mine[2:], lease_ms=5000), other.says(Ack, theirs[:1]))
    scene.clock.advance(1500)
    scene.engine.tick()
    scene.write()
    scene.do(other.says(Ack, theirs[1:]))  # too late
    scene.do(one.says(Release, mine[2:]))
    again = other.claim(9)
    scene.do(other.says(Ack, again[::2]))
    return one, other


def jobs_and_a_pause(scene):
    scene.do(Pause(topic="q", paused=True))
    scene.do(append("q", 200, 201))
    scene.do(Pause(topic="q", paused=False))
    one, _ = jobs(scene)
    scene.do(append("q", 202, delay_ms=[50_000]), append("q", 203))
    scene.do(Purge(topic="q"))
    one.claim(1, append("q", 204), wait_ms=1000)


def jobs_and_checkpoints(scene):
    """Rows are in snapshots, jobs in segments; a restart amid it, and what it took is said again."""
    one, other = jobs(scene)
    scene.checkpoint()
    scene.do(append("q", *range(300, 306)))
    mine = one.claim(4)
    scene.do(one.says(Ack, mine[:2]), other.says(Ack, mine))
    scene.checkpoint()
    scene.end(PROCESS, 1)
    scene.open()
    scene.do(one.says(Ack, mine[2:]))
    other.claim(3)
    scene.carry(scene.opened.checkpointer.closing())


QUEUES = [("disk", False), ("disk", True), ("fsync", False), ("fsync", True), ("memory", False)]
ACTS = {
    "jobs": (jobs, {"shards": 2}),
    "jobs and a pause": (jobs_and_a_pause, {}),
    "jobs and checkpoints": (jobs_and_checkpoints, {"segments": SMALL_SEGMENTS, "shards": 2}),
}
OPERATIONS = {
    f"{name}, {durability}{', durable leases' if durable else ''}": (queue(durability, durable), act, options)
    for name, (act, options) in ACTS.items()
    for durability, durable in QUEUES
}


def operation(name):
    setup, act, options = OPERATIONS[name]
    return Operation(name, setup, act, **options)


def struck(found, points):
    for point in points:
        try:
            check(found.strike(*point))
        except AssertionError as error:
            error.add_note(f"{found.name}: call {point[0]} of {found.calls}, {point[1]}, end {point[2]}")
            raise


def check(scene):
    """Behind two recoveries: leases run out, a worker takes what is there, and then nothing is left."""
    scene.clock.advance(100_000)
    scene.engine.tick()
    scene.write()
    live = set(scene.read("q"))
    counts = scene.state("q").queue
    assert counts.ready + counts.in_flight + counts.delayed == len(live)
    assert not counts.in_flight
    if counts.paused:
        scene.do(Pause(topic="q", paused=False))
    last = Worker(scene, b"last")
    taken = last.claim(1000)
    assert sorted(taken) == sorted(live)
    if taken:
        scene.do(last.says(Ack, taken))
    assert scene.read("q") == {}
    assert last.claim(1) == []


@pytest.mark.rule(
    "S2.8", "Q1.6", "Q1.7", "Q2.3", "Q2.4", "Q2.5", "Q2.6", "Q2.7", "Q4.7", "Q4.15", "Q4.16", "Q5.2"
)
@pytest.mark.invariant("I-09", "I-10", "I-17")
@pytest.mark.parametrize("name", OPERATIONS)
def test_crash_points_of(name, record_property):
    found = operation(name)
    points = list(found.points())
    chosen = random.Random(name).sample(points, min(GATE_POINTS, len(points)))
    struck(found, chosen)

    record_property("crash points", len(chosen))
    print(f"{name}: {found.calls} disk calls, {len(chosen)} of {len(points)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_crash_point_of(name, part, record_property):
    found = operation(name)
    points = list(found.points())[part::PARTS]
    struck(found, points)

    record_property("crash points", len(points))
    print(f"{name}: {found.calls} disk calls, all {len(points)} crash points of part {part}")
