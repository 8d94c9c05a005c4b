"""What is stamped in the future waits, whoever wrote it, also over a restart; it is listed, and can be mended."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import START_MS, Node, exchange, state
from topics.kernel.errors import Code, Rejected, WrongState
from topics.kv.bounds import DAY_MS
from topics.kv.future.deferred import VERSIONS_MAX
from topics.kv.future.report import DeferredWrite, MergeReport, Refused
from topics.lattice.values.stamps import CLOCK_SET_MS, MAX_DRIFT_MS
from topics.testing.journal import MemoryJournal

HOUR_MS = MAX_DRIFT_MS
NOW_MS = 1_700_000_000_000
YEARS_MS = 10 * 365 * DAY_MS


def fill(db):
    db.set("v", "first", ttl_ms=YEARS_MS)
    db.hset("h", "f", 1)
    db.sadd("s", "a", "b")
    db.zadd("z", 1, "m")
    db.rpush("l", "e")
    db.incrby("c", 5)


def glitch(node, call, *, by_ms=YEARS_MS):
    """The call happens while the node's clock is wrong."""
    node.clock.advance(by_ms)
    call(node.db)
    node.clock.set(node.clock.now_ms() - by_ms)


def everything(db):
    """Whatever a write can be, on keys that are there and on one that is not."""
    db.set("v", "late")
    db.hset("h", "f", 2)
    db.hset("h", "g", 2)
    db.srem("s", "a")
    db.sadd("s", "c")
    db.zadd("z", 7, "m")
    db.zrem("z", "m")
    db.zadd("z", 7, "n")
    db.rpush("l", "late")
    db.incrby("c", 2)
    db.set("new", "late", ttl_ms=HOUR_MS)


# What a merge tells.


def test_a_merge_tells_what_was_accepted_what_waits_and_what_was_refused():
    ahead, good, rogue, node = Node(1), Node(2), Node(3), Node(4)
    ahead.later(2 * HOUR_MS).set("k", "two hours ahead")
    good.db.set("k", "now")
    elsewhere = Node(5, name="elsewhere")
    forged = rogue.db.export_replica()[rogue.keys.public]
    report = node.db.merge_replicas(
        {
            **ahead.db.export_replica(),
            **good.db.export_replica(),
            **elsewhere.db.export_replica(),
            rogue.keys.public: ((*forged[0][:3], bytes(64)),),
            "nobody": 1,
        },
        accept=lambda owner: owner != good.keys.public,
    )
    assert report.accepted == (ahead.keys.public,)
    stamp = START_MS + 2 * HOUR_MS
    assert report.deferred == (DeferredWrite("k", "value", "two hours ahead", stamp, stamp - HOUR_MS),)
    whys = {refused.owner: refused.why for refused in report.refused}
    assert whys == {
        good.keys.public: "accept= does not allow it",
        elsewhere.keys.public: "it holds no database 'shared'",
        rogue.keys.public: f"the envelope of {rogue.keys.public.hex()}: its signature or its payload is not good, or "
        "the signer may not sign for it",
        "nobody": "it is no owner with a slot of envelopes",
    }
    assert node.db.merge_replicas(ahead.db.export_replica()).deferred == report.deferred
    assert node.db.future() == report.deferred
    assert node.db.merge_replicas(7) == MergeReport(
        refused=(Refused(None, "it is no map of at most 100000 owners"),)
    )


# What waits is durable.


def test_what_waits_survives_a_restart_and_deltas_alone_bring_it():
    """The peer's next delta begins behind it: whoever forgets it never hears of it again."""
    ahead, node = Node(1, now_ms=NOW_MS), Node(2, now_ms=NOW_MS, journal=MemoryJournal())
    ahead.db.set("near", 1)
    node.pull(ahead)
    mark = ahead.db.mark()
    ahead.later(2 * HOUR_MS).set("far", "future")
    assert len(node.db.merge_changes(ahead.db.export_changes(mark)).deferred) == 1
    waiting, mark = node.db.future(), ahead.db.mark()
    node.restart()
    assert node.db.future() == waiting
    ahead.db.set("more", 1)
    node.later(3 * HOUR_MS)
    node.db.merge_changes(ahead.db.export_changes(mark))
    assert node.db.get("far") == "future"
    assert state(node.db) == state(ahead.db)


def test_what_was_merged_does_not_wait_again_after_a_restart():
    """Or what was deleted and collected since would come back."""
    ahead, node = Node(1, now_ms=NOW_MS), Node(2, now_ms=NOW_MS, journal=MemoryJournal())
    ahead.later(2 * HOUR_MS).set("k", "future")
    node.pull(ahead)
    node.later(2 * HOUR_MS)
    assert node.db.delete("k")
    node.later(HOUR_MS).gc(grace_ms=0)
    assert len(node.db.snapshot()) == 0
    node.restart()
    assert (node.db.future(), node.db.get("k"), len(node.db.snapshot())) == ((), None, 0)


@pytest.mark.parametrize("steps", [(0,), (0, 0), (0, 1), (1, 0)])
def test_waiting_entries_of_one_key_wait_each_for_its_own_time(steps):
    """One of the year 3000 holds up none of today, in whatever order they came and before and after a restart."""
    soon, never = Node(1, now_ms=NOW_MS + 2 * HOUR_MS), Node(3, now_ms=NOW_MS + YEARS_MS)
    soon.db.set("k", "soon")
    never.db.set("k", "never")
    node = Node(2, now_ms=NOW_MS, journal=MemoryJournal())
    node.pull(*((soon, never)[step] for step in steps))
    count = len(node.db.future())
    node.restart()
    assert len(node.db.future()) == count == len(set(steps))
    node.later(HOUR_MS)
    assert node.db.get("k") == "soon"
    node.restart()
    assert (node.db.get("k"), len(node.db.future())) == ("soon", count - 1)


def test_a_key_that_waits_very_often_takes_bounded_room():
    ahead, node = Node(1, now_ms=NOW_MS + 2 * HOUR_MS), Node(2, now_ms=NOW_MS)
    for i in range(VERSIONS_MAX + 5):
        ahead.later(1).set("k", i)
        node.pull(ahead)
    assert len(node.db.future()) == VERSIONS_MAX
    node.later(HOUR_MS + 3)
    assert node.db.get("k") == 2
    node.later(HOUR_MS)
    assert node.db.get("k") == VERSIONS_MAX + 4
    assert node.db.future() == ()


def test_a_compacted_journal_holds_what_waits():
    ahead, node = Node(1, now_ms=NOW_MS), Node(2, now_ms=NOW_MS, journal=MemoryJournal())
    ahead.later(2 * HOUR_MS).set("k", "future")
    node.pull(ahead)
    before = node.db.future()
    node.journal.items[:] = list(node.home.cursor("shared").snapshot())
    node.restart()
    assert node.db.future() == before


# A node judges its own stamps as it judges others'.


@pytest.mark.parametrize("by_ms", [HOUR_MS + 1, YEARS_MS])
def test_after_a_glitch_of_its_clock_a_node_agrees_with_everybody(by_ms):
    """One write ten years ahead, the clock corrected: nobody else sees it, so it must not hide what all others see."""
    a, b = Node(1, now_ms=NOW_MS, journal=MemoryJournal()), Node(2, now_ms=NOW_MS)
    fill(a.db)
    exchange(a, b)
    glitch(a, everything, by_ms=by_ms)
    message = None
    for _ in range(2):
        b.later(5).set("v", "of b")
        exchange(a, b)
        assert a.db.get("v") == b.db.get("v") == "of b"
        assert state(a.db) == state(b.db)
        assert a.db.hgetall("h") == {"f": 1}
        assert a.db.smembers("s") == ["a", "b"]
        assert (a.db.zrange("z", 0, -1), a.db.zscore("z", "m")) == (["m"], 1.0)
        assert a.db.lrange("l", 0, -1) == ["e"]
        assert a.db.incrby("c", 0) == 7  # a column has no stamp: what was counted, counts
        assert a.db.get("new") is None
        assert {each.key for each in a.db.future()} == {"v", "h", "s", "z", "l", "c", "new"}
        assert message in (None, a.db.future())
        message = a.db.future()
        a.restart()
    for node in (a, b):
        node.clock.advance(by_ms)
    exchange(a, b)
    assert a.db.future() == ()
    assert a.db.get("v") == "late"
    assert state(a.db) == state(b.db)


def test_of_a_large_key_only_what_lies_in_the_future_is_taken_out_and_written_small():
    """One field of many: the rest stays, and the journal does not take the key twice."""
    a = Node(1, now_ms=NOW_MS, journal=MemoryJournal())
    for i in range(300):
        a.db.hset("h", f"f{i}", "x" * 1000)
    glitch(a, lambda db: db.hset("h", "g", 1))
    before = sum(map(len, a.journal.items))
    assert a.db.hlen("h") == 300
    assert sum(map(len, a.journal.items)) - before < 100
    (waiting,) = a.db.future()
    assert waiting.value == {"g": 1}
    a.restart()
    assert (a.db.hlen("h"), a.db.future()) == (300, (waiting,))


def test_what_a_node_wrote_in_the_future_is_not_handed_on():
    a, b = Node(1, now_ms=NOW_MS), Node(2, now_ms=NOW_MS)
    mark = a.db.mark()
    glitch(a, everything)
    assert b.db.merge_changes(a.db.export_changes(mark)).deferred == ()
    assert b.pull(a)[0].deferred == ()


@pytest.mark.parametrize("restart", [False, True])
def test_a_withdrawn_write_never_comes(restart):
    a = Node(1, now_ms=NOW_MS, journal=MemoryJournal())
    a.db.set("v", "first")
    glitch(a, everything)
    assert a.db.withdraw("v")
    assert not a.db.withdraw("v")
    assert not a.db.withdraw("unheard of")
    if restart:
        a.restart()
    a.db.set("v", "second")
    a.later(YEARS_MS + DAY_MS)
    assert a.db.get("v") == "second"
    assert a.db.hgetall("h") == {"f": 2, "g": 2}


@pytest.mark.parametrize("restart", [False, True])
def test_a_restamped_write_is_one_of_now_for_everybody(restart):
    a, b = Node(1, now_ms=NOW_MS, journal=MemoryJournal()), Node(2, now_ms=NOW_MS)
    fill(a.db)
    exchange(a, b)
    glitch(a, everything)
    b.later(5).set("v", "of b")
    a.later(10)
    exchange(a, b)
    for waiting in a.db.future():
        assert a.db.withdraw(waiting.key, restamp=True)
    assert a.db.future() == ()
    if restart:
        a.restart()
    exchange(a, b)
    for node in (a, b):
        assert node.db.get("v") == "late"
        assert node.db.hgetall("h") == {"f": 2, "g": 2}
        assert node.db.smembers("s") == ["b", "c"]
        assert (node.db.zrange("z", 0, -1), node.db.zscore("z", "n")) == (["n"], 7.0)
        assert node.db.lrange("l", 0, -1) == ["e", "late"]
        assert node.db.incrby("c", 0) == 7
        assert 0 < node.db.ttl("new") <= HOUR_MS + 5  # the other clock stands 5 ms behind
        assert [found.value for found in node.db.read("v").conflicts] == ["of b"]  # it had not seen that
    assert state(a.db) == state(b.db)
    assert b.later(20).set("v", "later") is None
    exchange(a, b)
    assert a.db.get("v") == "later"


def test_what_a_future_write_has_seen_and_found_absent_is_restamped_with_it():
    """The marks of a write carry its stamp: when it has seen what it overwrites, and when it found nothing there."""
    a, b = Node(1, now_ms=NOW_MS, journal=MemoryJournal()), Node(2, now_ms=NOW_MS)
    fill(b.db)
    exchange(a, b)

    def over(db):
        db.set("v", "late")
        db.delete("h")
        db.hset("h", "new", 1)
        db.hset("fresh", "f", 1)

    glitch(a, over)
    exchange(a, b)
    assert state(a.db) == state(b.db)
    assert (a.db.get("v"), a.db.hgetall("h"), a.db.exists("fresh")) == ("first", {"f": 1}, False)
    a.restart()
    a.later(10)
    for waiting in a.db.future():
        assert a.db.withdraw(waiting.key, restamp=True)
    assert a.db.future() == ()
    a.restart()
    exchange(a, b)
    for node in (a, b):
        assert (node.db.get("v"), node.db.hgetall("h"), node.db.hgetall("fresh")) == (
            "late",
            {"new": 1},
            {"f": 1},
        )
        assert not node.db.read("v").conflicts
        assert not node.db.read("h").conflicts
    assert state(a.db) == state(b.db)


def test_a_delete_in_the_future_waits_and_is_restamped_as_one():
    a = Node(1, now_ms=NOW_MS)
    a.db.sadd("s", "a")
    glitch(a, lambda db: db.delete("s"))
    assert a.db.smembers("s") == ["a"]
    (waiting,) = a.db.future()
    assert (waiting.key, waiting.type, waiting.value) == ("s", None, None)
    a.db.withdraw("s", restamp=True)
    assert not a.db.exists("s")


def test_a_clock_that_was_never_set_hides_nothing():
    """A machine starts in 1970: it is the clock that is wrong, and edits go on above what is there."""
    a = Node(1, now_ms=NOW_MS, journal=MemoryJournal())
    fill(a.db)
    a.clock.set(5)
    a.restart()
    assert a.db.get("v") == "first"
    a.db.set("v", "second")
    assert a.db.future() == ()
    a.clock.set(NOW_MS + 1000)
    assert a.db.get("v") == "second"
    assert NOW_MS > CLOCK_SET_MS


def test_a_fork_from_a_wrong_clock_brings_nothing_of_the_future():
    a = Node(1, now_ms=NOW_MS)
    a.db.set("v", "first")
    fork = a.db.fork()
    glitch(a, lambda _: fork.set("v", "late"))
    fork.sync()
    assert a.db.get("v") is None  # the fork's write had replaced it
    assert [waiting.value for waiting in a.db.future()] == ["late"]
    for call in (fork.future, lambda: fork.withdraw("v")):
        with pytest.raises(WrongState, match="ask the parent"):
            call()


def test_a_write_that_nobody_would_believe_is_refused_and_nothing_is_stored():
    """More edits of one key than milliseconds, for an hour: the next stamp is beyond what peers believe."""
    a, b = Node(1, now_ms=NOW_MS + HOUR_MS), Node(2, now_ms=NOW_MS)
    a.db.set("k", 1)
    b.pull(a)
    before = b.db.snapshot()
    with pytest.raises(
        Rejected, match=f"key 'k': the write would be stamped {HOUR_MS + 1} ms ahead"
    ) as refused:
        b.db.set("k", 2)
    assert refused.value.code is Code.THROTTLED
    assert b.db.snapshot() is before
    b.later(1).set("k", 2)
    assert b.db.get("k") == 2


def test_a_key_of_which_all_waits_is_gone_from_the_state_before_a_restart_as_after_it():
    node = Node(1, now_ms=NOW_MS, journal=MemoryJournal())
    glitch(node, lambda db: db.set("k", "late"))
    assert [each.key for each in node.db.future()] == ["k"]
    before = state(node.db)
    node.restart()

    assert before == state(node.db) == state(Node(2).db)


@pytest.mark.parametrize("write", [lambda db: db.delete("k"), lambda db: db.set("k", "late")])
def test_what_a_set_aside_write_had_replaced_comes_back_with_the_peer_that_has_it(write):
    """The peer has signed nothing since: it is the very envelope that was absorbed before."""
    node, peer = Node(1, now_ms=NOW_MS), Node(2, now_ms=NOW_MS)
    peer.db.set("k", "theirs")
    node.pull(peer)
    glitch(node, write)
    node.pull(peer)

    assert node.db.get("k") == "theirs"
    assert [each.key for each in node.db.future()] == ["k"]
