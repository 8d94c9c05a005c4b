"""What recovery tells and keeps: damage by topic and seqs, cuts by bytes and seqs, and state by the same apply."""

from __future__ import annotations

import pytest

from tests.support.scene import Scene, append, put_topic
from topics.codec.log.control import Delete, HeadWatermark, TopicCreate, TopicDelete, encode_control
from topics.codec.log.frame import Run, encode_run
from topics.codec.log.walheader import WalHeader
from topics.engine.recovery.judge import examine_log_file, judge
from topics.engine.recovery.recover import recover
from topics.engine.verify import digest
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Rejected
from topics.log.regions import WalFileId
from topics.simulation.oracle import facts
from topics.testing.survival import Shape


def frame_of(scene, seq, path=None):
    """Offset of the record `seq` in the first file."""
    data = scene.disk.content(path or scene.files()[0])
    for item in examine_log_file(WalFileId(0, 0, 1), data).items:
        if isinstance(item, Run) and item.seq_start <= seq < item.seq_stop:
            return item.offset + sum(item.lengths[: seq - item.seq_start])
    raise AssertionError(seq)


def damaged(*seqs):
    """Topic `t` with seqs 1-6, these flipped, then the closing mark over all; and `u`, untouched."""
    scene = Scene()
    scene.open()
    scene.create("t", durability="fsync")
    scene.create("u", durability="fsync")
    for i in range(1, 7):
        scene.put("t", i)
    scene.put("u", 100)
    scene.opened.writers[0].mark()
    places = [frame_of(scene, seq) for seq in seqs]
    scene.process_death()
    for at in places:
        scene.flip(scene.files()[0], at + 42)
    return scene


@pytest.mark.rule("T4.9", "T4.20", "T4.22")
def test_a_flipped_byte_under_a_mark_is_reported_with_topic_and_seqs_and_the_store_opens_read_only():
    scene = damaged(3)
    before = scene.disk.content(scene.files()[0])

    opened = scene.open()
    assert opened.read_only
    first = opened.damages[0]
    assert (first.topic, first.first_seq, first.last_seq) == ("t", 3, 3)
    assert "topic 't' seqs 3-3" in str(first)
    assert before == scene.disk.content(scene.files()[0])
    for command in (append("u", 1), put_topic("new")):
        with pytest.raises(Rejected) as refused:
            scene.engine.propose(command)
        assert Code.STORAGE_READ_ONLY is refused.value.code


@pytest.mark.rule("T4.9", "S4.12", "S1.7", "S2.18")
def test_reads_of_a_damaged_store_serve_the_rest_with_a_corrupt_lost_range():
    scene = damaged(3)
    scene.open()

    assert scene.read("t") == {1: b"1", 2: b"2", 4: b"4", 5: b"5", 6: b"6"}
    assert scene.lost("t") == [(3, 3, "corrupt")]
    assert scene.state("t").evict_floor == 1
    plan, _ = scene.page("t", 2)
    assert (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason) == (3, 3, "corrupt")
    assert scene.read("u") == {1: b"100"}


@pytest.mark.rule("T4.20")
def test_several_damages_are_told_apart_and_a_claimed_seq_above_the_last_intact_one_is_lost_too():
    scene = damaged(2, 6)
    scene.open()

    assert scene.lost("t") == [(2, 2, "corrupt"), (6, 6, "corrupt")]
    assert scene.state("t").head_seq == 6
    told = {(d.topic, d.first_seq, d.last_seq) for d in scene.opened.damages}
    assert {("t", 2, 2), ("t", 6, 6)} <= told


@pytest.mark.rule("T4.20")
def test_damage_whose_head_is_not_plausible_is_unknown_until_a_gap_names_it():
    scene = damaged()
    at = frame_of(scene, 6)
    for i in range(8, 30):
        scene.flip(scene.files()[0], at + i, 3)

    scene.open()
    assert scene.opened.read_only
    assert any(damage.topic is None and "unknown" in str(damage) for damage in scene.opened.damages)
    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3", 4: b"4", 5: b"5"}


@pytest.mark.rule("T4.12", "T4.13")
def test_a_torn_tail_is_cut_and_told_with_bytes_topics_and_highest_seqs():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.create("u", durability="disk")
    scene.put("t", 1)
    scene.put("t", 2)
    scene.put("u", 1)
    scene.put("t", 3)
    at = frame_of(scene, 2)
    end = examine_log_file(WalFileId(0, 0, 1), scene.disk.content(scene.files()[0])).end
    scene.power_loss(Shape.EVERYTHING)
    scene.flip(scene.files()[0], at + 42)

    opened = scene.open()
    assert not opened.read_only
    (cut,) = opened.cuts
    assert (at, end - at, {"t": 3, "u": 1}) == (cut.offset, cut.bytes, dict(cut.seqs))
    assert "'t' up to seq 3" in str(cut)
    assert scene.read("t") == {1: b"1"}
    assert Scene(disk=scene.power_loss().disk).open().cuts == []


@pytest.mark.rule("T4.12")
def test_a_cut_tail_is_zero_again_and_synced():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", b'"' + b"x" * 3000 + b'"')
    at = frame_of(scene, 1)
    scene.power_loss(Shape.EVERYTHING)
    path = scene.files()[0]
    scene.flip(path, at + 42)
    scene.open()

    seen = examine_log_file(WalFileId(0, 0, 1), scene.disk.synced_bytes(path))
    assert seen.clean
    assert at < seen.end < at + 1000  # behind it only the LossRange
    assert scene.disk.is_durable(path, 0, len(scene.disk.content(path)))
    assert scene.lost("t") == [(1, 64, "crash")]


# By hand: logs that no writer makes.


def by_hand(*chunks):
    header = WalHeader(generation=0, shard=0, first_frame=1, file_id=b"12345678").encode()
    return header + b"".join(chunks) + bytes(500)


def create(topic_id, name, epoch=1, ceiling=64):
    payload = TopicCreate(name, epoch, TopicConfig().echo(), ceiling)
    return encode_control(payload, topic_id=topic_id, ts=1000)


def records(topic_id, seq, count):
    data = RecordColumns([b"%d" % i for i in range(seq, seq + count)])
    return encode_run(topic_id, seq, 1000, data, durable=False, keyed=None, write_frames=count)[0]


def recovered(*logs, same_boot=False):
    """Recovery of shards 0, 1, … of generation 0."""
    verdicts = {}
    for shard, data in enumerate(logs):
        file = WalFileId(0, shard, 1)
        header = WalHeader(generation=0, shard=shard, first_frame=1, file_id=b"12345678").encode()
        verdicts[0, shard] = judge(
            [examine_log_file(file, header + data[len(header) :])], same_boot=same_boot
        )
    return recover(verdicts)


@pytest.mark.rule("T3.9")
def test_a_frame_of_a_deleted_topic_is_skipped_and_one_never_created_is_corruption():
    gone = encode_control(TopicDelete(), topic_id=1, ts=1000)
    kept = recovered(by_hand(create(1, "t"), gone, records(1, 5, 2)))
    assert not kept.damages
    assert kept.catalog.topics == {}

    never = recovered(by_hand(create(1, "t"), records(7, 1, 1)))
    assert never.read_only
    assert "whose creation is not in the log" in str(never.damages[0])


@pytest.mark.rule("T3.9", "T4.3")
def test_the_frames_of_another_shard_are_skipped_once_shard_0_says_the_topic_is_deleted():
    gone = encode_control(TopicDelete(), topic_id=1, ts=1000)

    kept = recovered(by_hand(create(1, "t"), gone), by_hand(records(1, 1, 3)))
    assert not kept.damages
    assert kept.catalog.topics == {}
    assert kept.catalog.epochs == {"t": 1}
    assert kept.catalog.next_topic_id == 2


def test_a_seq_that_comes_again_and_one_that_is_missing_are_damage():
    again = recovered(by_hand(create(1, "t"), records(1, 1, 3), records(1, 2, 1)))
    assert (again.damages[0].topic, again.damages[0].first_seq, again.damages[0].last_seq) == ("t", 2, 3)

    missing = recovered(by_hand(create(1, "t"), records(1, 1, 1), records(1, 4, 1)))
    assert (
        missing.damages[0].topic,
        missing.damages[0].first_seq,
        missing.damages[0].last_seq,
    ) == ("t", 2, 3)
    assert [tuple(r[:3]) for r in missing.catalog.find("t").index.lost] == [(2, 3, "corrupt")]


def test_the_last_ceiling_in_the_log_wins():
    raised = encode_control(HeadWatermark(500), topic_id=1, ts=1000)
    exact = encode_control(HeadWatermark(2), topic_id=1, ts=1001)

    kept = recovered(by_hand(create(1, "t"), raised, records(1, 1, 2), exact))
    assert kept.catalog.find("t").ceiling == 2


@pytest.mark.rule("S2.7", "T4.31")
@pytest.mark.invariant("I-10")
def test_recovery_twice_gives_one_digest():
    delete = encode_control(Delete(3, None, 5), topic_id=1, ts=1000)
    log = by_hand(create(1, "t"), records(1, 1, 5), delete, create(2, "u"))

    assert digest(recovered(log).catalog) == digest(recovered(log).catalog)
    assert digest(recovered(log).catalog) != digest(recovered(by_hand(create(1, "t"))).catalog)


@pytest.mark.rule("S3.14")
@pytest.mark.invariant("I-09")
@pytest.mark.parametrize("before", ["ephemeral", "disk"])
def test_a_topic_that_was_ephemeral_for_a_while_replays_to_what_it_is(before):
    scene = Scene()
    scene.open()
    config = {"ttl_ms": 50_000, "cap_records": 4}
    scene.create("t", durability=before, **config)
    scene.put("t", 1, idempotency_key=b"k0", dedup_id=[b"x"])
    scene.delete("t", before_seq=10)
    scene.create("t", durability="ephemeral", **config)
    scene.clock.advance(100)
    scene.put(
        "t", *range(6), idempotency_key=b"k", dedup_id=[b"a", b"b", b"c", b"d", b"e", b"f"], tag=[b"red"] * 6
    )
    scene.clock.advance(60_000)
    scene.engine.tick()
    scene.drain()
    scene.put("t", 7, tag=[b"red"])
    scene.delete("t", match="red")
    scene.clock.advance(10)
    scene.create("t", durability="disk", **config)

    assert facts(scene.peek().catalog) == scene.facts()
    scene.put("t", 8, idempotency_key=b"k")
    assert facts(scene.peek().catalog) == scene.facts()
    assert scene.read("t") == {9: b"8"}
