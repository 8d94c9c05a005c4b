"""Records that go to another topic: what they bring, what refuses them, and that none is lost or there twice."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from tests.engine.driving import T0, config
from tests.engine.moving.driving import Mover
from topics.codec.log.control import Control
from topics.codec.log.leases import DeadLettered, Moved
from topics.engine.commands import PutTopic
from topics.engine.verify import digest
from topics.host.checkpoint.steps import Blocking
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import MOVE_RETRY_MS, MOVES_INTO_TOPIC_MAX
from topics.store.moving import moving

CLASSES = ("ephemeral", "memory", "disk", "fsync")


def meta_of(record):
    return msgspec.json.decode(record.meta)


def begun(*datas, shards=1, **fields):
    """A mover with the topic "t" in it, and the one to which its dead letters go."""
    mover = Mover(shards=shards)
    mover.put("t", **fields)
    mover.put("dlq", **fields)
    if datas:
        mover.append(*datas)
    return mover


def events(mover):
    """The moves in the logs: (ts, what)."""
    items = [item for shard in range(len(mover.wals)) for item in mover.items(shard)]
    controls = [item for item in items if isinstance(item, Control)]
    return [(one.ts, one.payload) for one in controls if isinstance(one.payload, DeadLettered | Moved)]


@pytest.mark.rule("Q3.7")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("durability", CLASSES)
def test_a_record_goes_with_all_it_has_and_says_where_it_was(durability, shards):
    mover = begun(shards=shards)
    mover.drop()
    mover.put("u")
    mover.put("t", durability=durability)  # its epoch is not its id
    mover.append(1, 2, 3, tag=[b"red", b"", b""], key=[b"k", b"", b""], node=[b"n", b"", b""])
    mover.append(b"\x00", meta=b'{"a":"b"}', content_type=b"text/plain")

    assert mover.begin_moves("t", [1, 4], "dlq") == [1, 4]
    mover.move()

    assert mover.datas() == [b"2", b"3"]
    one, other = mover.read("dlq")[1]
    assert (one.data, one.tag, one.key, one.node) == (b"1", b"red", b"k", b"n")
    assert (other.data, other.content_type) == (b"\x00", b"text/plain")
    assert (mover.topic().topic_id, mover.topic().epoch) == (4, 2)
    assert [record.dedup_id for record in (one, other)] == [b"dl:4:2:1", b"dl:4:2:4"]
    assert meta_of(other) == {
        "a": "b",
        "$dead_letter_from": "t",
        "$dead_letter_src_seq": "4",
        "$dead_letter_deliveries": "0",
        "$dead_letter_reason": "gone wrong",
        "$dead_letter_ts": str(T0),
    }
    assert mover.engine.moves.blocked == 0


@pytest.mark.rule("Q3.6")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_each_half_is_later_than_the_one_before_and_replays_to_the_same(durability):
    mover = begun(1, 2, shards=3, durability=durability)
    mover.begin_moves("t", [2], "dlq")
    mover.move()

    (began, _), (ended, _) = events(mover)
    (arrived,) = [record.ts for record in mover.read("dlq")[1]]
    assert began < arrived < ended
    assert digest(mover.replay()) == digest(mover.engine.catalog)


@pytest.mark.rule("Q3.6", "S2.25")
def test_nothing_of_it_is_before_the_intent_is_synced():
    mover = begun(1, durability="disk")
    mover.begin_moves("t", [1], "dlq")
    mover.take()
    mover.write()
    mover.clock.advance(5)
    mover.engine.tick()

    assert not mover.engine.has_orders
    mover.sync()
    mover.engine.tick()
    assert mover.engine.has_orders


def test_what_is_on_its_way_is_not_sent_again():
    mover = begun(1, 2, 3)
    mover.put("other")
    assert mover.begin_moves("t", [1, 2, 2], "dlq") == [1, 2]
    assert mover.begin_moves("t", [2, 3, 9], "other") == [3]
    mover.run()
    assert mover.begin_moves("t", [1, 2, 3], "dlq") == []
    mover.move()

    assert (mover.datas("dlq"), mover.datas("other"), mover.datas()) == ([b"1", b"2"], [b"3"], [])


@pytest.mark.rule("Q3.9")
def test_a_full_topic_keeps_them_moving_until_it_has_room():
    mover = begun(*range(8))
    mover.put("dlq", cap_records=5, discard="reject")
    mover.append(90, 91, topic="dlq")
    mover.begin_moves("t", range(1, 9), "dlq")
    mover.move(ms=20)

    assert mover.datas("dlq") == [b"90", b"91", b"0", b"1", b"2"]  # as many as fit, though not all do
    assert mover.datas() == [b"3", b"4", b"5", b"6", b"7"]
    assert mover.engine.moves.blocked == 5
    mover.delete("dlq", before_seq=3)
    mover.move(ms=3 * MOVE_RETRY_MS)
    assert mover.datas("dlq") == [b"0", b"1", b"2", b"3", b"4"]
    mover.delete("dlq", before_seq=100)
    mover.move(ms=9 * MOVE_RETRY_MS)
    assert mover.datas("dlq") == [b"5", b"6", b"7"]
    assert mover.datas() == []
    assert mover.engine.moves.blocked == 0


def test_the_more_often_it_fails_the_longer_it_rests():
    mover = begun(1)
    mover.put("dlq", cap_records=1, discard="reject")
    mover.append(90, topic="dlq")
    mover.begin_moves("t", [1], "dlq")
    attempts = []
    for ms in range(20 * MOVE_RETRY_MS):
        before = mover.engine.state.moves["dlq"].failures
        mover.move(ms=1)
        if mover.engine.state.moves["dlq"].failures > before:
            attempts.append(ms)
    rests = [b - a for a, b in pairwise(attempts)]

    assert rests == [MOVE_RETRY_MS << n for n in range(len(rests))]
    assert len(rests) >= 3


@pytest.mark.rule("Q3.12")
def test_a_thousand_are_under_way_at_most():
    mover = begun(*range(700))
    mover.put("u")
    mover.append(*range(700), topic="u")
    everything = range(1, 701)

    assert len(mover.begin_moves("t", everything, "dlq")) == 700
    mover.run()
    begun_too = mover.begin_moves("u", everything, "dlq")
    assert begun_too == list(range(1, MOVES_INTO_TOPIC_MAX - 700 + 1))
    assert mover.begin_moves("u", everything, "dlq") == []
    mover.move(ms=9)
    assert mover.begin_moves("u", everything, "dlq") == list(range(len(begun_too) + 1, 701))
    mover.move(ms=9)
    assert len(mover.datas("dlq")) == 1400


@pytest.mark.parametrize("end", ["delete", "cap", "own ttl", "ttl"])
def test_a_move_ends_with_its_record(end):
    mover = begun(durability="disk")
    mover.append(1, ttl_ms=50 if end == "own ttl" else None)
    mover.append(2)
    mover.begin_moves("t", [1, 2], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    order = mover.engine.moves.take()
    if end == "delete":
        mover.delete(before_seq=2)
    elif end == "cap":
        mover.put("t", cap_records=1)
    elif end == "ttl":
        mover.put("t", ttl_ms=1)
        mover.clock.advance(50)
        mover.engine.tick()
    else:
        mover.clock.advance(60)
        mover.engine.tick()
    mover.run()
    gone = [1, 2] if end == "ttl" else [1]

    assert [seq for seq in (1, 2) if seq not in mover.topic().moving()] == gone
    assert digest(mover.replay()) == digest(mover.engine.catalog)
    mover.carry_out(order)
    mover.move(ms=9)
    assert mover.datas("dlq") == ([] if end == "ttl" else [b"2"])
    assert mover.datas() == []
    mover.move()
    assert not mover.engine.state.moves


@pytest.mark.rule("Q3.13")
def test_provenance_and_payload_may_be_above_every_limit():
    mover = begun(b'"' + b"x" * 5000 + b'"')
    mover.put("dlq", max_record_bytes=10)
    mover.begin_moves("t", [1], "dlq", b"r" * 1024)
    mover.move()

    (record,) = mover.read("dlq")[1]
    assert meta_of(record)["$dead_letter_reason"] == "r" * 1024
    assert mover.datas() == []


@pytest.mark.rule("Q4.14")
def test_a_redriven_record_keeps_the_provenance_it_came_with():
    mover = begun()
    mover.put("q", type="queue")
    mover.append(1, topic="q", meta=b'{"a":"b"}', priority=7)
    mover.begin_moves("q", [1], "t")
    mover.move()
    (letter,) = mover.read("t")[1]
    mover.begin_moves("t", [1], "q", b"redrive")
    mover.move()

    (job,) = mover.read("q")[1]
    assert (job.seq, job.data, meta_of(job)) == (2, b"1", meta_of(letter))
    assert (letter.priority, job.priority) == (7, 7)
    assert job.dedup_id == b"rd:%d:1:1" % mover.topic("t").topic_id
    assert mover.datas("t") == []
    assert mover.topic("q").jobs.dead_lettered == 1


@pytest.mark.rule("Q3.9")
@pytest.mark.parametrize("reason", [b"redrive", b"failed"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_move_makes_no_topic(reason, restarts):
    mover = begun(1)
    mover.begin_moves("t", [1], "q", reason)
    mover.move()
    if restarts:
        mover.restart(machine_restarted=False)
        mover.move()

    assert mover.topic("q") is None
    assert (mover.engine.moves.blocked, mover.datas()) == (1, [b"1"])
    mover.put("q", type="queue")
    mover.move(ms=9 * MOVE_RETRY_MS)
    assert mover.datas("q") == [b"1"]


def test_what_is_durable_does_not_go_where_nothing_is():
    mover = begun(1)
    mover.put("dlq", durability="ephemeral")
    mover.begin_moves("t", [1], "dlq")
    mover.move(ms=9)

    assert (mover.datas(), mover.datas("dlq")) == ([b"1"], [])
    assert mover.engine.moves.blocked == 1


@pytest.mark.rule("Q3.8")
def test_a_repeat_is_told_by_an_id_that_no_window_ends():
    mover = begun(1, 2, durability="disk")
    mover.put("dlq", dedup_window_ms=0, dedup_max_entries=0)
    mover.begin_moves("t", [1], "dlq")
    mover.move()
    again = mover.appending(1, topic="dlq", dedup_id=[b"dl:%d:1:1" % mover.topic().topic_id])
    mover.clock.advance(10_000_000)
    assert mover.do(again).duplicates == 1


@pytest.mark.rule("Q3.8", "T4.33")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("machine_restarted", [False, True])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("stop_before", ["order", "append", "end"])
def test_a_restart_finishes_it_wherever_it_was(stop_before, durability, machine_restarted, shards):
    mover = begun(1, 2, 3, shards=shards, durability=durability)
    mover.begin_moves("t", [1, 3], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    if stop_before != "order":
        mover.carry_out(mover.engine.moves.take(), stop_before=stop_before)
    mover.restart(machine_restarted=machine_restarted)

    assert sorted(mover.topic().moving()) == [1, 3]
    mover.engine.tick()
    assert mover.engine.has_orders is (stop_before != "end")  # what has arrived is not read again
    mover.move()
    assert (mover.datas(), mover.datas("dlq")) == ([b"2"], [b"1", b"3"])
    assert digest(mover.replay()) == digest(mover.engine.catalog)


@pytest.mark.rule("Q3.8", "T4.33")
@pytest.mark.parametrize("shards", [1, 3])
def test_of_what_had_arrived_only_in_part_the_rest_arrives_too(shards):
    mover = begun(1, 2, 3, shards=shards)
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    mover.carry_out(mover.engine.moves.take(), stop_before="end")
    mover.begin_moves("t", [3], "dlq")
    mover.run()
    mover.restart(machine_restarted=False)
    mover.move()

    assert (mover.datas(), mover.datas("dlq")) == ([b"2"], [b"1", b"3"])


@pytest.mark.rule("Q3.6")
def test_what_has_arrived_and_is_not_synced_stays_here_too():
    mover = begun(1, shards=3)
    mover.put("dlq")
    shard = mover.lanes()["dlq"].shard
    assert shard != mover.lanes()["t"].shard
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    order = mover.engine.moves.take()
    steps = moving(mover.engine, mover.read_extent, order)
    while isinstance(step := next(steps), Blocking):
        step.call()
    mover.propose(step.command, sync=True)
    mover.take(shard)
    mover.write(shard)
    assert mover.datas("dlq") == [b"1"]  # it is there, and a power cut would take it
    mover.engine.moves.failed(order, None)
    mover.clock.advance(2 * MOVE_RETRY_MS)
    mover.engine.tick()

    assert mover.engine.has_orders  # it is ordered again
    assert not mover.engine.state.shards[mover.lanes()["t"].shard].pending
    steps.close()
    mover.move(ms=2 * MOVE_RETRY_MS)
    assert (mover.datas(), mover.datas("dlq")) == ([], [b"1"])


@pytest.mark.rule("Q3.5")
def test_a_record_whose_bytes_are_gone_goes_without_them_and_says_so():
    mover = begun(1, 2)
    index = mover.topic().index
    mover.wals[0][index.offsets[0] + 45] ^= 1
    mover.begin_moves("t", [1, 2], "dlq")
    mover.move()

    letters = [(record.data, meta_of(record)["$dead_letter_reason"]) for record in mover.read("dlq")[1]]
    assert letters == [(b"null", "corrupt"), (b"2", "gone wrong")]
    assert mover.topic().head_seq == 2
    assert not mover.topic().moving()


def test_an_order_that_is_given_up_is_given_again():
    mover = begun(1)
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    mover.engine.moves.failed(mover.engine.moves.take(), None)
    mover.move(ms=2 * MOVE_RETRY_MS)

    assert mover.datas("dlq") == [b"1"]


def test_whoever_gives_up_an_order_that_has_ended_comes_too_late():
    mover = begun(1, 2)
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    first = mover.engine.moves.take()
    mover.carry_out(first)
    mover.begin_moves("t", [2], "dlq")
    for _ in range(3):  # the end of the first, then the next
        mover.run()
        mover.clock.advance(1)
        mover.engine.tick()
    second = mover.engine.moves.take()
    mover.engine.moves.failed(first, None)

    assert mover.engine.state.moves["dlq"].order is second
    mover.carry_out(second)
    mover.move()
    assert mover.datas("dlq") == [b"1", b"2"]


def test_the_source_may_be_deleted_or_changed_meanwhile():
    mover = begun(1, shards=3)
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    order = mover.engine.moves.take()
    mover.drop("t")
    mover.put("t")
    mover.append(7)
    mover.carry_out(order)
    mover.move()

    assert mover.datas() == [b"7"]
    assert not mover.engine.state.moves
    changing = mover.propose(PutTopic(topic="t", config=config(cap_records=9)))
    assert mover.begin_moves("t", [1], "dlq") == []  # it says so again when the change is over
    mover.run()
    assert changing.done


def test_while_an_end_cannot_be_logged_no_other_order_is_given():
    """Or the ids of what has arrived could be forgotten before it is known here."""
    mover = begun(1, shards=1)
    mover.put("u")
    mover.append(2, topic="u")
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    order = mover.engine.moves.take()
    mover.propose(PutTopic(topic="t", config=config(cap_records=9)))
    mover.begin_moves("u", [1], "dlq")
    state = mover.engine.state
    mover.engine.state.lanes_by_name["t"].barrier = barrier = object()
    mover.engine.moves._settle = lambda: None
    mover.engine.moves.appended(order)

    assert state.moves["dlq"].order is order
    assert barrier is not None


def test_there_is_no_room_for_an_intent():
    mover = begun(1)
    mover.engine.space(0, mover.engine.limits.wal_reserve + 10)
    with pytest.raises(Rejected) as caught:
        mover.begin_moves("t", [1], "dlq")
    assert caught.value.code is Code.DISK_LOW
    assert mover.engine.state.lanes_by_name["t"].reservations()["moving"] == 0


def test_an_end_may_use_the_reserve():
    mover = begun(1)
    mover.begin_moves("t", [1], "dlq")
    mover.run()
    mover.clock.advance(1)
    mover.engine.tick()
    order = mover.engine.moves.take()
    mover.carry_out(order, stop_before="end")
    mover.clock.advance(1)
    mover.engine.space(0, 1000)
    mover.engine.moves.appended(order)
    mover.run()
    assert mover.datas() == []
