"""A router that could not go along catches up: nothing is there twice, nothing is lost without a word."""

from __future__ import annotations

import pytest

from tests.engine.driving import PLENTY, T0, config, records
from tests.engine.routers.driving import Routing
from tests.engine.routers.test_following import forwards, routing, same_after_replay
from topics.codec.log.control import Control
from topics.codec.log.scan import scan
from topics.engine import verify
from topics.engine.commands import Append, DeleteRecords, DeleteTopic, PutRouter, PutTopic
from topics.host.checkpoint.steps import Propose
from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import shard_of
from topics.kernel.limits import (
    FORWARD_BYTES_MAX,
    MOVE_RETRY_MAX_MS,
    MOVE_RETRY_MS,
    PENDING_BYTES_MAX,
    TIME_AHEAD_MAX_MS,
    Limits,
)
from topics.store.forwarding import forwarding


def lost_in(driver, name="b"):
    return [(one.first, one.last, one.reason) for one in driver.topic(name).index.lost]


def crowded():
    """A hundred routers from "a", and room for a record of it, but not for its copies."""
    driver = Routing()
    driver.put("a", durability="disk")
    for number in range(100):
        driver.route("a", f"d{number}")
    driver.engine.space(0, driver.engine.limits.wal_reserve + 1000)
    return driver


def full(driver):
    """Fill "b", of a cap of 4, and leave a record of "a" behind."""
    driver.append(1, 2, 3, topic="a")
    driver.append(4, 5, topic="a")
    driver.bring_over()
    assert driver.datas("b") == [b"1", b"2", b"3", b"4"]


@pytest.mark.rule("S8.18")
def test_a_dest_that_is_full_holds_its_router_up_and_nobody_else():
    driver = routing(of_dest={"cap_records": 4, "discard": "reject"})
    driver.route("a", "c")
    full(driver)

    assert driver.datas("c") == [b"1", b"2", b"3", b"4", b"5"]
    assert driver.inbound("a>b") == (4, 4)
    assert driver.engine.routers.state("a>b").lag == 1
    driver.delete("b", before_seq=3)
    driver.wait(2 * MOVE_RETRY_MS)
    assert driver.datas("b") == [b"3", b"4", b"5"]
    assert driver.inbound("a>b") == (5, 5)
    assert driver.engine.routers.state("a>b").lag == 0
    driver.append(6, topic="a")
    assert driver.datas("b") == [b"3", b"4", b"5", b"6"]
    assert not driver.engine.has_orders
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
@pytest.mark.parametrize("wait", [False, True])
def test_what_a_copy_says_of_itself_counts_against_the_cap_of_a_dest_that_rejects(wait):
    driver = routing(of_dest={"cap_bytes": 120, "discard": "reject"}, guarantee="exactly_once")
    for _ in range(8):
        driver.append(b"0123456789", topic="a")
        if wait:
            driver.wait(30_000)

    dest = driver.topic("b")
    assert (dest.evict_floor, dest.index.live_count) == (1, 3)
    driver.delete("b", before_seq=4)
    driver.wait(30_000)
    assert (dest.evict_floor, dest.index.live_count) == (1, 3)
    same_after_replay(driver)


def test_as_many_go_as_there_is_room_for():
    driver = routing(of_dest={"cap_records": 4, "discard": "reject"})
    driver.append(1, topic="a")
    driver.append(*range(2, 8), topic="a")
    driver.bring_over(ms=2000)

    assert driver.datas("b") == [b"1", b"2", b"3", b"4"]
    assert driver.inbound("a>b") == (4, 4)
    driver.delete("b", before_seq=5)
    driver.bring_over(ms=2000)
    assert driver.datas("b") == [b"5", b"6", b"7"]
    same_after_replay(driver)


@pytest.mark.rule("S8.19", "S4.13")
def test_what_dies_before_its_turn_takes_no_seq_and_what_is_evicted_takes_one():
    driver = routing(
        of_dest={"cap_records": 2, "discard": "reject"}, of_source={"cap_records": 6, "discard": "old"}
    )
    driver.append(1, 2, topic="a")
    driver.append(3, 4, 5, 6, topic="a", tag=[b"", b"red", b"", b""])
    driver.bring_over()
    driver.delete("a", match="red")
    driver.delete("b", before_seq=3)
    driver.clock.advance(1)
    driver.append(*range(7, 12), topic="a")  # evicts up to 5
    evicted = driver.topic("a").evict_floor - 1
    driver.bring_over(ms=3000)

    assert evicted > 3
    assert lost_in(driver) == [(3, evicted, "source_trim")]
    assert driver.datas("b")[0] == b"%d" % (evicted + 1)
    plan, _ = driver.read("b", from_seq=2)
    assert (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason) == (3, evicted, "source_trim")
    same_after_replay(driver)


@pytest.mark.rule("S8.3")
def test_a_copy_that_comes_late_has_the_ts_of_its_record_or_of_the_one_before_it():
    driver = routing(of_dest={"cap_records": 2, "discard": "reject"})
    driver.append(1, 2, topic="a", ttl_ms=60_000)
    driver.clock.advance(10)
    driver.append(3, topic="a", ttl_ms=60_000)
    driver.clock.advance(10)
    driver.append(4, topic="a", ttl_ms=60_000)
    driver.bring_over()
    driver.delete("b", before_seq=3)
    driver.wait(5 * MOVE_RETRY_MS)
    copies = driver.read("b")[1]

    assert [(copy.data, copy.ts, copy.expires_at) for copy in copies] == [
        (b"3", T0 + 10, T0 + 60_010), (b"4", T0 + 20, T0 + 60_020),
    ]  # fmt: skip
    driver.append(5, topic="a", ttl_ms=60_000)
    driver.clock.advance(10)
    driver.delete("b", before_seq=4)
    driver.append(b'"own"', topic="b")
    driver.delete("b", before_seq=5)
    driver.wait(30_000)
    (own, copy) = driver.read("b")[1]
    assert (copy.data, copy.ts, copy.expires_at) == (b"5", own.ts, T0 + 20 + 5 * MOVE_RETRY_MS + 60_000)
    same_after_replay(driver)


@pytest.mark.rule("S8.12")
@pytest.mark.parametrize("shards", [2, 3])
def test_into_another_shard_goes_what_is_durable(shards):
    driver = Routing(shards=shards)
    driver.put("a", durability="disk")
    for number in range(6):
        driver.route("a", f"d{number}", match="red")
    source = shard_of(driver.topic("a").topic_id, shards)
    others = [n for n in range(6) if shard_of(driver.topic(f"d{n}").topic_id, shards) != source]
    assert others
    driver.propose(driver.appending(1, 2, 3, topic="a", tag=[b"red", b"", b"red"]))
    while driver.step(source):
        if driver.engine.state.lanes_by_name["a"].durable_seq < 3:
            assert not driver.engine.has_orders
    driver.bring_over()

    for number in range(6):
        assert driver.datas(f"d{number}") == [b"1", b"3"]
        assert driver.inbound(f"a>d{number}") == (3, 2)
    same_after_replay(driver)


@pytest.mark.rule("S8.22")
def test_a_change_of_a_router_does_not_take_for_copied_what_another_shard_has_not_written():
    driver = Routing(shards=3)
    driver.put("a", durability="disk")
    driver.route()
    source, dest = (shard_of(driver.topic(name).topic_id, 3) for name in "ab")
    assert len({source, dest, 0}) == 3
    driver.append(1, 2, 3, topic="a", sync=True)

    steps = forwarding(driver.engine, driver.read_extent, driver.engine.forwards.take())
    step = next(steps)
    while not isinstance(step, Propose):
        step.call()
        step = next(steps)
    driver.propose(step.command)  # on its way, and not written when the machine stops
    put = driver.propose(PutRouter(router="a>b", source="a", dest="b", guarantee="exactly_once"))
    while any([driver.step(0), driver.step(source)]):
        pass
    assert not put.done
    driver.restart(machine_restarted=True)
    driver.bring_over()

    assert driver.datas("b") == [b"1", b"2", b"3"]
    same_after_replay(driver)


def test_a_changed_router_into_another_shard_goes_on_behind_what_it_has_passed_over():
    driver = Routing(shards=3)
    driver.put("a", durability="disk")
    driver.put("x")
    while shard_of(driver.engine.state.next_topic_id, 3) != shard_of(driver.topic("a").topic_id, 3):
        driver.put(f"x{driver.engine.state.next_topic_id}")
    driver.route(match="red")
    assert driver.engine.state.lanes_by_name["b"].shard != 0
    driver.append(1, 2, topic="a", tag=[b"blue", b"red"])
    driver.append(3, 4, topic="a", tag=b"blue")
    assert driver.route_of("a>b").cursor < driver.route_of("a>b").sent
    driver.route(match="blue")
    driver.append(5, topic="a", tag=b"blue")
    driver.bring_over()

    assert driver.datas("b") == [b"2", b"5"]
    driver.restart(machine_restarted=False)
    driver.bring_over()
    assert driver.datas("b") == [b"2", b"5"]
    same_after_replay(driver)


def test_what_is_left_out_of_an_order_is_deleted_damaged_or_filtered():
    driver = routing(of_dest={"cap_records": 2, "discard": "reject"}, match=["tag", "Glob", "r*"])
    driver.append(1, 2, topic="a", tag=b"red")
    driver.append(3, 4, 5, 6, 7, topic="a", tag=[b"red", b"blue", b"ruby", b"rose", b"red"])
    driver.bring_over()
    driver.delete("b", before_seq=3)
    driver.clock.advance(10 * MOVE_RETRY_MS)
    driver.engine.tick()
    order = driver.engine.forwards.take()
    assert list(order.seqs) == [3]  # as there was no room for more
    driver.carry_out(order)
    order = driver.engine.forwards.take()
    assert list(order.seqs) == [5, 6]
    driver.carry_out(order, meanwhile=lambda: driver.delete("a", match="ruby"))
    driver.bring_over(ms=1000)

    assert driver.datas("b") == [b"3", b"6"]
    assert [list(one.seqs()) for one in forwards(driver)] == [[1, 2], [3], [6]]
    same_after_replay(driver)


def test_what_is_evicted_after_it_was_ordered_is_lost_in_dest_all_the_same():
    """The order named records that lived. Nobody may take them for deleted when they are read."""
    driver = routing(
        of_dest={"cap_records": 2, "discard": "reject"}, of_source={"cap_records": 6, "discard": "old"}
    )
    driver.append(1, 2, topic="a")
    driver.append(3, 4, 5, 6, topic="a")
    driver.delete("b", before_seq=3)
    driver.append(*range(7, 12), topic="a")  # evicts up to 5
    driver.bring_over(ms=3000)

    assert driver.topic("a").evict_floor == 6
    assert lost_in(driver) == [(3, 5, "source_trim")]
    assert driver.datas("b") == [b"6", b"7"]
    same_after_replay(driver)


def test_a_record_that_is_damaged_is_lost_in_dest():
    driver = routing(of_dest={"cap_records": 4, "discard": "reject"})
    driver.append(1, 2, topic="a")
    driver.append(*range(3, 6), topic="a")
    driver.run()
    index = driver.topic("a").index
    at = index.offsets[index.position(4)] + index.lengths[index.position(4)] - 9
    driver.wals[0][at] ^= 1
    driver.delete("b", before_seq=3)
    driver.wait(5 * MOVE_RETRY_MS)

    assert driver.datas("b") == [b"3", b"5"]
    assert lost_in(driver) == [(4, 4, "source_trim")]
    driver.wals[0][at] ^= 1
    same_after_replay(driver)


@pytest.mark.rule("S8.19")
@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_longer_than_dest_takes_is_lost_there_and_holds_up_nothing(shards):
    driver = routing(shards=shards, of_dest={"max_record_bytes": 10}, guarantee="exactly_once")
    fits, too_long = b'"12345678"', b'"123456789"'
    driver.append(too_long, too_long, fits, topic="a", sync=True)
    driver.append(1, too_long, topic="a", sync=True)
    driver.append(2, topic="a", sync=True)
    driver.bring_over(ms=5)

    assert driver.datas("b") == [fits, b"1", b"2"]
    assert lost_in(driver) == [(1, 2, "source_trim"), (5, 5, "source_trim")]
    assert driver.inbound("a>b") == (6, 3)
    assert driver.engine.routers.state("a>b").lag == 0
    driver.append(3, topic="a", sync=True)
    driver.bring_over(ms=5)
    assert driver.seqs("b") == [3, 4, 6, 7]
    same_after_replay(driver)


@pytest.mark.rule("S8.19", "S8.22")
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_what_a_router_adds_makes_no_copy_too_long_for_the_next_dest(guarantee):
    driver = routing(of_dest={"max_record_bytes": 17}, guarantee="exactly_once")
    driver.put("c", max_record_bytes=17)
    driver.route("b", "c", guarantee=guarantee)
    driver.append(b'"123456"', topic="a", meta=b'{"m":"1"}')  # 17 bytes
    driver.append(b'"1234567"', topic="a", meta=b'{"m":"1"}')
    driver.append(b'"12345678901234567"', topic="a")
    driver.append(b'"123456789012345"', topic="a")  # 17 again
    driver.bring_over()

    assert driver.datas("b") == driver.datas("c") == [b'"123456"', b'"123456789012345"']
    same_after_replay(driver)


def test_a_barrier_of_dest_makes_it_late_for_a_moment():
    driver = routing()
    driver.append(1, topic="a")
    driver.propose(Append(topic="b", records=records(b'"own"')))
    driver.propose(PutTopic(topic="b", config=config(cap_records=100)))
    driver.propose(Append(topic="a", records=records(2)))
    driver.propose(Append(topic="a", records=records(3)))
    driver.bring_over()

    assert driver.datas("b") == [b"1", b'"own"', b"2", b"3"]
    driver.append(4, topic="a")
    assert driver.datas("b") == [b"1", b'"own"', b"2", b"3", b"4"]
    same_after_replay(driver)


def test_too_much_at_once_is_brought_over_later():
    driver = Routing()
    driver.put("a")
    for number in range(10):
        driver.route("a", f"d{number}")
    size = FORWARD_BYTES_MAX // 10
    driver.propose(Append(topic="a", records=records(*[b"%0*d" % (size // 4, n) for n in range(4)])))
    driver.run()
    along = [n for n in range(10) if driver.state(f"d{n}").head_seq == 4]
    assert along == list(range(9))
    driver.bring_over()

    assert {driver.state(f"d{n}").head_seq for n in range(10)} == {4}
    same_after_replay(driver)


@pytest.mark.rule("T4.5")
@pytest.mark.parametrize("machine_restarted", [False, True])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_crash_between_a_record_and_its_copy_is_made_good(durability, machine_restarted):
    driver = routing(of_source={"durability": durability}, of_dest={"durability": durability})
    driver.append(1, 2, topic="a")
    size = len(driver.wals[0])
    driver.append(3, 4, topic="a")
    (found,) = [one for one in forwards(driver) if one.first == 3]
    frame = next(i for i in driver.items() if isinstance(i, Control) and i.payload == found)
    del driver.wals[0][frame.offset :]
    assert len(driver.wals[0]) > size
    driver.restart(machine_restarted=machine_restarted)
    driver.bring_over()

    assert driver.datas("b") == [b"1", b"2", b"3", b"4"]
    assert driver.inbound("a>b")[1] == 4
    assert not [one for one in lost_in(driver) if one[2] == "source_trim"]
    driver.append(5, topic="a")
    assert driver.datas("b") == [b"1", b"2", b"3", b"4", b"5"]
    same_after_replay(driver)


@pytest.mark.rule("S8.14")
def test_what_a_crash_took_of_the_source_it_took_of_dest():
    driver = routing(of_source={"durability": "disk"}, of_dest={"durability": "disk"})
    driver.append(1, 2, topic="a", sync=True)
    size = len(driver.wals[0])
    driver.append(3, 4, topic="a")
    del driver.wals[0][size:]
    driver.restart(machine_restarted=True)
    driver.bring_over()
    driver.append(5, topic="a")

    assert driver.datas("a") == driver.datas("b") == [b"1", b"2", b"5"]
    assert [one[2] for one in lost_in(driver, "a")] == [one[2] for one in lost_in(driver)] == ["crash"]
    same_after_replay(driver)


def test_what_goes_nowhere_is_in_the_log_before_it_passes_for_lost():
    driver = routing(of_source={"cap_records": 10}, match="red")
    for number in range(60):
        driver.propose(driver.appending(number, number, number, topic="a", tag=b"blue"))
        while driver.step():
            assert driver.inbound("a>b")[0] + 1 >= driver.topic("a").evict_floor
    driver.restart(machine_restarted=False)
    driver.bring_over()
    driver.append(61, topic="a", tag=b"red")

    assert driver.seqs("b") == [1]
    assert not lost_in(driver)
    assert len(forwards(driver)) < 40
    same_after_replay(driver)


def _lowers_the_cap(driver):
    driver.propose(PutTopic(topic="a", config=config(cap_records=3)))


def _lets_time_pass(driver):
    driver.clock.advance(60_001)
    driver.engine.tick()


def _writes_later(driver):
    driver.clock.advance(60_001)
    driver.propose(driver.appending(100, topic="a", tag=b"blue"))


@pytest.mark.parametrize("evicts", [_lowers_the_cap, _lets_time_pass, _writes_later])
@pytest.mark.parametrize("of_source", [{"ttl_ms": 60_000}, {"ttl_ms": 60_000, "durability": "fsync"}])
def test_what_goes_nowhere_is_in_the_log_before_anything_evicts_it(of_source, evicts):
    driver = routing(of_source=of_source, match="red")
    for number in range(40):
        driver.append(number, topic="a", tag=b"blue")
    assert driver.route_of("a>b").cursor < 40
    evicts(driver)
    while driver.step():
        assert driver.inbound("a>b")[0] + 1 >= driver.topic("a").evict_floor
    driver.restart(machine_restarted=False)
    driver.bring_over()

    assert driver.topic("a").evict_floor > 1
    assert not lost_in(driver)
    same_after_replay(driver)


def test_what_goes_nowhere_is_not_seen_before_the_records_that_it_is_of():
    driver = routing(of_source={"ttl_ms": 60_000, "durability": "fsync"}, match="red")
    for number in range(10):
        driver.append(number, topic="a", tag=b"blue")
    driver.propose(driver.appending(10, topic="a", tag=b"blue"))
    driver.propose(DeleteRecords(topic="a", before_seq=1))  # has the log hear of all that went nowhere
    while driver.step():  # I-21 holds at each stage
        assert driver.inbound("a>b")[0] <= driver.topic("a").head_seq

    assert driver.inbound("a>b")[0] == 11


def test_a_router_that_ends_under_way_brings_nothing_over():
    driver = routing(of_dest={"cap_records": 2, "discard": "reject"})
    driver.append(1, 2, topic="a")
    driver.append(3, topic="a")
    driver.run()
    order = driver.engine.forwards.take()
    driver.delete("b", before_seq=3)
    driver.carry_out(order, meanwhile=lambda: driver.unroute("a>b"))
    driver.bring_over(ms=200)

    assert driver.datas("b") == []
    same_after_replay(driver)


def test_a_late_copy_goes_on_to_where_its_dest_is_forwarded():
    driver = routing(of_dest={"cap_records": 2, "discard": "reject"})
    driver.route("b", "c")
    driver.append(1, 2, topic="a")
    driver.clock.advance(5)
    driver.append(3, topic="a")
    driver.bring_over()
    driver.delete("b", before_seq=3)
    driver.wait(5 * MOVE_RETRY_MS)

    assert driver.datas("c") == [b"1", b"2", b"3"]
    assert [copy.ts for copy in driver.read("c")[1]] == [T0, T0, T0 + 5]
    same_after_replay(driver)


def test_a_shard_that_fails_leaves_its_routers_where_the_log_is():
    driver = routing()
    driver.append(1, topic="a")
    driver.propose(driver.appending(2, topic="a"))
    driver.take()
    driver.fail()

    assert driver.inbound("a>b") == (1, 1)
    assert driver.route_of("a>b").sent == 1
    verify.check_state(driver.engine.state)


def test_what_has_expired_before_its_turn_takes_no_seq():
    driver = routing(of_dest={"cap_records": 2, "discard": "reject"})
    driver.append(1, 2, topic="a")
    driver.append(3, 4, topic="a", ttl_ms=[50, 60_000])
    driver.bring_over()
    driver.delete("b", before_seq=3)
    driver.clock.advance(5 * MOVE_RETRY_MS)
    driver.engine.tick()
    order = driver.engine.forwards.take()
    assert list(order.seqs) == [4]  # though no frame has said so yet
    driver.carry_out(order)

    assert driver.datas("b") == [b"4"]
    assert driver.seqs("b") == [3]
    same_after_replay(driver)


def test_what_it_has_passed_over_stays_so_when_the_router_is_another_one():
    driver = routing(match="red")
    driver.append(1, 2, topic="a", tag=b"blue")
    driver.route()
    driver.append(3, topic="a", tag=b"blue")
    driver.restart(machine_restarted=False)
    driver.bring_over()

    assert driver.datas("b") == [b"3"]
    same_after_replay(driver)


def test_what_has_ended_on_a_cycle_does_not_go_on_when_the_cycle_is_broken():
    driver = routing()
    driver.route("b", "c")
    driver.route("c", "a", allow_cycle=True)
    driver.append(1, topic="b")
    heads = [driver.state(name).head_seq for name in "abc"]
    driver.unroute("a>b")
    driver.restart(machine_restarted=False)
    driver.bring_over()

    assert [driver.state(name).head_seq for name in "abc"] == heads == [3, 3, 3]
    same_after_replay(driver)


def test_time_runs_ahead_of_the_clock_by_little_and_what_is_late_waits_for_it():
    """Into another shard goes what is of an earlier millisecond (decision 115)."""
    driver = Routing(shards=3)
    driver.put("a", durability="fsync")
    driver.route()
    assert driver.engine.state.lanes_by_name["b"].shard != driver.engine.state.lanes_by_name["a"].shard
    for number in range(1, 41):
        driver.append(number, topic="a")
        driver.bring_over()
    behind = len(driver.datas("b"))

    assert 0 < behind < 40
    assert driver.engine.now_ms() - driver.clock.now_ms() == TIME_AHEAD_MAX_MS
    driver.bring_over(ms=2)
    assert driver.datas("b") == [b"%d" % number for number in range(1, 41)]
    assert driver.engine.now_ms() - driver.clock.now_ms() <= TIME_AHEAD_MAX_MS
    driver.clock.set(T0 - 60_000)  # somebody sets it back
    for number in range(41, 61):
        driver.append(number, topic="a")
        driver.bring_over(ms=2)
    assert driver.datas("b")[-1] == b"60"
    same_after_replay(driver)


@pytest.mark.rule("S8.21")
@pytest.mark.parametrize("length", [2, 3])
def test_on_a_cycle_a_loss_is_told_in_the_next_topic_and_no_further(length):
    names = ["a", "b", "c"][:length]
    driver = routing(
        of_dest={"cap_records": 2, "discard": "reject"}, of_source={"cap_records": 6, "discard": "old"}
    )
    driver.append(1, 2, topic="a")
    driver.append(3, 4, 5, 6, topic="a")
    driver.bring_over()
    driver.clock.advance(1)
    driver.append(*range(7, 12), topic="a")  # evicts some that "b" has no room for
    driver.put("b", cap_records=0)
    for source, dest in zip(names[1:], [*names[2:], "a"], strict=True):
        driver.route(source, dest, allow_cycle=True)
    for _ in range(50):
        driver.run()
        if (order := driver.engine.forwards.take()) is not None:
            driver.carry_out(order)
        driver.clock.advance(1000)
        driver.engine.tick()

    assert driver.engine.forwards.take() is None
    assert lost_in(driver) == [(3, 5, "source_trim")]
    assert [
        one for name in names if name != "b" for one in lost_in(driver, name) if one[2] == "source_trim"
    ] == []
    same_after_replay(driver)


def test_on_a_chain_a_loss_is_told_in_every_topic():
    driver = routing(
        of_dest={"cap_records": 2, "discard": "reject"}, of_source={"cap_records": 6, "discard": "old"}
    )
    driver.append(1, 2, topic="a")
    driver.append(3, 4, 5, 6, topic="a")
    driver.bring_over()
    driver.append(*range(7, 12), topic="a")
    driver.put("b", cap_records=0)
    driver.route("b", "c")
    driver.wait(60_000)

    assert [one[2] for one in lost_in(driver, "c")] == ["source_trim"]
    same_after_replay(driver)


@pytest.mark.rule("S8.17", "S8.26")
def test_copies_that_find_no_room_in_the_log_are_late_and_their_source_is_written():
    driver = crowded()
    driver.append(b"x" * 200, topic="a")
    driver.run()

    assert driver.datas("a") == [b"x" * 200]
    assert {driver.state(f"d{number}").head_seq for number in range(100)} == {0}
    with pytest.raises(Rejected) as refused:  # what does not fit itself is refused as ever
        driver.append(b"x" * 2000, topic="a")
    assert refused.value.code is Code.DISK_LOW
    driver.engine.space(0, PLENTY)
    driver.wait(MOVE_RETRY_MAX_MS)
    driver.append(b"y", topic="a")

    assert all(driver.datas(f"d{number}") == [b"x" * 200, b"y"] for number in range(100))


@pytest.mark.rule("S8.17", "S8.26")
def test_a_write_whose_copies_find_no_room_is_given_some_before_they_are_late():
    driver = crowded()
    command = driver.appending(b"x" * 200, topic="a")
    with pytest.raises(Rejected) as refused:
        driver.engine.propose(command, asks_room=True)
    assert refused.value.code is Code.DISK_LOW
    driver.engine.space(0, refused.value.detail["needed_bytes"])
    driver.engine.propose(command, asks_room=True)
    driver.run()

    assert not driver.engine.has_orders
    assert all(driver.datas(f"d{number}") == [b"x" * 200] for number in range(100))
    same_after_replay(driver)


def test_what_would_go_along_by_a_further_router_holds_up_nobody_who_fits():
    driver = Routing()
    driver.put("a", durability="disk")
    driver.put("b", durability="disk", cap_records=1, discard="reject")
    driver.route("a", "b")
    for number in range(100):
        driver.route("b", f"d{number}")
    driver.append(b"1", b"2", topic="a")  # which finds no room in "b"
    driver.put("b", durability="disk")
    driver.engine.space(0, driver.engine.limits.wal_reserve + 1000)
    driver.wait(MOVE_RETRY_MAX_MS)

    assert driver.datas("b") == [b"1", b"2"]
    assert all(driver.datas(f"d{number}") == [b"1", b"2"] for number in range(100))


@pytest.mark.rule("S8.13", "S8.17")
def test_a_reserve_larger_than_what_may_wait_to_be_written_parts_no_copies_from_their_source():
    driver = Routing(limits=Limits(wal_reserve=PENDING_BYTES_MAX))
    driver.put("a", durability="disk")
    driver.route("a", "b")
    ticket = driver.propose(driver.appending(b"x", topic="a"))
    while not ticket.done:
        assert driver.step(0)

    assert driver.datas("b") == [b"x"]


@pytest.mark.rule("S8.18")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_source_that_goes_leaves_word_of_what_its_late_routers_had_not_come_to(shards):
    driver = Routing(shards=shards)
    driver.put("a", durability="disk")
    dests = [f"d{number}" for number in range(4)]
    for dest in dests:
        driver.put(dest, durability="disk", cap_records=2, discard="reject")
        driver.route("a", dest, match="red")
    driver.append(1, 2, topic="a", tag=b"red", sync=True)
    driver.bring_over()
    driver.append(3, 4, 5, topic="a", tag=[b"red", b"blue", b"red"], sync=True)
    driver.bring_over()
    driver.drop("a")

    for dest in dests:
        assert driver.datas(dest) == [b"1", b"2"]
        assert lost_in(driver, dest) == [(3, 4, "source_trim")]
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
def test_of_a_source_that_goes_a_chain_hears_to_its_end():
    driver = Routing()
    driver.put("a", durability="disk", cap_records=2)
    driver.put("b", durability="disk", cap_records=1, discard="reject")
    driver.route("a", "b")
    driver.route("b", "c")
    driver.append(1, topic="a")
    driver.append(2, 3, 4, topic="a")  # and 2 is evicted before it is brought over
    driver.drop("a")
    driver.bring_over()

    assert lost_in(driver, "b") == lost_in(driver, "c") == [(2, 4, "source_trim")]
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
def test_a_source_that_goes_waits_for_a_dest_that_is_being_changed():
    driver = Routing()
    driver.put("a", durability="disk")
    driver.put("b", durability="disk", cap_records=1, discard="reject")
    driver.route("a", "b")
    driver.append(1, 2, topic="a")
    change = driver.propose(PutTopic(topic="b", config=config(durability="disk", cap_records=5)))
    ended = driver.propose(DeleteTopic(topic="a"))
    assert driver.engine.state.lanes_by_name["b"].blocked
    driver.run()

    assert change.done
    assert ended.done
    assert lost_in(driver) == [(1, 2, "source_trim")]
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
def test_more_than_a_ceiling_lets_pass_is_told_by_a_source_that_goes():
    driver = Routing()
    driver.put("a", durability="disk")
    for dest in ("b", "c"):
        driver.put(dest, durability="disk", cap_records=1, discard="reject")
        driver.route("a", dest)
    driver.append(*range(1000), topic="a")
    driver.drop("a")

    assert lost_in(driver) == lost_in(driver, "c") == [(1, 1000, "source_trim")]
    assert all(driver.topic(name).ceiling >= 1000 for name in "bc")
    verify.check_state(driver.engine.state)
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
def test_a_source_that_may_not_go_has_lost_nothing():
    driver = Routing(shards=3)
    driver.put("a", durability="disk")
    dests = [f"d{number}" for number in range(6)]
    for dest in dests:
        driver.put(dest, durability="disk", cap_records=1, discard="reject")
        driver.route("a", dest)
    driver.append(1, 2, topic="a", sync=True)
    for shard in range(3):
        driver.engine.space(shard, PLENTY)
        full = (shard + 1) % 3
        driver.engine.space(full, 60)
        with pytest.raises(Rejected) as refused:
            driver.propose(DeleteTopic(topic="a"))
        assert refused.value.code is Code.DISK_LOW
        driver.engine.space(full, PLENTY)
        driver.run()
        assert not any(lost_in(driver, dest) for dest in dests)
    for dest in dests:
        driver.put(dest, durability="disk")
    driver.wait(MOVE_RETRY_MAX_MS)

    assert all(driver.datas(dest) == [b"1", b"2"] for dest in dests)
    same_after_replay(driver)


@pytest.mark.rule("S8.18")
def test_in_each_log_the_end_of_a_source_is_no_earlier_than_what_it_left():
    driver = Routing(shards=3)
    driver.put("a", durability="disk")
    while (source := shard_of(driver.topic("a").topic_id, 3)) == 0:
        driver.drop("a")
        driver.put("a", durability="disk")
    dest = next(
        name
        for name in map("d{}".format, range(9))
        if driver.put(name, durability="disk", cap_records=1, discard="reject")
        and shard_of(driver.topic(name).topic_id, 3) == 0
    )
    driver.route("a", dest)
    driver.append(1, 2, topic="a", sync=True)
    driver.drop("a")

    assert source
    assert lost_in(driver, dest) == [(1, 2, "source_trim")]
    for wal in driver.wals:
        times = [item.ts for item in scan(bytes(wal), 0, len(wal)).items]
        assert times == sorted(times)


@pytest.mark.rule("S8.18")
def test_where_the_word_of_an_end_is_lost_with_a_shard_its_router_goes_on():
    driver = Routing(shards=3)
    driver.put("a", durability="disk")
    source = shard_of(driver.topic("a").topic_id, 3)
    dests = [f"d{number}" for number in range(6)]
    for dest in dests:
        driver.put(dest, durability="disk")
        driver.route("a", dest)
    driver.append(1, 2, topic="a", sync=True)
    driver.propose(DeleteTopic(topic="a"))
    while (order := driver.engine.forwards.take()) is not None:
        driver.engine.forwards.ended(order, None, is_there=True)  # as one that comes too late
    failed = {shard_of(driver.topic(dest).topic_id, 3) for dest in dests} - {source, 0}
    for shard in failed:
        driver.take(shard)
        driver.fail(shard)

    assert failed
    verify.check_state(driver.engine.state)
