"""What a router has on its way is there before it is another one, or ends, whichever logs they lie in."""

from __future__ import annotations

import pytest

from tests.engine.routers.driving import Routing
from tests.engine.routers.test_following import same_after_replay
from topics.engine.commands import DeleteRouter, DeleteTopic, PutRouter
from topics.host.checkpoint.steps import Propose
from topics.kernel.errors import Rejected
from topics.kernel.ids import shard_of
from topics.log.reads.match import parse_match
from topics.store.forwarding import forwarding

SHARDS = 3


def apart(**fields):
    """A router from "a" into "b", each in a shard of its own, and neither in that of definitions."""
    driver = Routing(shards=SHARDS)
    driver.put("a", durability="disk")
    driver.route(**fields)
    assert {shard_of(driver.topic(name).topic_id, SHARDS) for name in "ab"} == {1, 2}
    return driver


def ordered(driver):
    """The next order, its records read: what is to be proposed."""
    steps = forwarding(driver.engine, driver.read_extent, driver.engine.forwards.take())
    step = next(steps)
    while not isinstance(step, Propose):
        step.call()
        step = next(steps)
    return steps, step.command


def changing(match, name="a>b"):
    return PutRouter(router=name, source="a", dest="b", filter=parse_match(match, tag_bytes_max=256))


def keep_what_is_synced(driver):
    """The machine stops."""
    for shard, wal in enumerate(driver.wals):
        del wal[driver.synced_to[shard] :]
    driver.restart(machine_restarted=True)


@pytest.mark.rule("S8.1")
@pytest.mark.parametrize("ending", [DeleteRouter(router="a>b"), DeleteTopic(topic="a")])
def test_nothing_comes_behind_the_answer_that_a_router_has_ended(ending):
    driver = apart()
    source, dest = (shard_of(driver.topic(name).topic_id, SHARDS) for name in "ab")
    driver.append(1, 2, 3, topic="a", sync=True)
    _, command = ordered(driver)
    driver.propose(command)
    ended = driver.propose(ending)
    while any([driver.step(0), driver.step(source)]):
        pass

    assert not ended.done
    while not ended.done:
        assert any([driver.step(0), driver.step(source), driver.step(dest)])
    assert driver.state("b").head_seq == 3
    driver.run()
    assert driver.state("b").head_seq == 3
    same_after_replay(driver)


@pytest.mark.rule("S8.1")
def test_an_order_that_is_proposed_while_its_router_ends_comes_to_nothing():
    driver = apart()
    driver.append(1, topic="a", sync=True)
    steps, command = ordered(driver)
    ended = driver.propose(DeleteRouter(router="a>b"))
    brought = driver.propose(command)
    driver.run()

    assert ended.done
    assert brought.done
    assert driver.state("b").head_seq == 0
    with pytest.raises(StopIteration):
        steps.send(brought)


@pytest.mark.rule("S8.1", "S8.23")
def test_no_crash_lets_a_changed_router_decide_anew_what_it_had_decided_as_it_was():
    driver = Routing(shards=SHARDS)
    driver.put("a", durability="disk")
    shard = shard_of(driver.topic("a").topic_id, SHARDS)
    driver.put("x")
    while shard_of(driver.engine.state.next_topic_id, SHARDS) != shard:
        driver.put(f"x{driver.engine.state.next_topic_id}")
    driver.route(match="red")
    assert shard_of(driver.topic("b").topic_id, SHARDS) == shard != 0  # where definitions lie
    driver.append(1, 2, topic="a", tag=[b"blue", b"red"])
    driver.append(3, topic="a", tag=b"blue", sync=True)
    assert driver.route_of("a>b").cursor < driver.route_of("a>b").sent
    put = driver.propose(changing("blue"))
    while not put.done:
        assert any([driver.step(0), driver.step(shard)])
    keep_what_is_synced(driver)
    driver.append(4, topic="a", tag=b"blue")
    driver.bring_over()

    assert driver.datas("b") == [b"2", b"4"]
    same_after_replay(driver)


@pytest.mark.rule("S8.23")
@pytest.mark.parametrize("first", ["order", "change"])
def test_what_a_late_router_has_not_come_to_is_decided_by_what_it_is_then(first):
    driver = apart(match="red")
    driver.append(1, 2, 3, topic="a", tag=[b"red", b"blue", b"red"], sync=True)
    steps, command = ordered(driver)
    if first == "order":  # it is under way before anybody asks for another filter
        driver.propose(command)
    put = driver.propose(changing("blue"))
    brought = driver.propose(command)
    driver.run()
    assert put.done
    assert brought.done
    with pytest.raises(StopIteration):
        steps.send(brought)
    driver.append(4, 5, topic="a", tag=[b"red", b"blue"], sync=True)
    driver.bring_over()

    assert driver.datas("b") == ([b"1", b"3", b"5"] if first == "order" else [b"2", b"5"])
    same_after_replay(driver)


def test_a_dest_whose_shard_fails_holds_up_neither_its_router_nor_its_source():
    driver = apart()
    dest = shard_of(driver.topic("b").topic_id, SHARDS)
    driver.append(1, topic="a", sync=True)
    _, command = ordered(driver)
    driver.propose(command)
    change, end = driver.propose(changing("red")), driver.propose(DeleteRouter(router="a>b"))
    driver.take(dest)
    driver.fail(dest)
    driver.run()

    assert change.result().router.cursor == 0
    assert end.result().deleted
    driver.append(2, topic="a")
    assert driver.state("a").head_seq == 2
    with pytest.raises(Rejected, match="read-only"):
        driver.append(2, topic="b")


def test_a_router_may_begin_behind_what_a_crash_takes():
    driver = Routing(shards=SHARDS)
    driver.put("a", durability="disk")
    assert driver.engine.state.lanes_by_name["a"].shard != 0
    driver.append(1, topic="a", sync=True)
    driver.append(2, 3, topic="a")
    driver.route()
    keep_what_is_synced(driver)  # I-21 holds at once, too
    driver.append(4, topic="a", sync=True)
    driver.bring_over()

    assert [one.reason for one in driver.topic("a").index.lost] == ["crash"]
    assert driver.datas("b") == [b"4"]
    same_after_replay(driver)
