"""Who has news to tell comes in once, has his share by his band, rises while he waits: examples beside the model."""

import pytest

from topics.sched.priority import age_boost
from topics.sched.ready import SLICE, ReadySet

S = 1_000_000


def drawn(ready, turns, *, now_us=0, cost=SLICE):
    """Who has the next turns, if nobody ever leaves."""
    found = []
    for _ in range(turns):
        topic = ready.next(now_us)
        ready.served(topic, cost)
        found.append(topic)
    return found


def one_a_band():
    ready = ReadySet()
    for topic, priority in (("below", -5), ("low", 0), ("middle", 250), ("high", 500), ("top", 750)):
        ready.mark(topic, priority, 0)
    return ready


@pytest.mark.rule("S10.6")
def test_a_round_gives_each_band_its_weight():
    ready = one_a_band()

    turns = drawn(ready, 32)

    one_round = ["top"] * 8 + ["high"] * 4 + ["middle"] * 2 + ["low", "below"]
    assert turns == one_round * 2
    assert list(ready.by_band) == [1, 1, 1, 1, 1]


@pytest.mark.rule("S10.6")
def test_who_takes_little_has_more_turns_and_who_took_too_much_owes_it():
    ready = one_a_band()
    ready.next(0)
    ready.served("top", 1)
    assert drawn(ready, 9)[:8] == ["top"] * 8  # 513 of 512, and then
    assert drawn(ready, 6) == ["high"] * 3 + ["middle"] * 2 + ["low"]

    assert drawn(ready, 1 + 8) == ["below"] + ["top"] * 8  # 511 are left of the next round: still eight turns


@pytest.mark.rule("S10.6")
@pytest.mark.invariant("I-13")
def test_who_would_be_next_is_told_at_once_out_of_the_share_of_its_band():
    ready = ReadySet()
    ready.mark("low", 0, 0)
    assert not ready.has_next_turn(750, 0)  # no round has begun
    assert drawn(ready, 1) == ["low"]
    assert not ready.has_next_turn(749, 0)
    for _ in range(8):
        assert ready.has_next_turn(750, 0)
        ready.served_at_once(SLICE)

    assert not ready.has_next_turn(750, 0)
    ready.mark("top", 750, 0)
    assert drawn(ready, 1) == ["top"]  # in a new round
    assert not ready.has_next_turn(750, 0)  # somebody is before it
    assert drawn(ready, 8) == ["top"] * 7 + ["low"]


@pytest.mark.rule("S10.6")
def test_what_a_round_took_too_much_the_next_one_lacks():
    ready = ReadySet()
    ready.mark("top", 750, 0)
    ready.mark("low", 0, 0)

    turns = "".join(topic[0] for topic in drawn(ready, 9 + 2 + 8 + 1 + 8 + 1, cost=SLICE - 1))

    assert turns == "t" * 9 + "l" * 2 + "t" * 8 + "l" + "t" * 8 + "l"


@pytest.mark.rule("S10.6")
def test_in_a_band_it_is_first_come_first_served_also_for_who_has_come_up():
    ready = ReadySet()
    ready.mark("old", 0, 0)
    ready.mark("young", 250, 2 * S)
    ready.mark("same", 250, 2 * S)
    assert ready.next(2 * S) == "young"

    assert ready.next(2 * S + 500_000) == "old"  # 250 by now, and there for longer
    assert list(ready.by_band) == [0, 0, 3, 0, 0]
    ready.done("old")
    assert ready.next(2 * S + 500_000) == "young"
    ready.done("young")
    ready.mark("young", 250, 2 * S + 600_000)  # in again, behind who was there
    assert ready.next(3 * S) == "same"


@pytest.mark.rule("S10.3", "S10.7")
def test_who_waits_rises_to_the_top_within_10_s():
    ready = ReadySet()
    for topic, priority in (("worst", -1000), ("below", -1), ("zero", 0)):
        ready.mark(topic, priority, 0)
    seen = []
    for now_us in range(0, 12 * S, 50_000):
        ready.next(now_us)
        if not seen or seen[-1][1] != ready.by_band:
            seen.append((now_us / S, ready.by_band))

    assert seen == [
        (0, (2, 1, 0, 0, 0)), (0.05, (1, 2, 0, 0, 0)), (2.5, (1, 1, 1, 0, 0)), (2.55, (1, 0, 2, 0, 0)),
        (5.0, (1, 0, 1, 1, 0)), (5.05, (1, 0, 0, 2, 0)), (7.5, (1, 0, 0, 1, 1)), (7.55, (1, 0, 0, 0, 2)),
        (10.0, (0, 1, 0, 0, 2)),
    ]  # fmt: skip
    assert [ready.age_boost(topic, 12 * S) for topic in ("worst", "nobody")] == [age_boost(12 * S), 0]


@pytest.mark.rule("S10.9")
def test_who_has_not_waited_for_the_window_has_no_turn_yet():
    ready = ReadySet()
    for topic, priority in (("below", -1), ("low", 0), ("middle", 250), ("high", 500)):
        ready.mark(topic, priority, 1000)
    due = [ready.due_us(topic, 20_000) for topic in ("below", "low", "middle", "high")]

    assert due == [21_000, 16_000, 11_000, 6000]
    assert ready.first_due_us(20_000) == 6000
    assert [ready.next(now_us, 20_000) for now_us in (5999, 6000)] == [None, "high"]
    ready.done("high")
    assert [ready.next(now_us, 20_000) for now_us in (10_999, 11_000)] == [None, "middle"]
    ready.mark("top", 750, 10_999)
    assert ready.next(10_999, 20_000) == "top"  # what matters most is not put off


@pytest.mark.rule("S10.11")
def test_who_is_held_has_no_turn_grows_no_older_and_comes_in_anew():
    ready = one_a_band()
    ready.hold()
    ready.mark("later", -1, S)
    assert (len(ready), ready.held, "below" in ready) == (4, 2, True)
    assert ready.age_boost("below", 9 * S) == 0
    assert "below" not in drawn(ready, 100, now_us=9 * S)

    ready.done("later")
    ready.let_go(20 * S)

    assert (len(ready), ready.held) == (5, 0)
    assert ready.due_us("below", 0) == 20 * S
    assert drawn(ready, 40, now_us=20 * S).count("below") > 0


def test_marks_of_a_topic_that_is_there_are_a_bug():
    ready = one_a_band()

    with pytest.raises(AssertionError):
        ready.mark("top", 0, 1)
