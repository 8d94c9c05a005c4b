"""One flipped bit anywhere in a log: the store opens, or refuses in words, and serves nothing that was not written.

The log holds every type of frame the store writes today, in several files, generations apart. A flip that leaves the
store writable has taken nothing acknowledged.
"""

from __future__ import annotations

import json

import pytest

from tests.support.scene import SMALL, Scene
from topics.codec.log.control import TYPES, CheckpointMark, Control
from topics.codec.log.frame import Run
from topics.codec.log.schedules import Schedule
from topics.engine.commands import (
    Ack,
    Claim,
    DeleteRouter,
    DeleteSchedule,
    Extend,
    Nack,
    Pause,
    Purge,
    PutConsumer,
    PutRouter,
    PutSchedule,
)
from topics.engine.recovery.judge import examine_log_file
from topics.engine.verify import check_topic, digest
from topics.host.directory.layout import find_shards, find_wal_files, wal_path
from topics.kernel.errors import CannotOpen
from topics.store.inline import bring_over_alone


def written_everywhere(closed):
    """(scene, {(topic, epoch): {seq: data}} of everything ever written), on two shards with small files."""
    scene, written = Scene(7, shards=2, limits=SMALL), {}
    scene.open()

    def put(topic, count=1, **columns):
        epoch_data = [b'"%s-%d-%d"' % (topic.encode(), scene.clock.now_ms(), i) for i in range(count)]
        scene.clock.advance(1)
        reply = scene.put(topic, *epoch_data, **columns)
        ours = written.setdefault((topic, scene.state(topic).epoch), {})
        ours.update(zip(range(reply.first_seq, reply.last_seq + 1), epoch_data, strict=False))

    scene.create("a", durability="fsync")
    scene.create("b", durability="disk", ttl_ms=50)
    scene.create("c", durability="memory", cap_records=4)
    scene.create("d", durability="fsync")
    scene.create("q", type="queue", durability="fsync")
    for _ in range(4):
        put("a", 2, tag=[b"x", b"y"], node=[b"n", b""], key=[b"k", b""])
        put("b")
        put("c", 3)
        put("d", 2)
    put("a", 2, idempotency_key=b"once")
    put("a", 2, dedup_id=[b"p", b"q"])
    scene.put("a", b'"first"', b'"again"', dedup_id=[b"r", b"p"], idempotency_key=b"both")
    written["a", 1][scene.state("a").head_seq] = b'"first"'
    put("a", 1, ttl_ms=[5])
    scene.delete("a", before_seq=3)
    scene.delete("a", match="x")
    scene.clock.advance(60)
    scene.engine.tick()
    scene.drain()
    put("b", 2)
    scene.create("c", durability="memory", cap_records=3)
    scene.delete("d", before_seq=100)
    scene.create("d", durability="ephemeral")
    put("d", 3)
    scene.delete("d", before_seq=100)
    scene.create("d", durability="disk")
    put("d", 2)
    scene.drop("c")
    scene.create("c", durability="fsync")
    put("c", 2)
    scene.create("e", durability="ephemeral")
    put("q", 6, key=[b"k"] * 6, priority=[5] * 6)
    work_on_a_queue(scene)
    written["a", 1][scene.state("a").head_seq] = written["q", 1][4]  # it was moved there
    written["copies", 1] = {1: b'"routed"'}
    written["q", 1][7] = b'"routed"'
    scene.process_death().open()
    scene.create("e", durability="disk")
    put("e", 2)
    scene.disk.sync_data(scene.files()[-1])
    return scene.shut_down() if closed else scene.process_death(), written


def work_on_a_queue(scene):
    """Every event of its leases but the end of all by the restart, which comes behind. One is left on lease."""
    of_w = {"topic": "q", "node": b"w"}
    scene.run(Claim(**of_w, count_max=4))
    scene.run(Extend(**of_w, seqs=[1], lease_ms=50_000))
    scene.run(Nack(**of_w, seqs=[2], delay_ms=0, reason=b"no"))
    scene.run(Ack(**of_w, seqs=[3]))
    scene.run(PutSchedule(topic="q", schedule=Schedule(id=0, name="s", every_ms=86_400_000, data=b"1")))
    scene.run(DeleteSchedule(topic="q", schedule="s"))
    for router in ("r", "s"):
        scene.run(PutRouter(router=router, source="q", dest="copies"))
    scene.run(DeleteRouter(router="s"))
    scene.put("q", b'"routed"')
    bring_over_alone(scene.engine, scene.opened.reader.read, scene.opened.writers)
    scene.run(PutConsumer(topic="q", consumer="c", from_seq=2))
    for paused in (True, False):
        scene.run(Pause(topic="q", paused=paused))
    scene.begin_moves("q", [4], "a")
    scene.move()
    scene.run(Purge(topic="q"))


def log_files(scene):
    return [wal_path(file) for key in find_shards(scene.disk) for file in find_wal_files(scene.disk, *key)]


def check_opening(scene, written, facts, at):
    """Open twice; every record delivered is one that was written; a writable store has lost nothing."""
    before = scene.disk.snapshot()
    opened = scene.open()
    for topic in scene.engine.state.catalog.topics.values():
        check_topic(topic)
    first = digest(scene.engine.state.catalog)
    for topic in scene.engine.names():
        ours = written.get((topic, scene.state(topic).epoch), {})
        delivered = scene.read(topic)
        wrong = {seq: data for seq, data in delivered.items() if ours.get(seq) != data}
        assert not wrong, (at, topic, wrong)
    if not opened.read_only and facts is not None:
        assert facts == scene.facts(), at
    scene.process_death()
    scene.disk.restore(before)
    scene.open()
    assert first == digest(scene.engine.state.catalog), at
    scene.process_death()


def flips(scene, step, start=0):
    for path in log_files(scene):
        size = len(scene.disk.content(path))
        for at in range(start % step, size, step):
            yield path, at


def fuzz(*, closed, step, start=0, bits=(0,)):
    scene, written = written_everywhere(closed)
    undamaged = scene.disk.snapshot()
    scene.open()
    assert not scene.opened.read_only
    facts = scene.facts() if closed else None
    scene.process_death()
    scene.disk.restore(undamaged)
    for number, (path, at) in enumerate(list(flips(scene, step, start))):
        scene.disk.restore(undamaged)
        scene.flip(path, at, bits[number % len(bits)])
        check_opening(scene, written, facts, (path, at))


def test_the_log_holds_every_type_of_frame():
    scene, _ = written_everywhere(closed=True)
    kinds = set()
    for key in find_shards(scene.disk):
        for file in find_wal_files(scene.disk, *key):
            items = examine_log_file(file, scene.disk.content(wal_path(file))).items
            kinds |= {type(item.payload) if isinstance(item, Control) else Run for item in items}

    assert kinds == {Run, *TYPES} - {CheckpointMark}  # a log that no checkpoint has taken anything from
    assert len(log_files(scene)) >= 3


@pytest.mark.rule("T4.9", "T4.31")
@pytest.mark.parametrize("closed", [True, False])
def test_a_flipped_bit_anywhere_is_damage_or_takes_nothing_acknowledged(closed):
    fuzz(closed=closed, step=97, bits=(0, 7, 3))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("bit", [0, 5])
def test_a_flipped_bit_at_every_byte_is_damage_or_takes_nothing_acknowledged(closed, bit):
    fuzz(closed=closed, step=1, bits=(bit,))


@pytest.mark.rule("T1.3")
def test_a_flipped_bit_in_format_is_refused_in_words_or_takes_nothing():
    scene, _ = written_everywhere(closed=True)
    undamaged = scene.disk.snapshot()
    scene.open()
    facts = scene.facts()
    size = len(json.dumps(scene.disk.content("FORMAT").decode()))
    for at in range(size - 2):
        for bit in range(8):
            scene.disk.restore(undamaged)
            if at < len(scene.disk.content("FORMAT")):
                scene.flip("FORMAT", at, bit)
                try:
                    scene.open()
                except CannotOpen:
                    continue
                assert scene.opened.read_only or facts == scene.facts(), (at, bit)
