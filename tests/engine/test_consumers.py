"""Durable consumers: they go forward by commits, anywhere by a put, and as the log says after every start."""

import pytest

from tests.engine.driving import Driver, config
from topics.engine import verify
from topics.engine.commands import (
    CommitConsumer,
    DeleteConsumer,
    DeleteRecords,
    DeleteTopic,
    PutConsumer,
    PutMode,
    PutTopic,
)
from topics.engine.consumers import consumer_state, consumer_states
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import CONSUMERS_PER_TOPIC_MAX


@pytest.fixture
def driver():
    driver = Driver()
    driver.put()
    driver.append(*range(10))
    return driver


def put(driver, name="c", **start):
    return driver.do(PutConsumer(topic="t", consumer=name, **start))


def commit(driver, seq, name="c", **more):
    return driver.do(CommitConsumer(topic="t", consumer=name, seq=seq, **more))


def at(driver, name="c"):
    return consumer_state(driver.engine.catalog, "t", name).from_seq


def refused(code, action, *args, **fields):
    with pytest.raises(Rejected) as told:
        action(*args, **fields)
    assert told.value.code is code
    return told.value


@pytest.mark.rule("H7.1")
@pytest.mark.parametrize(
    ("start", "seq"),
    [({}, 0), ({"from_seq": 0}, 0), ({"from_seq": 4}, 4), ({"from_seq": 10}, 10), ({"tail": True}, 10)],
)
def test_a_consumer_begins_where_it_is_told(driver, start, seq):
    answer = put(driver, **start)

    assert (answer.created, answer.from_seq, answer.lag) == (True, seq, 10 - seq)
    assert (answer.consumer, answer.topic, answer.epoch) == ("c", "t", 1)
    assert answer.updated_ts == driver.clock.now_ms()


def test_a_consumer_begins_at_a_time(driver):
    driver.clock.advance(1000)
    driver.append(10, 11)
    assert put(driver, from_ts=driver.clock.now_ms()).from_seq == 10
    assert put(driver, from_ts=driver.clock.now_ms() + 1).from_seq == 12


@pytest.mark.rule("H7.1")
def test_a_put_moves_either_way_and_without_a_start_not_at_all(driver):
    put(driver, from_seq=7)
    driver.clock.advance(1)
    for start, seq in (({"from_seq": 2}, 2), ({}, 2), ({"tail": True}, 10), ({}, 10)):
        answer = put(driver, **start)
        assert (answer.created, answer.from_seq) == (False, seq)


def test_a_put_of_where_it_stands_writes_nothing(driver):
    put(driver, from_seq=7)
    size = len(driver.wals[0])
    put(driver, from_seq=7)
    put(driver)

    assert len(driver.wals[0]) == size


@pytest.mark.rule("H7.3")
def test_a_commit_moves_forward_only(driver):
    put(driver)
    moved = [(commit(driver, seq).moved, at(driver)) for seq in (3, 3, 2, 10)]

    assert moved == [(True, 3), (False, 3), (False, 3), (True, 10)]


@pytest.mark.rule("H7.3")
def test_nobody_has_read_beyond_the_head(driver):
    put(driver, from_seq=5)
    assert refused(Code.INVALID_REQUEST, commit, driver, 11).detail["field"] == "seq"
    assert refused(Code.INVALID_REQUEST, put, driver, from_seq=11).detail["field"] == "from_seq"
    assert at(driver) == 5


def test_two_starts_are_refused_and_so_is_a_bad_name(driver):
    assert refused(Code.INVALID_REQUEST, put, driver, from_seq=1, tail=True).detail["field"] == "tail"
    assert refused(Code.INVALID_REQUEST, put, driver, name="$c").detail["field"] == "consumer"
    assert refused(Code.INVALID_REQUEST, put, driver, name="c" * 256).detail["field"] == "consumer"


def test_who_is_not_there_is_told_so(driver):
    refused(Code.CONSUMER_NOT_FOUND, commit, driver, 1)
    refused(Code.CONSUMER_NOT_FOUND, at, driver)
    with pytest.raises(Rejected, match="topic 'no' does not exist"):
        driver.do(PutConsumer(topic="no", consumer="c"))
    with pytest.raises(Rejected, match="topic 'no' does not exist"):
        consumer_states(driver.engine.catalog, "no")


@pytest.mark.rule("H7.4")
def test_a_consumer_is_deleted_once(driver):
    put(driver)
    answers = [driver.do(DeleteConsumer(topic="t", consumer="c")).deleted for _ in range(2)]

    assert answers == [True, False]
    refused(Code.CONSUMER_NOT_FOUND, at, driver)


@pytest.mark.rule("H7.7", "S3.31", "S4.19")
def test_a_consumer_dies_with_its_topic(driver):
    put(driver, from_seq=5)
    driver.do(DeleteTopic(topic="t"))
    driver.put()
    driver.append(*range(10))

    refused(Code.CONSUMER_NOT_FOUND, at, driver)
    put(driver)
    refused(Code.CONSUMER_NOT_FOUND, commit, driver, 1, epoch=1)
    assert refused(Code.INVALID_REQUEST, put, driver, from_seq=3, epoch=1).detail["field"] == "epoch"
    assert commit(driver, 1, epoch=2).moved


@pytest.mark.rule("H7.7")
def test_a_topic_has_a_bound_on_its_consumers(driver):
    names = [f"c{number:04}" for number in range(CONSUMERS_PER_TOPIC_MAX)]
    for name in names:
        put(driver, name)
    told = refused(Code.THROTTLED, put, driver, "one-more")
    assert told.detail == {"limit": "consumers", "max": CONSUMERS_PER_TOPIC_MAX}
    assert not put(driver, names[0]).created
    driver.do(DeleteConsumer(topic="t", consumer=names[0]))
    assert put(driver, "one-more").created

    listed = consumer_states(driver.engine.catalog, "t", names[1], 2)
    assert [state.consumer for state in listed] == names[2:4]
    assert len(consumer_states(driver.engine.catalog, "t")) == CONSUMERS_PER_TOPIC_MAX


@pytest.mark.rule("H7.7")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_positions_are_answered_in_the_class_of_the_topic_and_kept(durability):
    driver = Driver()
    driver.put(durability=durability)
    driver.append(*range(10))
    put(driver)
    waiting = driver.propose(CommitConsumer(topic="t", consumer="c", seq=6))
    driver.take()
    driver.write()
    assert waiting.done == (durability != "fsync")
    driver.run()
    assert waiting.result().moved
    put(driver, "gone")
    driver.do(DeleteConsumer(topic="t", consumer="gone"))
    before = verify.canonical(driver.engine.catalog)
    driver.restart(machine_restarted=False)

    assert verify.canonical(driver.engine.catalog) == before
    assert [(state.consumer, state.from_seq) for state in consumer_states(driver.engine.catalog, "t")] == [
        ("c", 6)
    ]


def test_of_an_ephemeral_topic_nothing_is_logged():
    driver = Driver()
    driver.put(durability="ephemeral")
    driver.append(*range(10))
    size = len(driver.wals[0])
    put(driver)
    assert commit(driver, 6).moved
    assert (len(driver.wals[0]), at(driver)) == (size, 6)


def test_consumers_end_where_a_topic_becomes_ephemeral_or_ceases_to_be(driver):
    """Their frames are in the log and those before it are not, or the other way round: a replay has to agree."""
    put(driver, from_seq=5)
    driver.do(DeleteRecords(topic="t", before_seq=11))
    for durability in ("ephemeral", "disk"):
        driver.do(PutTopic(topic="t", config=config(durability=durability), mode=PutMode.REPLACE))
        assert consumer_states(driver.engine.catalog, "t") == []
        put(driver)
    before = verify.canonical(driver.engine.catalog)
    driver.restart(machine_restarted=False)

    assert verify.canonical(driver.engine.catalog) == before


def test_commits_on_their_way_are_known_to_the_next_one(driver):
    """The log has ascending commits of a consumer, and who comes too late hears of what came before."""
    put(driver)
    size = len(driver.wals[0])
    asked = [driver.propose(CommitConsumer(topic="t", consumer="c", seq=seq)) for seq in (3, 8, 5, 8)]
    driver.run()

    assert [ticket.result().moved for ticket in asked] == [True, True, False, False]
    assert [ticket.result().from_seq for ticket in asked] == [8, 8, 8, 8]
    frame = len(driver.wals[0]) - size
    commit(driver, 9)
    assert frame == 2 * (len(driver.wals[0]) - size - frame)


@pytest.mark.rule("H5.2")
def test_a_commit_may_expect_where_the_consumer_stands(driver):
    """So that of two who have read the same page one commits it."""
    put(driver)
    both = [
        driver.propose(CommitConsumer(topic="t", consumer="c", seq=seq, expected=0)) for seq in (4, 6)
    ]  # fmt: skip
    driver.run()
    assert [ticket.result().moved for ticket in both] == [True, False]
    assert at(driver) == 4
    assert commit(driver, 6, expected=4).moved


def test_a_put_waits_for_what_is_on_its_way(driver):
    put(driver)
    going = driver.propose(CommitConsumer(topic="t", consumer="c", seq=8))
    more = driver.propose(driver.appending(10))
    moved = driver.propose(PutConsumer(topic="t", consumer="c", tail=True))
    behind = driver.propose(CommitConsumer(topic="t", consumer="c", seq=9))
    driver.run()

    assert [going.result().moved, more.result().last_seq, moved.result().from_seq] == [True, 11, 11]
    assert (behind.result().moved, at(driver)) == (False, 11)


@pytest.mark.rule("T3.27")
def test_a_commit_of_a_failed_shard_is_refused_and_the_consumer_stands_where_it_stood():
    driver = Driver()
    driver.put(durability="fsync")
    driver.append(*range(10))
    put(driver, from_seq=2)
    going = driver.propose(CommitConsumer(topic="t", consumer="c", seq=5))
    behind = driver.propose(CommitConsumer(topic="t", consumer="c", seq=5))
    driver.take()
    fatal = driver.fail()

    assert (going.error, behind.error) == (fatal, fatal)
    assert refused(Code.STORAGE_READ_ONLY, commit, driver, 6)
    assert refused(Code.STORAGE_READ_ONLY, put, driver, from_seq=6)
    assert at(driver) == 2
