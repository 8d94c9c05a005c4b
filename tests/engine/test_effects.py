"""What a driver is told behind a call: what ended, and what changed of which topic. And what is taken back before."""

from __future__ import annotations

import pytest

from tests.engine.driving import T0, Driver, config
from topics.codec.log.control import CheckpointMark
from topics.engine.commands import Checkpointed, DeleteRecords, DeleteTopic, PutTopic, Retire
from topics.engine.tickets import Stage
from topics.log.reads.waiting import FOR_READERS, News


@pytest.fixture
def driver():
    driver = Driver()
    driver.put(durability="disk")
    driver.engine.take_effects()
    return driver


def news(driver, act=lambda: None) -> News:
    """Of topic `t`, behind everything that `act` begins."""
    act()
    driver.run()
    return driver.engine.take_effects().news.get("t", News.NONE)


def test_each_change_is_told_by_its_kind(driver):
    assert news(driver, lambda: driver.append(1, 2)) == News.RECORDS
    assert news(driver, lambda: driver.engine.request_sync(0)) == News.DURABLE
    assert news(driver, lambda: driver.append(3, sync=True)) == News.RECORDS | News.DURABLE
    assert news(driver, lambda: driver.delete(before_seq=2)) == News.FLOORS
    assert news(driver, lambda: driver.put(durability="disk", cap_records=1)) & ~News.DURABLE == News.FLOORS
    assert news(driver, driver.drop) == News.GONE


def test_what_is_durable_by_another_class_or_lost_by_a_restart_is_told(driver):
    driver.append(1, sync=True)
    driver.delete(before_seq=2)
    driver.engine.take_effects()
    for durability, durable_seq in [("ephemeral", 0), ("disk", 1)]:
        assert news(driver, lambda to=durability: driver.put(durability=to)) == News.FLOORS | News.DURABLE
        assert driver.state().durable_seq == durable_seq

    driver.append(2)
    driver.restart(machine_restarted=True)
    told = driver.engine.take_effects().news
    assert driver.state().durable_seq > 2
    assert told == {"t": News.RECORDS | News.FLOORS | News.DURABLE}


def test_time_that_retires_records_is_news_of_the_floor_alone(driver):
    driver.put(durability="disk", ttl_ms=1000)
    driver.append(1, sync=True)
    driver.engine.take_effects()
    driver.clock.advance(2000)

    assert news(driver, driver.engine.tick) & ~News.DURABLE == News.FLOORS


@pytest.mark.parametrize("what", ["mark", "exact head", "another answer", "duplicates", "a sync"])
def test_a_frame_that_tells_a_reader_nothing_wakes_none(driver, what):
    driver.append(1, dedup_id=b"d", idempotency_key=b"k", sync=True)
    driver.engine.take_effects()
    topic = driver.engine.state.catalog.find("t")

    def act():
        match what:
            case "mark":
                mark = CheckpointMark(1, 1, 1, 1000, sealed=False)
                assert driver.do(Checkpointed(topic_id=topic.topic_id, mark=mark)).mark == mark
            case "exact head":
                before = len(driver.wals[0])
                driver.clock.advance(2000)
                driver.engine.tick()
                driver.run()
                assert len(driver.wals[0]) > before
            case "another answer":
                assert driver.append(1, idempotency_key=b"k").deduped
            case "duplicates":
                assert driver.append(1, dedup_id=b"d", idempotency_key=b"other").duplicates == 1
            case "a sync":
                driver.engine.request_sync(0)

    assert not news(driver, act) & FOR_READERS


def test_a_topic_that_goes_and_comes_again_at_once_is_told_as_both(driver):
    driver.append(1)
    driver.engine.take_effects()
    driver.propose(DeleteTopic(topic="t"))
    driver.propose(driver.appending(2))

    assert news(driver) & FOR_READERS == News.GONE | News.RECORDS


# Withdrawing.


def test_what_waits_behind_a_change_is_taken_back_and_never_happens(driver):
    driver.propose(driver.appending(1))
    change = driver.propose(PutTopic(topic="t", config=config(cap_records=5)))
    write, after = driver.propose(driver.appending(2)), driver.propose(driver.appending(3))

    assert driver.engine.withdraw(change)
    assert driver.engine.withdraw(write)
    driver.run()
    finished = driver.engine.take_effects().finished

    assert (change.stage, write.stage, after.done) == (Stage.WITHDRAWN, Stage.WITHDRAWN, True)
    assert change not in finished
    assert write not in finished
    assert driver.datas() == [b"1", b"3"]
    assert driver.state().config.cap_records == 0


def test_who_rides_another_is_taken_back_alone(driver):
    first = driver.propose(driver.appending(1, idempotency_key=b"k"))
    rider, other = (driver.propose(driver.appending(1, idempotency_key=b"k")) for _ in range(2))

    assert driver.engine.withdraw(rider)
    driver.run()
    finished = driver.engine.take_effects().finished

    assert [first in finished, rider in finished, other in finished] == [True, False, True]
    assert driver.datas() == [b"1"]


def test_what_is_in_frames_or_has_ended_goes_on(driver):
    write = driver.propose(driver.appending(1))
    making = driver.propose(driver.appending(1, topic="new"))
    assert making.stage is Stage.WAITING  # for its topic, which is being made

    assert [driver.engine.withdraw(ticket) for ticket in (write, making)] == [False, False]
    driver.run()
    assert [ticket.done for ticket in (write, making)] == [True, True]
    assert not driver.engine.withdraw(write)


def test_a_reader_who_left_asks_for_no_time_to_pass(driver):
    driver.put(durability="disk", ttl_ms=1000)
    driver.append(1)
    driver.propose(PutTopic(topic="t", config=config(ttl_ms=1000, cap_records=9)))
    retire = driver.propose(Retire(topic="t"))
    driver.clock.set(T0 + 60_000)

    assert driver.engine.withdraw(retire)
    before = len(driver.wals[0])
    driver.propose(DeleteRecords(topic="t", before_seq=1))
    driver.run()
    assert len(driver.wals[0]) > before
    assert retire.stage is Stage.WITHDRAWN
