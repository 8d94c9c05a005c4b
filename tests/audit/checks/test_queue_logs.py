"""Whatever happens to queues, their logs follow from themselves; and of a log with holes nothing is said too much."""

import contextlib
import random

import pytest

from tests.support.scene import SMALL, Scene
from topics.audit.checks.archived import archive_tasks
from topics.audit.checks.queue_logs import check_queues, read_items
from topics.audit.fsck import Options, fsck
from topics.audit.recovery import read, wal_tasks
from topics.audit.scan.walscan import scan_wal
from topics.codec.log.leases import (
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    Moved,
    Purged,
    Released,
    ReleasedAll,
)
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import Ack, Claim, Extend, Nack, Pause, Purge, Redrive, Release
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Rejected
from topics.testing.survival import Shape

CONFIGS = {
    "plain": {},
    "keys": {"max_in_flight_per_key": 1, "max_deliveries": 2, "dead_letter": "dlq", "retry_backoff": None},
    "durable leases": {
        "max_in_flight_per_key": 1, "max_deliveries": 3, "dead_letter": "dlq", "leases_durable": True,
    },
    "unsynced": {"durability": "disk", "max_in_flight_per_key": 2, "max_deliveries": 2, "dead_letter": "dlq"},
    "in memory": {"durability": "memory", "max_deliveries": 1, "dead_letter": "dlq"},
    "ephemeral": {"durability": "ephemeral", "max_in_flight_per_key": 1, "max_deliveries": 2, "dead_letter": "dlq"},
    "short": {"max_in_flight_per_key": 1, "ttl_ms": 2000, "cap_records": 30, "dead_letter": "dlq", "max_deliveries": 2},
}  # fmt: skip


class Life:
    """A store with a queue `q`, and whatever the seed wants to happen to it."""

    def __init__(self, seed, config, *, archive):
        self.rng = random.Random(seed)
        rules = ArchiveRules() if archive else None
        self.scene = Scene(seed, shards=3, limits=SMALL, segments=SegmentRules(records_max=20), archive=rules)
        self.config = {"type": "queue", "lease_ms": 1000, "durability": "fsync", **config}
        self.scene.open()
        self.scene.create("q", **self.config)
        self.held = []

    def go_on(self, steps):
        acts = [
            self.put, self.put, self.claim, self.claim, self.claim, self.ack, self.ack, self.nack, self.nack,
            self.extend, self.release, self.wait, self.wait, self.move, self.move,
        ]  # fmt: skip
        seldom = [
            self.checkpoint, self.redrive, self.die, self.lose_power, self.delete, self.purge, self.create_anew,
            self.configure, self.pause,
        ]  # fmt: skip
        for _ in range(steps):
            act = self.rng.choice(seldom if self.rng.random() < 0.08 else acts)
            with contextlib.suppress(Rejected):  # as of a queue that is being moved from
                act()

    def put(self):
        count = self.rng.randrange(1, 6)
        keys = [self.rng.choice([b"", b"a", b"b"]) for _ in range(count)]
        delays = [self.rng.choice([None, None, 700]) for _ in range(count)]
        self.scene.put("q", *range(count), key=keys, delay_ms=delays)

    def claim(self):
        node, count = self.rng.choice([b"w1", b"w2"]), self.rng.randrange(1, 5)
        jobs = self.scene.run(Claim(topic="q", node=node, count_max=count)).jobs
        self.held += [(node, job.seq, (job.nonce, job.counter)) for job in jobs]

    def _some(self):
        """Jobs of one worker, some of which it may have had once only."""
        node = self.rng.choice([b"w1", b"w2"])
        own = [one for one in self.held if one[0] == node]
        some = self.rng.sample(own, min(len(own), self.rng.randrange(1, 4)))
        return node, [seq for _, seq, _ in some]

    def ack(self):
        node, seqs = self._some()
        self.scene.run(Ack(topic="q", node=node, seqs=seqs))
        self.held = [one for one in self.held if one[:2] not in {(node, seq) for seq in seqs}]

    def nack(self):
        node, seqs = self._some()
        delay_ms = self.rng.choice([None, 0, 300])
        self.scene.run(Nack(topic="q", node=node, seqs=seqs, delay_ms=delay_ms, reason=b"no paper"))

    def extend(self):
        node, seqs = self._some()
        self.scene.run(Extend(topic="q", node=node, seqs=seqs, lease_ms=1500))

    def release(self):
        some = self.rng.sample(self.held, min(3, len(self.held)))
        if some:
            leases = [lease for _, _, lease in some]
            seqs, was_sent = [seq for _, seq, _ in some], self.rng.random() < 0.5
            self.scene.run(Release(topic="q", seqs=seqs, leases=leases, was_sent=was_sent))

    def wait(self):
        self.scene.clock.advance(self.rng.choice([1, 300, 1001]))
        self.scene.engine.tick()
        self.scene.drain()

    def move(self):
        self.scene.move()

    def checkpoint(self):
        self.scene.checkpoint()

    def redrive(self):
        self.scene.run(Redrive(topic="dlq", queue="q", count_max=3))

    def die(self):
        self.scene.process_death().open()

    def lose_power(self):
        self.scene.power_loss(self.rng.choice(list(Shape))).open()

    def delete(self):
        self.scene.delete("q", before_seq=max(self.scene.state("q").head_seq - 5, 1))

    def purge(self):
        self.scene.run(Purge(topic="q"))

    def create_anew(self):
        self.scene.drop("q")
        self.scene.create("q", **self.config)
        self.held.clear()

    def configure(self):
        self.scene.create("q", **{**self.config, "max_deliveries": self.rng.randrange(1, 4)})

    def pause(self):
        for paused in (True, False):
            self.scene.run(Pause(topic="q", paused=paused))


def rows_of(disk):
    return [row for task in [*archive_tasks(disk), *wal_tasks(disk)] if (row := scan_wal(disk, task))]


def wrong(disk):
    return list(check_queues(disk, read(disk, "here", same_boot=False), rows_of(disk)))


seeds = pytest.mark.parametrize(
    "seeds", [range(1, 2), pytest.param(range(2, 12), marks=pytest.mark.slow)], ids=["one", "more"]
)


@seeds
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "no archive"])
@pytest.mark.parametrize("config", CONFIGS)
def test_no_life_of_a_queue_makes_a_false_alarm(config, archive, seeds):
    told = set()
    for seed in seeds:
        life = Life(f"{config} {archive} {seed}", CONFIGS[config], archive=archive)
        for _ in range(6):
            life.go_on(40)
            assert wrong(life.scene.disk) == []
        told |= {type(at.item.payload) for at in read_items(life.scene.disk, rows_of(life.scene.disk))
                 if hasattr(at.item, "payload")}  # fmt: skip
        life.scene.shut_down()
        report = fsck(life.scene.disk, where="here", options=Options(settled=True))
        assert [one for one in report.errors if one.check.startswith("queue")] == []
    if config == "keys" and archive:
        assert told >= {Claimed, Acked, Released, Extended, DeadLettered, Moved, Purged, ReleasedAll}


@seeds
@pytest.mark.parametrize("config", CONFIGS)
def test_a_log_with_holes_blames_nobody(config, seeds):
    """Files of the archive are gone, also those behind the creation of the queue."""
    for seed in seeds:
        life = Life(f"holes of {config} {seed}", CONFIGS[config], archive=True)
        for _ in range(5):
            life.go_on(60)
            life.checkpoint()
        disk = life.scene.disk
        kept = [task.file for task in archive_tasks(disk)]
        for path in life.rng.sample(kept, len(kept) // 3):
            disk.unlink(path)
        assert wrong(disk) == []
