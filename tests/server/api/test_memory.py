"""Accounts of memory: bounded, held in steps, given back whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Code, Rejected
from topics.server.api.memory import STEP_BYTES, MemoryAccount, Share


def test_more_than_the_bound_is_refused_and_nothing_is_taken_on():
    account = MemoryAccount("held", "requests", 100)
    account.hold(60)
    account.hold(40)
    with pytest.raises(Rejected) as refused:
        account.hold(1)

    assert account.size == 100
    assert refused.value.code is Code.THROTTLED
    assert refused.value.detail == {"limit": "held", "max": 100}
    account.release(100)
    account.hold(100)


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=40))
def test_a_share_covers_what_has_come_at_most_a_step_more_and_never_more_than_there_will_be(pieces):
    account, most, came = MemoryAccount("held", "requests", 1 << 40), sum(pieces), 0
    share, other = Share(account), Share(account)
    other.cover(7, most=7)
    for piece in pieces:
        came += piece
        share.cover(came, most=most)
        assert came <= share.size <= min(came + STEP_BYTES, most)
        assert account.size == share.size + 7
    share.release()
    share.release()

    assert (share.size, account.size) == (0, 7)


def test_small_pieces_are_held_in_steps():
    account, sizes = MemoryAccount("held", "requests", 1 << 40), set()
    share = Share(account)
    for came in range(1, 4 * STEP_BYTES, 100):
        share.cover(came, most=1 << 30)
        sizes.add(account.size)
    assert sizes == {STEP_BYTES * step for step in range(1, 5)}


def test_a_share_that_cannot_grow_keeps_what_it_has():
    account = MemoryAccount("held", "requests", STEP_BYTES + 10)
    share = Share(account)
    share.cover(1, most=1 << 30)
    with pytest.raises(Rejected):
        share.cover(STEP_BYTES + 1, most=1 << 30)

    assert share.size == account.size == STEP_BYTES
    share.release()
    assert account.size == 0
