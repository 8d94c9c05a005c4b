"""The crash sweep: append, delete, topics, config, rotation and recovery itself, struck at every disk call."""

from __future__ import annotations

import random

import attrs
import pytest

from tests.crash.format_one import lower
from tests.crash.sweep import PROCESS, Operation
from tests.support.scene import append, deletion, put_topic
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import CommitConsumer, DeleteConsumer, DeleteTopic, PutConsumer
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.wal.archive import ArchiveRules
from topics.testing.below import Below
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

SMALL_SEGMENTS = SegmentRules(records_max=6, bytes_max=1500)
GATE_POINTS = 30  # of each operation
PARTS = 4  # of all points of an operation, of which the longest has six thousand
CLASSES = ("ephemeral", "memory", "disk", "fsync")


def topics(scene):
    for durability in CLASSES:
        scene.do(put_topic(durability, durability=durability))
        scene.do(append(durability, 1, 2, 3, tag=[b"red", b"", b"green"]))


def few(scene):
    scene.do(put_topic("disk", durability="disk"))
    scene.do(append("disk", 1, 2, 3))


def append_to(durability, count, *, sync=False):
    def act(scene):
        scene.do(append(durability, *range(count)), sync=sync)
        scene.do(append(durability, 100), append(durability, 101), append(durability, 102, 103))

    return act


def all_at_once(scene):
    """One batch of every class, multi-record writes, and a topic that is made by its first write."""
    scene.do(*(append(durability, 10, 11, 12) for durability in CLASSES), append("new", 1, 2))


def idempotent(scene):
    scene.do(append("disk", 20, 21, 22, idempotency_key=b"k1", dedup_id=[b"a", b"b", b"a"]))
    scene.do(
        append("disk", 30, 31, idempotency_key=b"k2", dedup_id=[b"b", b"c"]),
        append("disk", 30, 31, idempotency_key=b"k2", dedup_id=[b"b", b"c"]),
        append("fsync", 5, idempotency_key=b"k3"),
    )
    scene.do(append("disk", 20, 21, 22, idempotency_key=b"k1", dedup_id=[b"a", b"b", b"a"]))
    scene.do(append("disk", 40, dedup_id=[b"c"]))


def above_the_ceiling(scene):
    scene.do(append("disk", *range(60)))
    scene.do(append("disk", *range(100, 170)))


def deleting(scene):
    scene.do(
        deletion("fsync", before_seq=2), deletion("disk", match="red"), deletion("memory", before_seq=100)
    )
    scene.do(append("disk", 5), deletion("disk", before_seq=100), append("disk", 6))


def configuring(scene):
    scene.do(put_topic("disk", durability="fsync"), append("disk", 7))
    scene.do(put_topic("fsync", durability="memory", cap_records=2), append("fsync", 8, 9))


def remaking(scene):
    scene.do(DeleteTopic(topic="disk"), append("disk", 1, 2))
    scene.do(DeleteTopic(topic="fsync"), put_topic("fsync", durability="disk"), append("fsync", 3))


def consuming(scene):
    """Consumers of every class come, go forward, back and away, in batches with records; a round goes between."""
    scene.do(*(PutConsumer(topic=name, consumer="c") for name in CLASSES))
    scene.do(
        *(CommitConsumer(topic=name, consumer="c", seq=2) for name in CLASSES),
        append("disk", 4),
        CommitConsumer(topic="disk", consumer="c", seq=3),
        PutConsumer(topic="disk", consumer="tail", tail=True),
        CommitConsumer(topic="fsync", consumer="c", seq=1),
    )
    scene.checkpoint()
    scene.do(
        PutConsumer(topic="fsync", consumer="c", from_seq=1), DeleteConsumer(topic="disk", consumer="tail")
    )
    scene.do(CommitConsumer(topic="fsync", consumer="c", seq=3), DeleteTopic(topic="memory"))


def rotating(scene):
    for i in range(14):
        scene.do(append("disk", b'"' + b"%d" % i * 150 + b'"'), append("fsync", b'"' + b"y" * 90 + b'"'))


def resting(scene):
    scene.clock.advance(2000)
    scene.engine.tick()
    scene.do(append("ephemeral", 9))
    for writer in scene.opened.writers:
        writer.mark()


def checkpointing(scene):
    """Into a new segment, behind what is in one, over a seal, and with a record that is deleted already."""
    scene.do(
        append("disk", *range(9)),
        append("fsync", *range(4), tag=[b"red", b"", b"", b"blue"], ttl_ms=[0, 9, 0, 0]),
    )
    scene.do(deletion("fsync", match="blue"))
    scene.checkpoint()
    scene.do(append("disk", 50), deletion("disk", match="red"), append("new", 1))


def absorbed(scene):
    """Two snapshots, of which the older one goes with the next; segments and WAL files that wait to be removed."""
    topics(scene)
    scene.do(PutConsumer(topic="fsync", consumer="c", from_seq=1), PutConsumer(topic="disk", consumer="d"))
    for i in range(6):
        scene.do(append("disk", *range(6)), append("fsync", b'"' + b"z" * 300 + b'"'))
        if i in (2, 4):
            scene.checkpoint()
    scene.do(deletion("disk", before_seq=30), put_topic("fsync", durability="fsync", cap_records=2))


def absorbing(scene):
    """Everything that nobody needs any more goes: logs, a topic's segments, the oldest snapshot."""
    scene.do(DeleteTopic(topic="memory"), append("disk", 1, 2))
    scene.checkpoint()
    scene.do(append("fsync", 7))
    scene.checkpoint()


def ending(scene):
    """As a server ends: a snapshot, and nothing copied."""
    scene.do(append("disk", 1, 2), append("fsync", 7))
    scene.carry(scene.opened.checkpointer.closing())


def backing_up(scene):
    """Writes behind the cut, too; the backup goes to another machine."""
    scene.do(append("disk", 1, 2))
    with Backup(scene.opened.checkpointer) as backup:
        scene.carry(backup.steps())
        scene.do(append("fsync", 7), append("disk", 3))
        write_backup(backup.contents(), SimDisk(5))
        scene.checkpoint()


def snapshot_and_tail(scene):
    """A log that goes on behind a snapshot, with a torn end."""
    absorbed(scene)
    scene.do(CommitConsumer(topic="disk", consumer="d", seq=5), PutConsumer(topic="fsync", consumer="c"))
    scene.do(append("disk", *range(12)), append("fsync", 5), deletion("fsync", before_seq=3))
    scene.end(Shape.RANDOM_PAGES, 3)


def torn(how, seed):
    """Ends with a tail that is partly there, for recovery to cut."""

    def setup(scene):
        topics(scene)
        scene.do(append("disk", *range(30)), append("memory", *range(10)))
        scene.do(deletion("disk", match="red"))
        scene.end(how, seed)

    return setup


def half_dead(scene):
    """Sealed segments in which half has ended: by tag, by its own time, below the floor; some with labels."""
    topics(scene)
    scene.do(
        append(
            "fsync", *range(14), tag=[b"red", b"blue"] * 7, node=[b"n"] * 14, ttl_ms=[0, 0, 0, 9] * 3 + [0, 0]
        ),
        append("disk", *range(14), tag=[b"red", b"red", b"", b"red", b"red", b"red", b""] * 2),
        append("memory", *range(12)),
    )
    scene.checkpoint()


def flagging(scene):
    scene.clock.advance(50)
    scene.do(deletion("fsync", match="red"), deletion("disk", match="red"), deletion("memory", before_seq=12))


def shared_and_half_dead(scene):
    """As a backup leaves them: with a second name."""
    half_dead(scene)
    for directory in scene.disk.names("topics"):
        for name in scene.disk.names(f"topics/{directory}"):
            scene.disk.share(f"topics/{directory}/{name}")


def one_round(scene):
    scene.checkpoint()


def two_rounds(scene):
    """Behind them what is half dead may be rewritten."""
    flagging(scene)
    scene.checkpoint()
    scene.do(append("fsync", 77))
    scene.checkpoint()


def rewriting(scene):
    scene.reclaim()


def rewrite_broken_off(call, how):
    """Ends in the middle of a rewrite, for recovery to make good. The tenth call puts the data in its place."""

    def setup(scene):
        half_dead(scene)
        two_rounds(scene)
        scene.disk.crash_at(call, Landed.ALL)
        with pytest.raises(SimCrash):
            scene.reclaim()
        scene.end(how, call)

    return setup


def tiered(scene):
    """Sealed segments of which all but the newest go to the cold tier, some with labels and ends."""
    half_dead(scene)
    scene.do(append("fsync", *range(6)), append("disk", *range(6)))
    scene.checkpoint()


def cold(scene):
    tiered(scene)
    scene.relocate()


def relocating(scene):
    scene.relocate()


def nothing(scene):
    """What was begun is only finished."""


def in_the_background(scene):
    """All that is due between rounds: what is half dead comes back, is rewritten, and goes again."""
    for _ in range(2):
        while (steps := scene.opened.checkpointer.between()) is not None:
            scene.carry(steps)
        scene.do(append("fsync", 78))
        scene.checkpoint()


def round_and_relocation(scene):
    scene.checkpoint()
    scene.relocate()


def rounds_and_relocation(scene):
    round_and_relocation(scene)
    scene.do(append("disk", 79))
    round_and_relocation(scene)


def relocation_broken_off(how, call):
    """Ends in the middle of a move, for the next start to settle."""

    def setup(scene):
        tiered(scene)
        scene.disk.crash_at(call, Landed.ALL)
        with pytest.raises(SimCrash):
            scene.relocate()
        scene.end(how, call)

    return setup


def recovering_and_settling(scene):
    scene.open()
    scene.relocate()


def of_format_one(setup):
    """As an older version left it, so the next start raises it."""

    def lowered(scene):
        setup(scene)
        scene.end(PROCESS, 0)
        lower(scene.disk)

    return lowered


def emptying(scene):
    """Whole segments, and whole topics."""
    scene.do(deletion("fsync", before_seq=1000), deletion("disk", before_seq=8), DeleteTopic(topic="memory"))
    scene.checkpoint()


def recovering(scene):
    scene.open()


def another_shard_count(scene):
    scene.options = attrs.evolve(scene.options, shards=3)
    scene.open()


def in_folder(disk):
    """A cold tier on the same machine: it loses power with the rest, and its calls are struck like all others."""
    return LocalSegmentStore(Below(disk, "cold"), "cold")


TIERS = {"segments": SMALL_SEGMENTS, "cold": in_folder, "hot": HotRules(retain_segments=1)}

OPERATIONS = {
    **{f"append to {name}": (topics, append_to(name, 5), {}) for name in CLASSES},
    "append synced by wish": (topics, append_to("disk", 2, sync=True), {}),
    "append of all classes at once": (topics, all_at_once, {"shards": 2}),
    "append with keys and duplicates": (topics, idempotent, {}),
    "append above the ceiling": (few, above_the_ceiling, {}),
    "delete": (topics, deleting, {"shards": 3}),
    "config": (topics, configuring, {"shards": 2}),
    "topic delete and recreate": (topics, remaking, {"shards": 2}),
    "consumers": (topics, consuming, {"segments": SMALL_SEGMENTS, "shards": 2}),
    "rotation": (topics, rotating, {}),
    "rest and mark": (topics, resting, {}),
    "checkpoint": (topics, checkpointing, {"segments": SMALL_SEGMENTS, "shards": 2}),
    "checkpoint that removes": (absorbed, absorbing, {"segments": SMALL_SEGMENTS}),
    "checkpoint that archives to another disk": (
        absorbed,
        absorbing,
        {"segments": SMALL_SEGMENTS, "archive": ArchiveRules(), "mounts": ("wal",)},
    ),
    "snapshot at the end": (absorbed, ending, {"segments": SMALL_SEGMENTS, "shards": 2}),
    "backup": (absorbed, backing_up, {"segments": SMALL_SEGMENTS, "shards": 2}),
    "recovery from a snapshot": (
        snapshot_and_tail,
        recovering,
        {"unopened": True, "segments": SMALL_SEGMENTS},
    ),
    "delete flags": (half_dead, one_round, {"segments": SMALL_SEGMENTS, "prelude": flagging}),
    "delete flags of shared files": (
        shared_and_half_dead,
        one_round,
        {"segments": SMALL_SEGMENTS, "prelude": flagging},
    ),
    "rewrite": (half_dead, rewriting, {"segments": SMALL_SEGMENTS, "prelude": two_rounds, "shards": 2}),
    "drop": (half_dead, one_round, {"segments": SMALL_SEGMENTS, "prelude": emptying}),
    **{
        f"recovery of a rewrite at call {call} by {how if how == PROCESS else how.value}": (
            rewrite_broken_off(call, how),
            recovering,
            {"unopened": True, "segments": SMALL_SEGMENTS},
        )
        for call, how in ((9, Shape.EVERYTHING), (11, PROCESS), (12, Shape.RANDOM_PAGES))
    },
    "relocation": (tiered, relocating, {**TIERS, "prelude": nothing, "shards": 2}),
    "deletes of cold segments": (cold, round_and_relocation, {**TIERS, "prelude": flagging}),
    "return of half-dead cold segments": (cold, in_the_background, {**TIERS, "prelude": two_rounds}),
    "drop in both tiers": (cold, rounds_and_relocation, {**TIERS, "prelude": emptying}),
    **{
        f"settling of a relocation at call {call} by {how if how == PROCESS else how.value}": (
            relocation_broken_off(how, call),
            recovering_and_settling,
            {"unopened": True, **TIERS},
        )
        for call, how in ((9, PROCESS), (24, Shape.RANDOM_PAGES), (27, Shape.EVERYTHING), (29, PROCESS))
    },
    "raise of a format 1 store": (
        of_format_one(half_dead),
        recovering,
        {"unopened": True, "segments": SMALL_SEGMENTS, "shards": 2},
    ),
    "raise of a format 1 store with a cold tier": (
        of_format_one(cold),
        recovering,
        {"unopened": True, **TIERS},
    ),
    "recovery into another shard count": (
        snapshot_and_tail,
        another_shard_count,
        {"unopened": True, "segments": SMALL_SEGMENTS, "shards": 2},
    ),
    "recovery after power loss": (torn(Shape.RANDOM_PAGES, 3), recovering, {"unopened": True}),
    "recovery after torn sectors": (torn(Shape.TORN_SECTORS, 5), recovering, {"unopened": True, "shards": 2}),
    "recovery after process death": (torn("process", 0), recovering, {"unopened": True, "shards": 2}),
}


def operation(name):
    setup, act, options = OPERATIONS[name]
    return Operation(name, setup, act, **options)


def strike_all(found, points):
    for point in points:
        try:
            found.strike(*point)
        except AssertionError as error:
            error.add_note(
                f"{found.name}: crash at call {point[0]} of {found.calls}, {point[1]}, end {point[2]}"
            )
            raise


@pytest.mark.rule(
    "S2.1", "S2.5", "S2.6", "S2.7", "S2.10", "S2.11", "S2.12", "S2.13", "S2.15", "S2.17", "S2.20", "S7.14", "T4.2",
    "T4.3", "T4.12", "T4.23", "T4.7", "T4.25", "T4.31", "T5.14",
)  # fmt: skip
@pytest.mark.invariant("I-07", "I-08", "I-10", "I-17")
@pytest.mark.parametrize("name", OPERATIONS)
def test_crash_points_of(name, record_property):
    found = operation(name)
    points = list(found.points())
    chosen = random.Random(name).sample(points, min(GATE_POINTS, len(points)))
    strike_all(found, chosen)

    record_property("crash points", len(chosen))
    print(f"{name}: {found.calls} disk calls, {len(chosen)} of {len(points)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_crash_point_of(name, part, record_property):
    found = operation(name)
    points = list(found.points())[part::PARTS]
    strike_all(found, points)

    record_property("crash points", len(points))
    print(f"{name}: {found.calls} disk calls, all {len(points)} crash points of part {part}")
