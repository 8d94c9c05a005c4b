"""Damaged logs, frame by frame: what is judged damaged, what the view keeps, and what is believed of a broken head."""

from __future__ import annotations

import pytest

from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.codec.log.control import (
    Carried,
    CommitMark,
    ConfigUpdate,
    Delete,
    EvictWatermark,
    HeadWatermark,
    LossRange,
    TopicCreate,
    TopicDelete,
    WriteResult,
    encode_control,
)
from topics.codec.log.forwards import Forward, ForwardForm
from topics.codec.log.frame import Run, encode_run
from topics.codec.log.routers import RouterCreate
from topics.codec.log.walheader import HEADER_SIZE, WalHeader
from topics.engine.recovery.judge import LogState, examine_log_file, judge
from topics.engine.recovery.recover import recover
from topics.engine.verify import check_topic
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.log.regions import WalFileId

FILE = WalFileId(0, 0, 1)
FILE_ID = b"12345678"


def log_of(*chunks, zeros=500, generation=0, shard=0):
    header = WalHeader(generation=generation, shard=shard, first_frame=1, file_id=FILE_ID).encode()
    return header + b"".join(chunks) + bytes(zeros)


def create(topic_id, name, *, epoch=1, **config):
    payload = TopicCreate(name, epoch, TopicConfig(**config).echo(), 64)
    return encode_control(payload, topic_id=topic_id, ts=1000)


def record(topic_id, seq, data=b'"data"', ts=1000):
    columns = RecordColumns([data])
    return encode_run(topic_id, seq, ts, columns, durable=False, keyed=None, write_frames=1)[0]


def records(topic_id, first, last):
    return b"".join(record(topic_id, seq) for seq in range(first, last + 1))


def mark(offset, ts=1000):
    return encode_control(CommitMark(FILE_ID, 1, offset), topic_id=0, ts=ts)


def with_zeros_last(frame_at, count):
    """The first of the frames that differ in ts alone whose last `count` bytes are zero, and no more than these."""
    ts = 1
    while not frame_at(ts).endswith(bytes(count)) or frame_at(ts).endswith(bytes(count + 1)):
        ts += 1
    return frame_at(ts)


def broken(chunk, at=40):
    """The chunk with one bit turned over, behind the head unless `at` says otherwise."""
    return chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]


def control(payload, topic_id=1, ts=1000):
    return encode_control(payload, topic_id=topic_id, ts=ts)


def recovered(*logs):
    """Recovery of shards 0, 1, … of generation 0; what it gives satisfies every invariant."""
    files = [(WalFileId(0, shard, 1), log) for shard, log in enumerate(logs)]
    found = recover({file[:2]: judge([examine_log_file(file, log)], same_boot=True) for file, log in files})
    for topic in found.catalog.topics.values():
        check_topic(topic)
    return found


def told(found):
    return [(damage.topic, damage.first_seq, damage.last_seq) for damage in found.damages]


def lost(topic):
    return [(r.first, r.last, r.reason) for r in topic.index.lost]


def live(topic):
    return [seq for seq in range(1, topic.head_seq + 1) if topic.index.is_live(seq)]


def seqs_of(verdict):
    return [
        seq
        for item, _ in verdict.items()
        if isinstance(item, Run)
        for seq in range(item.seq_start, item.seq_stop)
    ]


# Frames that end in zeros.


@pytest.mark.rule("T4.8", "T4.9")
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_mark_whose_checksum_ends_in_zeros_still_covers_what_is_before_it(zeros):
    before = create(1, "t") + records(1, 1, 2)
    whole = before + records(1, 3, 3)
    last = with_zeros_last(lambda ts: mark(HEADER_SIZE + len(whole), ts), zeros)

    found = judge([examine_log_file(FILE, log_of(before, broken(record(1, 3)), last))], same_boot=False)
    assert LogState.CORRUPT is found.state
    assert [(HEADER_SIZE + len(before), (1, 3))] == [(d.offset, d.plausible) for d in found.damages]
    assert seqs_of(found) == [1, 2]


@pytest.mark.rule("T4.19")
@pytest.mark.parametrize("zeros", [1, 2])
def test_a_last_record_whose_checksum_ends_in_zeros_is_kept_past_damage(zeros):
    last = with_zeros_last(lambda ts: record(1, 3, ts=ts), zeros)
    log = log_of(create(1, "t"), record(1, 1), broken(record(1, 2)), last)

    for data in (log, log.rstrip(b"\0") + bytes(zeros)):  # zeros behind, and the file's end
        found = judge([examine_log_file(FILE, data)], same_boot=True)
        assert LogState.CORRUPT is found.state
        assert [damage.plausible for damage in found.damages] == [(1, 2)]
        assert seqs_of(found) == [1, 3]


def test_a_whole_log_whose_last_frame_ends_in_zeros_is_clean_and_one_cut_at_them_loses_nothing_but_them():
    last = with_zeros_last(lambda ts: record(1, 2, ts=ts), 2)
    log = log_of(create(1, "t"), record(1, 1), last)

    found = judge([examine_log_file(FILE, log)], same_boot=True)
    assert (LogState.CLEAN, 0, len(log) - 500) == (found.state, found.lost_bytes, found.tail.end)
    torn = judge([examine_log_file(FILE, log_of(create(1, "t"), record(1, 1), broken(last)))], same_boot=True)
    assert LogState.TORN is torn.state
    assert len(last) - 2 == torn.lost_bytes


@pytest.mark.rule("T4.17", "T4.19")
def test_a_torn_last_record_is_not_searched_for_the_frames_that_its_data_holds():
    inner = record(1, 2, b'"somebody"')
    last = record(1, 2, inner + bytes(2000))
    log = log_of(create(1, "t"), record(1, 1), last[:300], zeros=3000)

    found = judge([examine_log_file(FILE, log)], same_boot=True)
    assert LogState.TORN is found.state
    assert found.beyond == []


# What an intact frame says of damaged ones before it.


@pytest.mark.rule("T4.9", "T4.19")
def test_a_delete_up_to_a_damaged_record_says_that_the_record_was_there():
    log = log_of(
        create(1, "t"), records(1, 1, 2), broken(record(1, 3)), control(Delete(3, None, 3)), mark(800)
    )

    found = recovered(log)
    topic = found.catalog.find("t")
    assert topic.head_seq == 3
    assert lost(topic) == [(3, 3, "corrupt")]
    assert live(topic) == []
    assert ("t", 3, 3) in told(found)


@pytest.mark.rule("T4.9")
def test_a_delete_above_the_head_is_damage_even_where_every_frame_is_intact():
    found = recovered(log_of(create(1, "t"), records(1, 1, 2), control(Delete(None, b'"x"', 5))))

    assert told(found) == [("t", 3, 5)]
    assert lost(found.catalog.find("t")) == [(3, 5, "corrupt")]


def carried_at(head_seq, evict_floor=1):
    return control(ConfigUpdate(TopicConfig().echo(), Carried(head_seq, evict_floor, 0, {}, 1000)))


@pytest.mark.rule("T4.9", "T4.19")
def test_a_carried_head_says_that_the_topic_was_empty_whatever_a_damaged_delete_had_removed():
    gone = broken(control(Delete(4, None, 3)))
    log = log_of(create(1, "t"), records(1, 1, 3), gone, carried_at(3), records(1, 4, 4), mark(800))

    found = recovered(log)
    topic = found.catalog.find("t")
    assert (topic.head_seq, live(topic), lost(topic)) == (4, [4], [])
    assert found.read_only


def test_records_damaged_before_an_ephemeral_time_are_no_loss_of_the_time_after_it():
    log = log_of(
        create(1, "t"), records(1, 1, 2), broken(record(1, 3)), carried_at(9), record(1, 10), mark(800)
    )

    found = recovered(log)
    topic = found.catalog.find("t")
    assert (topic.head_seq, live(topic), lost(topic)) == (10, [10], [])


def test_a_carried_head_below_what_the_log_holds_is_damage():
    found = recovered(log_of(create(1, "t"), records(1, 1, 3), carried_at(2)))

    assert live(found.catalog.find("t")) == [1, 2, 3]
    assert found.read_only


def test_a_restart_that_has_nothing_left_to_take_is_passed_over():
    restarted = control(LossRange(1, 2, "restart"))
    found = recovered(log_of(create(1, "t", durability="ephemeral"), restarted, restarted))

    assert (found.catalog.find("t").head_seq, found.catalog.find("t").evict_floor) == (2, 3)


# Topics whose creation or deletion is damaged.


@pytest.mark.rule("T4.9")
def test_a_name_that_is_created_again_proves_that_its_deletion_is_damaged():
    gone = broken(control(TopicDelete()), 30)
    again = create(2, "t", epoch=2) + records(2, 1, 2)
    found = recovered(log_of(create(1, "t"), records(1, 1, 3), gone, again, records(1, 4, 4), mark(800)))

    topic = found.catalog.find("t")
    assert (topic.topic_id, topic.epoch, live(topic)) == (2, 2, [1, 2])
    assert list(found.catalog.topics) == [2]
    assert any("created again" in str(damage) for damage in found.damages)


@pytest.mark.rule("T3.9")
def test_a_topic_created_twice_is_damage_and_the_first_stays():
    found = recovered(log_of(create(1, "t"), records(1, 1, 2), create(1, "u")))

    assert found.read_only
    assert live(found.catalog.find("t")) == [1, 2]
    assert found.catalog.find("u") is None


@pytest.mark.rule("T3.9")
@pytest.mark.parametrize(
    "payload",
    [
        HeadWatermark(9),
        EvictWatermark(),
        Delete(2, None, 1),
        TopicDelete(),
        LossRange(1, 2, "restart"),
        ConfigUpdate({}),
        WriteResult(b"key", 1, 1, 0, [(0, 1)]),
    ],
)
def test_any_frame_of_a_topic_never_created_is_damage_and_told_once_a_topic(payload):
    found = recovered(log_of(create(1, "t"), control(payload, 7), control(payload, 7), mark(100)))

    assert ["topic id 7, whose creation" in str(damage) for damage in found.damages] == [True]
    assert (
        recovered(log_of(create(1, "t"), control(TopicDelete()), control(payload), mark(100))).damages == []
    )


@pytest.mark.rule("T3.9", "T4.9")
def test_the_records_of_a_topic_whose_creation_is_damaged_are_told_though_later_topics_are_there():
    found = recovered(log_of(broken(create(1, "t"), 60), records(1, 1, 2), create(2, "u"), mark(100)))

    assert any("topic id 1, whose creation" in str(damage) for damage in found.damages)
    assert found.catalog.find("t") is None


# What is believed of a broken head.


@pytest.mark.rule("T4.20")
def test_a_broken_head_is_believed_only_as_far_as_frames_fit_in_the_damaged_bytes():
    before, after = create(1, "t") + records(1, 1, 2), mark(800)
    near = recovered(log_of(before, broken(record(1, 3)), after))
    assert lost(near.catalog.find("t")) == [(3, 3, "corrupt")]

    far = recovered(log_of(before, broken(broken(record(1, 3)), 19), after))  # bit 40 of the seq, too
    assert (told(far), lost(far.catalog.find("t"))) == ([(None, None, None)], [])
    assert far.catalog.find("t").head_seq == 2

    third, fourth = (
        broken(broken(record(1, 3)), 20),
        broken(record(1, 4)),
    )  # seq 3 is beyond belief, and makes room for 4
    two = recovered(log_of(before, third, control(HeadWatermark(64)), fourth, after))
    assert (told(two), lost(two.catalog.find("t"))) == (
        [(None, None, None), ("t", 3, 4)],
        [(3, 4, "corrupt")],
    )


def test_what_a_router_has_dealt_with_was_there_though_nothing_else_says_so():
    """Else its seqs would be given to other records, which no router would ever look at."""
    router = control(RouterCreate(id=3, name="r", source_id=1, dest_id=2))
    beyond_belief = broken(broken(record(1, 3)), 19)
    forward = control(Forward(ForwardForm.COPIES, 3, 1, 1, 3, 1, 0), 2)
    before = create(1, "t") + create(2, "u") + router + records(1, 1, 2)
    found = recovered(log_of(before, beyond_belief, forward, mark(900)))

    assert lost(found.catalog.find("t")) == [(3, 3, "corrupt")]
    assert ("t", 3, 3) in told(found)
    assert found.catalog.find("u").inbound[3].cursor == 3


@pytest.mark.rule("T4.20")
def test_a_broken_head_that_claims_a_record_which_is_there_is_not_believed():
    fourth = broken(broken(record(1, 4)), 14)
    found = recovered(log_of(create(1, "t"), records(1, 1, 3), fourth, record(1, 5), mark(900)))

    assert fourth[14] == 5
    assert told(found) == [("t", 4, 4), (None, None, None)]


@pytest.mark.rule("T4.3", "T4.20")
def test_what_a_broken_head_claims_never_hides_an_intact_record_of_a_later_generation():
    old = examine_log_file(
        FILE, log_of(create(1, "t"), records(1, 1, 1), broken(record(1, 2), 14), mark(800))
    )
    header = WalHeader(generation=1, shard=0, first_frame=1, file_id=FILE_ID).encode()
    new = examine_log_file(WalFileId(1, 0, 1), header + records(1, 3, 4) + bytes(100))

    found = recover({(0, 0): judge([old], same_boot=True), (1, 0): judge([new], same_boot=True)})
    assert live(found.catalog.find("t")) == [1, 3, 4]
    assert lost(found.catalog.find("t")) == [(2, 2, "corrupt")]


# What a consumer has read.


@pytest.mark.parametrize(
    "commit", [ConsumerCommit(ConsumerChange.SET, "c", 4), ConsumerCommit(ConsumerChange.COMMIT, "c", 4)]
)
def test_what_a_consumer_has_read_was_there(commit):
    """A position beyond the head: the records up to it are missing, and are lost, not read again."""
    start = control(ConsumerCommit(ConsumerChange.SET, "c", 1))
    found = recovered(log_of(create(1, "t"), records(1, 1, 2), start, control(commit), records(1, 5, 5)))
    topic = found.catalog.find("t")

    assert told(found) == [("t", 3, 4)]
    assert "missing before an intact commit" in found.damages[0].why
    assert (lost(topic), live(topic)) == ([(3, 4, "corrupt")], [1, 2, 5])
    assert topic.consumers.get("c").seq == 4
