"""Dead letters put back, and what a queue may name for them."""

from __future__ import annotations

import pytest

from tests.engine.driving import config
from tests.engine.moving.driving import Mover
from topics.engine.commands import Ack, Append, Claim, Extend, PutMode, PutTopic, Redrive
from topics.engine.verify import digest
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import MOVES_INTO_TOPIC_MAX, Limits


def begun(*datas, **fields):
    mover = Mover()
    mover.put("q", type="queue", **fields)
    mover.put("dead")
    if datas:
        mover.append(*datas, topic="dead")
    return mover


def redrive(mover, topic="dead", queue="q", **what):
    reply = mover.do(Redrive(topic=topic, queue=queue, **what))
    mover.move()
    return reply


def refused(mover, command):
    with pytest.raises(Rejected) as caught:
        mover.do(command)
    return caught.value


@pytest.mark.rule("Q4.14")
def test_any_record_of_a_topic_becomes_a_fresh_job():
    mover = begun(1, 2, 3)
    reply = redrive(mover)

    assert (reply.topic, reply.source, list(reply.seqs)) == ("q", "dead", [1, 2, 3])
    assert mover.datas("q") == [b"1", b"2", b"3"]
    assert mover.datas("dead") == []
    (job,) = mover.do(Claim(topic="q", node=b"w")).jobs
    assert (job.seq, job.deliveries) == (1, 1)
    assert digest(mover.replay()) == digest(mover.engine.catalog)


@pytest.mark.parametrize(
    ("what", "gone"),
    [
        ({"seqs": [3, 1, 9, 3]}, [3, 1]),
        ({"count_max": 2}, [1, 2]),
        ({"seqs": [4, 2, 1], "count_max": 2}, [4, 2]),
        ({"seqs": []}, []),
    ],
)
def test_some_may_be_named_or_counted(what, gone):
    mover = begun(1, 2, 3, 4)
    assert list(redrive(mover, **what).seqs) == gone
    assert mover.datas("q") == [b"%d" % seq for seq in sorted(gone)]


def test_no_more_than_there_is_room_for_at_a_time():
    mover = begun(*range(MOVES_INTO_TOPIC_MAX + 5))
    assert len(redrive(mover).seqs) == MOVES_INTO_TOPIC_MAX
    assert len(redrive(mover).seqs) == 5
    assert refused(mover, Redrive(topic="dead", queue="q", seqs=range(1, 1002))).code is Code.BATCH_TOO_LARGE


@pytest.mark.invariant("I-09")
@pytest.mark.parametrize("passed_ms", [0, 1000])
def test_a_job_that_was_delayed_moves_as_a_replay_says_whatever_time_has_made_of_it(passed_ms):
    mover = begun()
    mover.put("p", type="queue")
    records = RecordColumns([b"1"], delay_ms=[500])
    mover.do(Append(topic="p", records=records, create=False))
    mover.clock.advance(passed_ms)
    mover.do(Redrive(topic="p", queue="q"))

    assert mover.topic("p").moving()
    assert digest(mover.replay()) == digest(mover.engine.catalog)


def test_a_job_that_somebody_has_stays():
    mover = begun()
    mover.put("p", type="queue")
    mover.append(1, 2, 3, topic="p")
    claimed = [job.seq for job in mover.do(Claim(topic="p", node=b"w", count_max=1)).jobs]
    mover.append(4, topic="p", delay_ms=100_000)

    assert list(redrive(mover, "p").seqs) == [2, 3, 4]
    assert claimed == [1]
    assert mover.datas("p") == [b"1"]
    assert mover.state("p").queue.dead_lettered == 0  # they are none


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_job_whose_lease_is_being_extended_stays(durability):
    mover = begun()
    mover.put("p", type="queue", lease_ms=1000, durability=durability)
    mover.append(1, 2, topic="p")
    mover.do(Claim(topic="p", node=b"w", count_max=1))
    extending = mover.propose(Extend(topic="p", node=b"w", seqs=[1], lease_ms=60_000))
    mover.clock.advance(1100)
    asked = mover.propose(Redrive(topic="p", queue="q"))
    mover.move()

    assert list(extending.result().seqs) == [1]
    assert list(asked.result().seqs) == [2]
    assert list(mover.do(Ack(topic="p", node=b"w", seqs=[1])).seqs) == [1]


def test_what_is_refused_says_why():
    mover = begun(1)
    assert refused(mover, Redrive(topic="q", queue="q")).code is Code.INVALID_REQUEST
    assert refused(mover, Redrive(topic="nowhere", queue="q")).code is Code.TOPIC_NOT_FOUND
    assert refused(mover, Redrive(topic="dead", queue="nowhere")).code is Code.TOPIC_NOT_FOUND
    assert refused(mover, Redrive(topic="q", queue="dead")).code is Code.NOT_A_QUEUE
    mover.put("e", type="queue", durability="ephemeral")
    assert "would be lost" in refused(mover, Redrive(topic="dead", queue="e")).message


def test_it_waits_for_a_change_of_its_source():
    mover = begun(1)
    mover.propose(PutTopic(topic="dead", config=config(cap_records=9)))
    asked = mover.propose(Redrive(topic="dead", queue="q"))
    mover.move()
    assert list(asked.result().seqs) == [1]
    assert mover.datas("q") == [b"1"]


@pytest.mark.rule("Q1.4")
@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_missing_topic_for_dead_letters_is_made_with_the_queue(durability):
    mover = Mover()
    mover.put("q", type="queue", dead_letter="dead", durability=durability)

    assert mover.state("dead").config == config(durability=durability)
    assert mover.topic("dead").topic_id < mover.topic("q").topic_id
    mover.put("q", type="queue", dead_letter="other", durability=durability)
    assert mover.state("other").config == config(durability=durability)
    assert mover.state("q").config.dead_letter == "other"


def test_a_write_that_makes_a_queue_makes_it_too():
    mover = Mover()
    own = config(type="queue", dead_letter="dead")
    mover.do(Append(topic="q", records=RecordColumns([b"1"]), config=own))
    assert mover.state("dead").count == 0


def test_without_room_for_both_neither_is_made():
    mover = Mover(limits=Limits(topics=1))
    put = PutTopic(topic="q", config=config(type="queue", dead_letter="dead"))
    assert refused(mover, put).code is Code.THROTTLED
    assert mover.engine.names() == []


def test_a_log_names_what_it_likes():
    mover = Mover()
    mover.put("t", dead_letter="nowhere")
    mover.put("u", dead_letter="u")
    assert mover.engine.names() == ["t", "u"]


@pytest.mark.rule("Q1.4")
def test_what_takes_dead_letters_keeps_as_much_as_the_queue():
    mover = Mover()
    mover.put("dead", durability="ephemeral")
    put = PutTopic(topic="q", config=config(type="queue", dead_letter="dead"))
    assert refused(mover, put).detail["field"] == "config.dead_letter"
    mover.put("q", type="queue", dead_letter="dead", durability="ephemeral")
    put = PutTopic(topic="r", config=config(type="queue", dead_letter="r"))
    assert refused(mover, put).detail["field"] == "config.dead_letter"


@pytest.mark.rule("Q1.4")
def test_dead_letters_do_not_go_round():
    mover = Mover()
    mover.put("a", type="queue", dead_letter="end")
    mover.put("b", type="queue", dead_letter="a")
    mover.put("c", type="queue", dead_letter="b")
    error = refused(
        mover,
        PutTopic(
            topic="a",
            config=config(type="queue", dead_letter="c"),
            mode=PutMode.MERGE,
            given=frozenset(["dead_letter"]),
        ),
    )

    assert (error.code, error.detail["reason"]) == (Code.TOPIC_EXISTS_INCOMPATIBLE, "dead_letter_cycle")
    assert error.detail["cycle"] == ["a", "c", "b", "a"]
    assert "would form a cycle: a -> c -> b -> a; choose another topic" in error.message
    mover.put("x", dead_letter="c")  # a log has none
    mover.put("a", type="queue", dead_letter="x")
