"""A store whose log is archived, all that it held, and what a restore to any moment of it gives."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st

from tests.support.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.backup.verifying import read_manifest
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.host.wal.archive import ArchiveRules
from topics.host.wal.cutting import Goal, find_cuts
from topics.host.wal.logchain import chains_behind
from topics.store.inline import carry_out
from topics.store.restore import note_restore, rebuild
from topics.testing.simdisk import SimDisk

TINY = SegmentRules(records_max=5, bytes_max=1200)
TOPICS = ("a", "b", "c")
RESTORED_TS = 1_700_000_060_000


def archiving(seed=0, **options):
    scene = Scene(
        seed, limits=SMALL, segments=TINY, archive=options.pop("archive", ArchiveRules()), **options
    )
    scene.open()
    return scene


def backed_up(scene):
    """A backup of the store as it is, as a disk."""
    disk = SimDisk(7)
    with Backup(scene.opened.checkpointer) as backup:
        carry_out(scene.engine, backup.steps(), scene.drain)
        write_backup(backup.contents(), disk)
    return disk


def rebuilt(base, logs, **goal):
    """The restored store's disk, not opened yet."""
    manifest = read_manifest(base)
    chains = chains_behind(base, manifest, logs)
    target = SimDisk(8)
    rebuild(base, manifest, chains, find_cuts(chains, manifest, Goal(**goal)), target)
    found = read_state(target, read_format(target, "x"), same_boot=False).recovered
    note_restore(target, found, ts=RESTORED_TS, as_of=goal.get("until_ms") or manifest.ts)
    return target


def contents(scene):
    return {name: scene.read(name) for name in scene.engine.names()}


def heads(disk):
    state = read_state(disk, read_format(disk, "x"), same_boot=False).recovered
    assert not state.read_only
    return {topic.name: topic.head_seq for topic in state.catalog.topics.values()}


def steps():
    topic = st.sampled_from(TOPICS)
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), topic, st.integers(1, 7)),
            st.tuples(st.just("put"), topic, st.integers(1, 7)),
            st.tuples(st.just("delete"), topic, st.integers(1, 12)),
            st.tuples(st.just("drop"), topic, st.just(0)),
            st.tuples(st.just("checkpoint"), st.just(""), st.just(0)),
            st.tuples(st.just("reopen"), st.just(""), st.integers(1, 3)),
            st.tuples(st.just("backup"), st.just(""), st.just(0)),
        ),
        min_size=4,
        max_size=14,
    )


@attrs.define
class History:
    """What was done, and what the store held behind each step, by the time of it."""

    scene: Scene
    base: SimDisk | None = None
    seen: list = attrs.field(factory=list)
    serial: int = 0

    def take(self, verb, topic, amount):
        scene = self.scene
        scene.clock.advance(3)
        if verb == "put":
            datas = [b"%d" % (self.serial + i) for i in range(amount)]
            self.serial += amount
            scene.put(topic, *datas, tag=[b"x", b""] * (amount // 2) + [b"y"] * (amount % 2))
        elif verb == "delete" and topic in scene.engine.names():
            scene.delete(topic, before_seq=amount)
        elif verb == "drop" and topic in scene.engine.names():
            scene.drop(topic)
        elif verb == "checkpoint":
            scene.sync()
            scene.checkpoint()
        elif verb == "reopen":
            scene.shut_down()
            scene.options = attrs.evolve(scene.options, shards=amount)
            scene.open()
        elif verb == "backup" and self.base is None:
            self.base = backed_up(scene)
            self.seen.clear()
        self.seen.append((scene.clock.now_ms(), contents(scene), self.heads()))

    def heads(self):
        return {name: self.scene.state(name).head_seq for name in self.scene.engine.names()}
