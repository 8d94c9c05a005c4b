"""Who reads a dest finds there what its source held when he came, or does not wait for what does not come."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engine.routers.driving import Routing
from topics.engine.commands import DeleteRouter, DeleteTopic, WaitForCopies
from topics.engine.tickets import Stage
from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import shard_of


def chained(*names, shards=3):
    """Routers from each topic into the next, each of them in another shard than the one before."""
    driver = Routing(shards=shards)
    before = -1
    for name in names:
        driver.put(name, durability="disk")
        while shards > 1 and shard_of(driver.topic(name).topic_id, shards) == before:
            driver.drop(name)  # another one has another id
            driver.put(name, durability="disk")
        before = shard_of(driver.topic(name).topic_id, shards)
    for source, dest in pairwise(names):
        driver.route(source, dest)
    return driver


def write_only(driver, topic, *datas):
    """A write is answered, and nothing else has happened: neither a sync nor a copy into another shard."""
    ticket = driver.propose(driver.appending(*datas, topic=topic))
    shard = shard_of(driver.topic(topic).topic_id, len(driver.wals))
    while not ticket.done:
        assert driver.step(shard)


def reading(driver, topic="b"):
    return driver.propose(WaitForCopies(topic=topic))


@pytest.mark.rule("S8.26")
def test_a_reader_of_a_dest_in_another_shard_is_answered_when_it_has_what_its_source_held():
    driver = chained("a", "b")
    write_only(driver, "a", 1, 2)
    assert driver.engine.routers.is_behind("b")
    first = reading(driver)
    write_only(driver, "a", 3)
    second = reading(driver)
    assert (first.stage, second.stage) == (Stage.WAITING, Stage.WAITING)
    while not first.done:
        driver.run()
        driver.carry_out(driver.engine.forwards.take())

    assert driver.datas("b")[:2] == [b"1", b"2"]
    driver.bring_over()
    assert second.done
    assert driver.datas("b") == [b"1", b"2", b"3"]
    assert not driver.engine.routers.is_behind("b")
    assert not driver.engine.state.readings


@pytest.mark.rule("S8.26")
def test_all_who_wait_cost_one_sync_and_one_order():
    driver = chained("a", "b")
    driver.run()
    shard = shard_of(driver.topic("a").topic_id, 3)
    write_only(driver, "a", 1)
    before = driver.syncs[shard]
    tickets = [reading(driver) for _ in range(50)]
    driver.run()
    orders = 0
    while (order := driver.engine.forwards.take()) is not None:
        driver.carry_out(order)
        driver.run()
        orders += 1

    assert all(ticket.done for ticket in tickets)
    assert (driver.syncs[shard] - before, orders) == (1, 1)


@pytest.mark.rule("S8.26")
def test_of_a_chain_each_topic_is_waited_for():
    driver = chained("a", "b", "c", "d")
    write_only(driver, "a", 1)
    ticket = reading(driver, "d")
    seen = []
    while not ticket.done:
        driver.run()
        seen.append([name for name in "abcd" if driver.topic(name).head_seq])
        order = driver.engine.forwards.take()
        if order is not None:
            driver.carry_out(order)

    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert driver.datas("d") == [b"1"]


@pytest.mark.rule("S8.26")
@pytest.mark.parametrize("shards", [1, 3])
def test_nobody_waits_where_nothing_is_missing(shards):
    driver = chained("a", "b", shards=shards)
    driver.append(1, topic="a")
    driver.bring_over()

    for name in ("a", "b", "no such topic"):
        assert not driver.engine.routers.is_behind(name)
    assert reading(driver, "a").done
    assert reading(driver, "b").done
    with pytest.raises(Rejected) as refused:
        reading(driver, "c")
    assert refused.value.code is Code.TOPIC_NOT_FOUND


@pytest.mark.rule("S8.26")
def test_a_reader_round_a_cycle_comes_to_an_end():
    driver = chained("a", "b")
    driver.route("b", "a", allow_cycle=True)
    write_only(driver, "a", 1)
    ticket = reading(driver, "b")
    driver.bring_over()

    assert ticket.done
    assert driver.datas("b")[0] == b"1"


@pytest.mark.rule("S8.26")
def test_nobody_waits_for_a_router_whose_dest_is_full():
    driver = chained("a", "b")
    driver.put("b", durability="disk", cap_records=1, discard="reject")
    write_only(driver, "a", 1, 2)
    ticket = reading(driver)
    driver.bring_over()

    assert driver.route_of("a>b").failures > 0
    assert ticket.done
    assert not driver.engine.routers.is_behind("b")
    assert driver.engine.routers.state("a>b").lag > 0


@pytest.mark.rule("S8.26")
@pytest.mark.parametrize("failing", ["a", "b"])
def test_nobody_waits_for_a_log_that_is_read_only(failing):
    driver = chained("a", "b")
    write_only(driver, "a", 1)
    ticket = reading(driver)
    shard = shard_of(driver.topic(failing).topic_id, 3)
    if failing == "b":
        driver.propose(driver.appending(9, topic="b"))
    driver.take(shard)
    driver.fail(shard)

    assert ticket.done
    assert not driver.engine.routers.is_behind("b")


@pytest.mark.rule("S8.26")
@pytest.mark.parametrize(
    "ending", [DeleteRouter(router="a>b"), DeleteTopic(topic="a"), DeleteTopic(topic="b")]
)
def test_nobody_waits_for_what_has_ended(ending):
    driver = chained("a", "b", "c")
    write_only(driver, "a", 1)
    tickets = [reading(driver, "b"), reading(driver, "c")]
    ended = driver.propose(ending)
    driver.run()

    assert ended.done
    assert tickets[0].done
    driver.bring_over()  # of a source that has gone "b" says what it had not brought over, to "c" as well
    assert all(ticket.done for ticket in tickets)


@pytest.mark.rule("S8.26")
def test_who_leaves_is_forgotten():
    driver = chained("a", "b")
    write_only(driver, "a", 1)
    tickets = [reading(driver) for _ in range(3)]
    for ticket in tickets:
        assert driver.engine.withdraw(ticket)

    assert not driver.engine.state.readings
    driver.bring_over()
    assert driver.datas("b") == [b"1"]
