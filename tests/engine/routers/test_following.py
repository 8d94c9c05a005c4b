"""What routers bring over goes to the log with what it is of, is published with it, and is what it was."""

from __future__ import annotations

import msgspec
import pytest

from tests.engine.driving import T0, records
from tests.engine.routers.driving import Routing
from topics.codec.log.control import Control
from topics.codec.log.forwards import Forward
from topics.engine import verify
from topics.engine.commands import Append
from topics.engine.moving.moves import begin_move
from topics.kernel.limits import FORWARD_HOPS_MAX

CLASSES = ("memory", "disk", "fsync")


def routing(*, shards=1, match=None, of_dest=None, of_source=None, **fields):
    """Topics "a" and "b" with a router between them."""
    driver = Routing(shards=shards)
    driver.put("a", **(of_source or {}))
    driver.put("b", **(of_dest or {}))
    driver.route(match=match, **fields)
    return driver


def forwards(driver, shard=0):
    return [
        i.payload for i in driver.items(shard) if isinstance(i, Control) and isinstance(i.payload, Forward)
    ]


def same_after_replay(driver):
    assert verify.digest(driver.replay()) == verify.digest(driver.engine.catalog)


@pytest.mark.rule("S8.8", "S8.17")
def test_a_copy_is_there_when_its_record_is_acknowledged():
    driver = routing()
    driver.append(1, 2, 3, topic="a")

    assert driver.datas("b") == [b"1", b"2", b"3"]
    assert driver.inbound("a>b") == (3, 3)
    assert not driver.engine.has_orders
    same_after_replay(driver)


@pytest.mark.rule("S8.6")
def test_one_write_whatever_the_fan_out():
    driver = Routing()
    driver.put("a")
    for number in range(50):
        driver.route("a", f"d{number}")
    batches, syncs = driver.batches[0], driver.syncs[0]
    driver.append(*range(10), topic="a")

    assert driver.batches[0] == batches + 1
    assert driver.syncs[0] <= syncs + 1
    assert {driver.state(f"d{number}").head_seq for number in range(50)} == {10}
    same_after_replay(driver)


@pytest.mark.rule("S8.13")
@pytest.mark.parametrize("of_source", CLASSES)
@pytest.mark.parametrize("of_dest", CLASSES)
def test_nobody_sees_a_record_before_its_copy(of_source, of_dest):
    driver = routing(of_source={"durability": of_source}, of_dest={"durability": of_dest})
    driver.append(*range(60), topic="a")  # the next ones raise both ceilings
    for number in range(60):
        driver.propose(driver.appending(number, topic="a"))
        while driver.step():
            assert driver.state("a").head_seq == driver.state("b").head_seq
    same_after_replay(driver)


def test_what_goes_before_a_copy_holds_up_what_it_is_of():
    """The intent of a move out of dest waits for a sync, in one batch with a write of its source that does not."""
    driver = routing(of_source={"durability": "disk"}, of_dest={"durability": "disk"})
    driver.put("letters")
    driver.append(1, topic="a")
    state = driver.engine.state
    begin_move(state, state.lanes_by_name["b"], [1], "letters", b"failed", driver.engine.now_ms())
    driver.propose(driver.appending(2, topic="a"))
    batch = driver.take()

    assert [(entry.lane.name, entry.staged) for entry in batch.entries] == [
        ("b", True),
        ("a", True),
        ("b", True),
    ]
    driver.write()
    assert driver.state("a").head_seq == driver.state("b").head_seq == 1
    driver.run()
    same_after_replay(driver)


def test_a_batch_takes_a_write_with_all_that_follows_it():
    driver = Routing()
    driver.put("a")
    for number in range(40):
        driver.route("a", f"d{number}")
    big = [b"%d" % n + b"x" * 250_000 for n in range(1)]
    for _ in range(3):
        driver.propose(Append(topic="a", records=records(*big)))
    batch = driver.take()
    sources = [entry for entry in batch.entries if entry.lane is not None and entry.lane.name == "a"]

    assert len(sources) == 1
    assert sum(entry.follows for entry in batch.entries) == 40
    driver.run()
    assert {driver.state(f"d{number}").head_seq for number in range(40)} == {3}


@pytest.mark.rule("S8.4", "S8.5")
def test_what_a_record_has_goes_along_and_what_told_its_write_apart_does_not():
    driver = routing(of_source={"type": "queue"}, of_dest={"type": "queue"})
    driver.route("a", "log")
    full = records(
        b'{"n":1}', node=b"n", tag=b"t", key=b"k", meta=b'{"m":"1"}', content_type=b"text/plain", dedup_id=b"d",
        ttl_ms=5000, priority=3, delay_ms=70,
    )  # fmt: skip
    driver.do(Append(topic="a", records=full, idempotency_key=b"key", digest=7))
    for dest, of_queue in (("b", True), ("log", False)):
        (copy,) = driver.read(dest)[1]
        assert (copy.data, copy.node, copy.tag, copy.key) == (b'{"n":1}', b"n", b"t", b"k")
        assert (copy.meta, copy.content_type, copy.dedup_id) == (b'{"m":"1"}', b"text/plain", b"")
        assert (copy.ts, copy.expires_at) == (T0, T0 + 5000)
        assert (copy.priority, copy.not_before) == ((3, T0 + 70) if of_queue else (None, None))
        assert copy.keyed is None
    driver.append(2, topic="b", dedup_id=b"d")

    assert driver.state("b").head_seq == 2
    same_after_replay(driver)


def test_node_and_tag_stay_behind_if_the_router_says_so():
    driver = routing(preserve_node=False, preserve_tag=False)
    driver.append(1, 2, topic="a", node=b"n", tag=[b"t", b""], key=b"k")

    assert [(copy.node, copy.tag, copy.key) for copy in driver.read("b")[1]] == [(b"", b"", b"k")] * 2
    same_after_replay(driver)


@pytest.mark.rule("S8.23")
@pytest.mark.parametrize("match", ["red", ["tag", "Glob", "re*"]])
def test_a_filter_lets_pass_what_it_accepts(match):
    driver = routing(match=match)
    driver.append(1, 2, 3, topic="a", tag=[b"red", b"", b"blue"])
    driver.append(4, topic="a")
    driver.append(5, 6, topic="a", tag=[b"blue", b"red"])

    assert driver.datas("b") == [b"1", b"6"]
    assert [list(one.seqs()) for one in forwards(driver)] == [[1], [6]]
    assert [(one.first, one.last) for one in forwards(driver)] == [(1, 3), (4, 6)]
    assert driver.inbound("a>b") == (6, 2)
    same_after_replay(driver)


def test_two_routers_between_two_topics_bring_over_twice():
    driver = routing(match="red")
    driver.route("a", "b", name="blue", match="blue")
    driver.append(1, 2, topic="a", tag=[b"red", b"blue"])

    assert driver.datas("b") == [b"1", b"2"]
    assert (driver.inbound("a>b"), driver.inbound("blue")) == ((2, 1), (2, 1))
    same_after_replay(driver)


def test_a_chain_of_any_length_goes_in_one_batch():
    driver = Routing()
    driver.put("t0")
    for number in range(20):
        driver.route(f"t{number}", f"t{number + 1}")
    batches = driver.batches[0]
    driver.append(1, 2, topic="t0")

    assert driver.batches[0] == batches + 1
    assert {driver.state(f"t{number}").head_seq for number in range(21)} == {2}
    same_after_replay(driver)


@pytest.mark.rule("S8.21", "T2.14")
def test_a_cycle_ends_after_its_hops():
    driver = routing()
    driver.route("b", "a", allow_cycle=True)
    driver.append(1, topic="a")

    assert driver.state("a").head_seq + driver.state("b").head_seq == 1 + FORWARD_HOPS_MAX
    assert [copy.hops for copy in driver.read("a")[1]] == [0, 2, 4, 6, 8]
    assert [copy.hops for copy in driver.read("b")[1]] == [1, 3, 5, 7]
    driver.bring_over()
    assert driver.state("a").head_seq + driver.state("b").head_seq == 1 + FORWARD_HOPS_MAX
    same_after_replay(driver)


@pytest.mark.rule("S8.22")
def test_a_copy_says_where_it_is_from_if_it_is_guaranteed_once():
    driver = routing(guarantee="exactly_once")
    driver.route("b", "c", guarantee="exactly_once")
    driver.append(1, topic="a")
    driver.append(2, topic="a", meta=b'{"m":"1"}')

    assert [copy.meta for copy in driver.read("b")[1]] == [
        b'{"_topics_router":"a>b:1:1"}', b'{"m":"1","_topics_router":"a>b:1:2"}',
    ]  # fmt: skip
    metas = [msgspec.json.decode(copy.meta) for copy in driver.read("c")[1]]
    assert metas == [{"_topics_router": "b>c:1:1"}, {"m": "1", "_topics_router": "b>c:1:2"}]
    same_after_replay(driver)


@pytest.mark.rule("S8.24")
def test_a_dest_has_writes_and_deletes_of_its_own():
    driver = routing(of_dest={"cap_records": 4})
    driver.append(1, 2, topic="a")
    driver.append(b'"own"', topic="b")
    driver.delete("b", before_seq=2)
    driver.append(3, topic="a")
    driver.delete("a", before_seq=4)

    assert driver.datas("b") == [b"2", b'"own"', b"3"]
    assert driver.seqs("b") == [2, 3, 4]
    driver.append(4, 5, topic="a")
    assert driver.seqs("b") == [3, 4, 5, 6]
    same_after_replay(driver)


def test_a_router_that_was_deleted_brings_nothing_more():
    driver = routing()
    driver.append(1, topic="a")
    driver.unroute("a>b")
    driver.append(2, topic="a")
    driver.route()
    driver.append(3, topic="a")

    assert driver.datas("b") == [b"1", b"3"]
    assert driver.inbound("a>b") == (3, 1)
    same_after_replay(driver)


def test_a_topic_that_is_deleted_ends_its_routers():
    driver = routing()
    driver.route("b", "c")
    driver.append(1, topic="a")
    driver.drop("b")
    driver.append(2, topic="a")

    assert driver.engine.state.routes == {}
    assert driver.datas("c") == [b"1"]
    same_after_replay(driver)


@pytest.mark.rule("S8.7")
def test_after_a_restart_it_goes_on_where_it_was():
    driver = routing(match="red")
    driver.append(1, 2, topic="a", tag=[b"red", b"blue"])
    driver.append(3, topic="a", tag=b"blue")
    driver.restart(machine_restarted=False)
    driver.bring_over()
    driver.append(4, topic="a", tag=b"red")

    assert driver.datas("b") == [b"1", b"4"]
    assert driver.inbound("a>b") == (4, 2)
    same_after_replay(driver)
