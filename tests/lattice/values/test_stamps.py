"""Writes are stamped above what they edit, and stamps from the future wait, unaltered (replication 1.3)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import WrongState
from topics.lattice.values.algebra import LwwLattice, MapLattice
from topics.lattice.values.laws import check_mutator
from topics.lattice.values.stamps import MAX_DRIFT_MS, STAMP_MAX, Deferral, is_future, next_stamp

NOW = 1_700_000_000_000
REGISTERS = MapLattice(LwwLattice())


def newest(value):
    return max((stamp for _, stamp in value.values()), default=0)


def deferral(**options):
    return Deferral(REGISTERS, newest, **options)


def written(stamp, key="k"):
    return {key: (f"v{stamp}", stamp)}


@pytest.mark.rule("R1.3.1")
@pytest.mark.parametrize(
    ("now", "newest_stamp", "stamp"),
    [(1000, 0, 1000), (1000, 999, 1000), (1000, 1000, 1001), (500, 1000, 1001), (0, 0, 1)],
)
def test_a_write_is_stamped_above_its_object(now, newest_stamp, stamp):
    """The wall clock, or one more than the newest stamp inside."""
    assert next_stamp(now, newest_stamp) == stamp


def test_the_last_stamp_cannot_be_followed():
    """It is said, not wrapped: 48 bits, whether it is the object or the clock that is at the end of them."""
    assert next_stamp(0, STAMP_MAX - 1) == STAMP_MAX == 2**48 - 1
    for now, newest_stamp in ((0, STAMP_MAX), (STAMP_MAX + 1, 0), (0, 2**63 - 1), (2**63, 1)):
        with pytest.raises(WrongState, match=f"above the last one that can be written, {STAMP_MAX}"):
            next_stamp(now, newest_stamp)


@pytest.mark.rule("R1.3.1", "R9.5", "R1.1.1")
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_p5_writes_move_up_whatever_the_clock_does(times):
    """A clock that stands or steps back: set then delete in one millisecond is ordered. The raw clock is not enough."""
    lww = LwwLattice()
    register = lww.zero()
    for now, value in zip(times, itertools.cycle(["set", None]), strict=False):
        edited = (value, next_stamp(now, register[1]))
        check_mutator(lww, register, edited)
        register = edited

    raw = [("set", 5), (None, 4)]
    with pytest.raises(AssertionError, match="not upwards"):
        check_mutator(lww, *raw)


@pytest.mark.rule("R1.3.2")
def test_exactly_the_drift_is_believed():
    """One millisecond more is not."""
    assert is_future(NOW + MAX_DRIFT_MS, NOW) is False
    assert is_future(NOW + MAX_DRIFT_MS + 1, NOW) is True


@pytest.mark.rule("R1.3.2")
def test_a_value_from_the_future_waits_and_is_merged_as_it_was():
    """It is the same object when its time comes, at the very millisecond."""
    waiting = deferral()
    early, late = written(NOW + MAX_DRIFT_MS + 5), written(NOW + 2 * MAX_DRIFT_MS)

    assert waiting.admit(written(NOW), NOW) == written(NOW)
    assert waiting.admit(late, NOW) is None
    assert waiting.admit(early, NOW) is None
    assert waiting.next_due_ms() == NOW + 5
    assert waiting.release(NOW + 4) == []
    (released,) = waiting.release(NOW + 5)
    assert released is early
    assert waiting.waiting() == (late,)
    assert waiting.release(NOW + MAX_DRIFT_MS) == [late]
    assert waiting.next_due_ms() is None
    assert len(waiting) == 0


@pytest.mark.rule("R1.3.2")
def test_two_nodes_with_different_clocks_agree_in_the_end():
    """One node hears of the write early, one late. Rewriting its stamp by the local clock would part them for ever."""
    future, rival = written(NOW + 2 * MAX_DRIFT_MS), {"k": ("rival", NOW + MAX_DRIFT_MS)}
    states = []
    for heard_at in (NOW, NOW + 3 * MAX_DRIFT_MS):
        waiting, state = deferral(), REGISTERS.zero()
        for value in (future, rival):
            admitted = waiting.admit(value, heard_at)
            state = state if admitted is None else REGISTERS.join(state, admitted)
        for value in waiting.release(NOW + 3 * MAX_DRIFT_MS):
            state = REGISTERS.join(state, value)
        states.append(state)
    clamped = [
        {"k": ("x", min(NOW + 2 * MAX_DRIFT_MS, heard_at))} for heard_at in (NOW, NOW + 3 * MAX_DRIFT_MS)
    ]

    assert states[0] == states[1] == future
    assert REGISTERS.join(rival, clamped[0]) != REGISTERS.join(rival, clamped[1]), "the literal rewrite"


@pytest.mark.rule("R1.3.2")
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=20),
    st.integers(1, 4),
    st.lists(st.integers(0, 8), max_size=10),
)
def test_nothing_that_waits_is_lost_or_early_however_little_room_there_is(values, room, steps):
    """With any room the state at the end is the join of everything, and before that holds nothing from the future."""
    waiting, now, state = deferral(max_drift_ms=5, room=room), 0, REGISTERS.zero()
    everything = REGISTERS.zero()
    moves = itertools.chain(steps, itertools.repeat(0))
    for stamp, key in values:
        now += next(moves)
        for due in waiting.release(now):
            state = REGISTERS.join(state, due)
        everything = REGISTERS.join(everything, written(stamp, key))
        admitted = waiting.admit(written(stamp, key), now)
        if admitted is not None:
            state = REGISTERS.join(state, admitted)
        assert len(waiting) <= room
        assert newest(state) <= now + 5
        assert sorted(map(newest, waiting.waiting())) == [newest(value) for value in waiting.waiting()]
    for due in waiting.release(100):
        state = REGISTERS.join(state, due)

    assert state == everything


@pytest.mark.rule("R1.3.2")
def test_a_stamp_far_away_does_not_take_others_along():
    """With two places, three values: the two that are near in time wait together, the year 3000 by itself."""
    waiting = deferral(room=2)
    far = written(NOW + 10**13, "far")
    for value in (far, written(NOW + MAX_DRIFT_MS + 10, "a"), written(NOW + MAX_DRIFT_MS + 20, "b")):
        assert waiting.admit(value, NOW) is None

    assert waiting.next_due_ms() == NOW + 20
    assert waiting.release(NOW + 20) == [
        {**written(NOW + MAX_DRIFT_MS + 10, "a"), **written(NOW + MAX_DRIFT_MS + 20, "b")}
    ]
    assert waiting.waiting() == (far,)


@pytest.mark.rule("R1.3.2")
def test_two_stamps_far_away_wait_together_and_leave_the_near_one_alone():
    """The nearest neighbours share a place wherever they stand, so what is due soon is not put off to the year 3000."""
    waiting = deferral(room=2)
    near = written(NOW + MAX_DRIFT_MS + 10, "near")
    for value in (near, written(NOW + 10**13, "a"), written(NOW + 10**13 + 1, "b")):
        assert waiting.admit(value, NOW) is None

    assert waiting.release(NOW + 10) == [near]
    assert len(waiting) == 1


def test_what_waits_survives_a_snapshot():
    """Given to admit again, it waits for the same time."""
    before, after = deferral(), deferral()
    for stamp in (NOW + 2 * MAX_DRIFT_MS, NOW + 3 * MAX_DRIFT_MS):
        before.admit(written(stamp), NOW)

    for value in before.waiting():
        assert after.admit(value, NOW) is None

    assert after.waiting() == before.waiting()
    assert after.next_due_ms() == before.next_due_ms()
