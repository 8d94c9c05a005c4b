"""Collecting takes what is dead for long enough and nothing a reader could be shown."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import LIMITS, START_MS, Node, everybody, exchange, state
from topics.kernel.errors import Rejected
from topics.kv.bounds import DAY_MS, GRACE_MS
from topics.kv.entries.store import store_from_cell, store_to_cell
from topics.kv.garbage import Collected
from topics.lattice.values.stamps import MAX_DRIFT_MS


@pytest.mark.rule("R3.5.1", "R7.6", "R11.20")
def test_deleted_and_expired_keys_go_when_the_grace_is_over():
    node = Node()
    node.db.set("deleted", 1)
    node.db.delete("deleted")
    node.db.set("expiring", 1, ttl_ms=100)
    node.db.set("live", 1)
    assert GRACE_MS == DAY_MS
    assert node.db.gc() == Collected(0, 0, 0)
    node.later(DAY_MS)
    assert node.db.gc() == Collected(0, 0, 0)
    node.later(1)
    assert node.db.gc() == Collected(1, 0, 0)
    node.later(99)
    assert node.db.gc() == Collected(0, 0, 0, expired=1)  # a delete now, which waits for as long
    node.later(DAY_MS - 1)
    assert node.db.gc() == Collected(0, 0, 0)
    node.later(1)
    assert node.db.gc() == Collected(1, 0, 0)
    assert (node.db.keys(), len(node.db.snapshot())) == (["live"], 1)


@pytest.mark.rule("R3.5.1", "R9.23")
def test_removed_elements_go_and_the_live_ones_stay():
    node = Node()
    node.db.sadd("s", "a", "b")
    node.db.srem("s", "a")
    node.db.hset("h", "f", 1)
    node.db.hset("h", "g", 1)
    node.db.hdel("h", "f")
    node.db.zadd("z", 1, "m")
    node.db.zrem("z", "m")
    node.later(100)
    before = [node.db.read(key) for key in ("s", "h", "z")]
    assert node.db.gc(grace_ms=10) == Collected(0, 3, 0)
    assert before == [node.db.read(key) for key in ("s", "h", "z")]
    assert node.db.type("z") == "zset"
    assert node.db.gc(grace_ms=10) == Collected(0, 0, 0)


@pytest.mark.rule("R9.23")
def test_what_a_delete_hides_without_having_seen_it_stays_to_be_read():
    a, b = Node(1), Node(2)
    a.db.sadd("k", "x")
    a.db.set("v", 1)
    b.pull(a)
    b.db.sadd("k", "unseen")
    b.later(1).set("v", 2)
    a.later(500).delete("k")
    a.db.delete("v")
    exchange(a, b)
    a.later(10_000)
    before = a.db.read("k"), a.db.read("v")
    assert [len(found.conflicts) for found in before] == [1, 1]
    assert a.db.gc(grace_ms=1).keys == 0
    assert before == (a.db.read("k"), a.db.read("v"))


def test_a_counter_that_goes_takes_the_replica_id_with_it():
    """Else its columns would begin again below those a stale peer still has, and the peer's would win."""
    a, b = Node(1), Node(2)
    a.db.incrby("c", 5)
    b.pull(a)
    a.later(10).delete("c")
    a.later(10)
    first = a.db.replica
    assert a.db.gc(grace_ms=0) == Collected(1, 0, 1)
    assert a.db.replica != first
    assert a.db.incrby("c", 1) == 1
    exchange(a, b)
    # The stale five are back, which is 8.10 and what grace is for; but nothing that was counted since is lost.
    assert a.db.incrby("c", 0) == b.db.incrby("c", 0) == 6


@pytest.mark.rule("R3.5.2")
def test_below_a_stable_floor_no_grace_is_needed_and_it_never_falls():
    node = Node()
    node.db.set("k", 1)
    node.db.delete("k")
    assert node.db.gc(stable_ms=2000).keys == 1
    assert node.db.gc(stable_ms=1000).keys == 0
    assert node.db.snapshot().floor == 2000
    node.db.set("k", 2)
    assert (
        node.db.snapshot().get("k").newest == 2001
    )  # nothing new is stamped where it could be taken for old
    for bad in (-1, True, 1.0, None):
        with pytest.raises(Rejected):
            node.db.gc(stable_ms=bad)
        with pytest.raises(Rejected):
            node.db.gc(bad)


@pytest.mark.rule("R3.5.2")
def test_an_event_at_or_below_the_floor_that_one_side_lacks_goes_and_one_that_both_have_stays():
    a, b = Node(1), Node(2)
    a.db.set("both", 1)
    a.db.hset("h", "both", 1)
    b.pull(a)
    b.db.set("b-old", 1)
    b.db.hset("h", "b-old", 1)
    b.db.zadd("z", 1, "m")
    b.db.incr("c")
    b.db.expire("z", 10_000)
    a.later(50)
    a.db.gc(stable_ms=1040)
    b.clock.set(1041)
    b.db.set("b-new", 1)
    b.db.hset("h", "b-new", 1)
    exchange(a, b)
    assert state(a.db) == state(b.db)
    assert a.db.keys() == ["b-new", "both", "h"]
    assert a.db.hgetall("h") == {"both": 1, "b-new": 1}


@pytest.mark.rule("R3.5.2")
def test_a_part_of_a_store_says_nothing_of_what_the_whole_lacks():
    """A delta, a store some of whose keys wait for the clock, one with an entry that is none: no floor comes along."""
    a, b = Node(1), Node(2)
    a.db.set("kept", 1)
    b.pull(a)
    mark = a.db.mark()
    a.later(100).set("new", 1)
    a.db.gc(stable_ms=1050)
    assert len(b.db.merge_changes(a.db.export_changes(mark)).accepted) == 1
    assert b.db.keys() == ["kept", "new"]

    a.clock.set(START_MS + MAX_DRIFT_MS + 5000)
    a.db.set("kept", "from the future")
    b.pull(a)
    assert (b.db.get("kept"), b.db.snapshot().floor, len(b.db.future())) == (1, 0, 1)
    b.later(10_000)
    assert b.db.get("kept") == "from the future"
    b.pull(a, accept_floor=everybody)
    assert b.db.snapshot().floor == 1050

    cell = dict(store_to_cell(a.db.snapshot()))
    assert store_from_cell(cell, LIMITS).floor == 1050
    assert store_from_cell({**cell, "kept": "garbage"}, LIMITS).floor == 0
    assert store_from_cell({**cell, "k" * 2000: cell["kept"]}, LIMITS).floor == 0


@pytest.mark.rule("R3.5.2")
def test_columns_that_were_collected_do_not_come_back_into_a_counter_made_again():
    a, b = Node(1), Node(2)
    b.db.incrby("c", 5)
    b.db.expire("c", 10)
    a.pull(b)
    a.later(100)
    assert a.db.gc(stable_ms=1050) == Collected(0, 0, 0, expired=1)
    a.later(100)
    assert a.db.gc(stable_ms=1150).counters == 1
    assert a.db.incrby("c", 3) == 3
    a.pull(b)
    assert a.db.incrby("c", 0) == 3
    b.pull(a, accept_floor=everybody)
    assert b.db.incrby("c", 0) == 3
    assert state(a.db) == state(b.db)


@pytest.mark.rule("R3.5.2")
def test_a_delete_after_the_floor_of_a_counter_from_before_it_counts():
    a, b = Node(1), Node(2)
    a.db.incrby("c", 4)
    b.pull(a)
    a.later(100).gc(stable_ms=1050)
    b.later(200).set("c", "over the counter")
    exchange(a, b)
    assert a.db.read("c") == b.db.read("c")
    a.db.delete("c")
    assert a.db.incrby("c", 1) == 1
    assert state(a.db) != state(b.db)
    exchange(a, b)
    assert b.db.incrby("c", 0) == 1


@pytest.mark.rule("R3.5.6")
@pytest.mark.parametrize("stable_ms", [START_MS + MAX_DRIFT_MS + 1, 1_700_000_000_000_000_000, 2**63 - 1])
def test_a_stable_stamp_ahead_of_the_clock_is_refused_and_hides_nobodys_writes(stable_ms):
    """Nanoseconds by mistake, and the last number there is: the floor would be above everything that peers write."""
    node, peer = Node(1), Node(2)
    node.db.set("k", 1)
    with pytest.raises(
        Rejected, match=rf"stable_ms: {stable_ms} ms .* {MAX_DRIFT_MS} ms ahead .* {START_MS}"
    ):
        node.db.gc(stable_ms=stable_ms)
    peer.db.set("theirs", 2)
    node.pull(peer)
    assert (node.db.keys(), node.db.snapshot().floor) == (["k", "theirs"], 0)
    node.db.export_replica()
    node.db.gc(stable_ms=START_MS + MAX_DRIFT_MS)
    node.later(1).set("k", 2)
    assert peer.later(1).merge_replicas(node.db.export_replica()).accepted == (node.keys.public,)
    assert peer.db.get("k") == 2


@pytest.mark.rule("R3.5.7")
def test_a_peers_floor_is_taken_only_where_accept_floor_allows_it():
    """An envelope of a key that nobody knows says that everything here was collected."""
    node, stranger = Node(1), Node(2)
    for i in range(100):
        node.db.set(f"k{i}", i)
    stranger.later(50).gc(stable_ms=START_MS + 40)
    stranger.db.set("theirs", 1)
    message = stranger.db.export_replica()
    report = node.later(50).merge_replicas(message)
    assert len(node.db.keys()) == 101
    assert node.db.snapshot().floor == 0
    (refused,) = report.refused
    assert refused.owner == stranger.keys.public
    assert refused.why == f"its floor {START_MS + 40} was not taken: accept_floor= does not allow it"
    assert report.accepted == (stranger.keys.public,)

    asked = []
    report = node.db.merge_replicas(message, accept_floor=lambda owner: not asked.append(owner))
    assert (asked, report.refused) == ([stranger.keys.public], ())
    assert (node.db.keys(), node.db.snapshot().floor) == (["theirs"], START_MS + 40)


@pytest.mark.rule("R3.5.7")
def test_a_foreign_floor_ahead_of_the_clock_is_refused_even_where_floors_are_taken():
    node, peer = Node(1), Node(2, now_ms=START_MS + MAX_DRIFT_MS)
    node.db.set("mine", 1)
    peer.db.set("theirs", 1)
    peer.db.gc(stable_ms=START_MS + MAX_DRIFT_MS + 1)
    report = node.pull(peer, accept_floor=everybody)[0]
    (refused,) = report.refused
    assert (
        f"floor {START_MS + MAX_DRIFT_MS + 1} was not taken: more than {MAX_DRIFT_MS} ms ahead" in refused.why
    )
    assert (node.db.keys(), node.db.snapshot().floor) == (["mine", "theirs"], 0)
