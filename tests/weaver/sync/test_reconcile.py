"""Reconciliation ends, each side learns exactly what it lacks, and what a payload may ask for is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.weaver_hashes import Hashes
from topics.crypto.hashing import blake3
from topics.kernel.errors import Rejected
from topics.weaver.sync.limits import LISTING_MAX, PARTS_MAX, PAYLOAD_HASHES_MAX
from topics.weaver.sync.messages import (
    ListedHash,
    RangeDone,
    RangeFingerprint,
    RangeItemsReply,
    RangeItemsRequest,
    Ranges,
)
from topics.weaver.sync.ranges import FULL, LAST, ZERO, HashRange, Scheme
from topics.weaver.sync.reconcile import Reconciliation
from topics.weaver.sync.wire import decode, encode


def name(value: int) -> bytes:
    return blake3(value.to_bytes(8))


def names(*values: int) -> set[bytes]:
    return {name(value) for value in values}


def side(hashes, scheme=Scheme.XOR, needs_max=100_000):
    return Reconciliation(Hashes(hashes), scheme, needs_max=needs_max)


def talk(first: Reconciliation, second: Reconciliation) -> tuple[int, int]:
    """Play to the end, over the wire; payloads and bytes."""
    payload, turns = first.open(), [second, first]
    payloads = size = 0
    while payload is not None:
        assert payloads < 1000, "it does not end"
        data = encode(payload)
        payloads, size = payloads + 1, size + len(data)
        payload = turns[payloads % 2 - 1].answer(decode(data))
    assert first.backlog == second.backlog == 0
    return payloads, size


@pytest.mark.rule("R10.6", "R5.8.2", "R5.8.3")
def test_each_learns_what_it_lacks():
    a, b = side(names(*range(8))), side(names(*range(5, 13)))
    talk(a, b)

    assert set(a.needs) == names(*range(8, 13))
    assert set(b.needs) == names(*range(5))


@pytest.mark.rule("R10.6")
@pytest.mark.parametrize("both", [[], range(3), range(2000)], ids=["empty", "few", "many"])
def test_identical_sets_need_nothing_and_one_answer(both):
    a, b = side(names(*both)), side(names(*both))

    assert talk(a, b)[0] == 2
    assert a.needs == b.needs == {}


@pytest.mark.rule("R10.6")
def test_one_more_is_exactly_one_need():
    a, b = side(names(*range(20))), side(names(*range(21)))
    talk(a, b)

    assert set(a.needs) == names(20)
    assert b.needs == {}


@pytest.mark.rule("R10.6")
def test_five_and_five_of_two_hundred_common():
    common = range(200)
    a, b = side(names(*common, *range(300, 305))), side(names(*common, *range(400, 405)))
    talk(a, b)

    assert set(a.needs) == names(*range(400, 405))
    assert set(b.needs) == names(*range(300, 305))


@pytest.mark.rule("R9.31")
@pytest.mark.parametrize("scheme", list(Scheme))
@given(
    common=st.sets(st.integers(0, 400)),
    mine=st.sets(st.integers(500, 900)),
    theirs=st.sets(st.integers(1000, 1400)),
    at_ends=st.sets(st.sampled_from([ZERO, LAST, LAST[:-1] + b"\xfe", ZERO[:-1] + b"\x01"])),
)
@settings(max_examples=40)
def test_it_ends_and_finds_the_difference_whatever_the_sets(scheme, common, mine, theirs, at_ends):
    a = side(names(*common, *mine) | at_ends, scheme)
    b = side(names(*common, *theirs), scheme)
    talk(a, b)

    assert set(a.needs) == names(*theirs)
    assert set(b.needs) == names(*mine) | at_ends


@pytest.mark.rule("R5.8.6")
def test_the_hash_of_all_ff_is_compared_and_listed():
    a, b = side(names(*range(100)) | {LAST}), side(names(*range(100)))
    talk(a, b)

    assert set(b.needs) == {LAST}


@pytest.mark.rule("R5.8.6")
def test_a_difference_of_thousands_of_ranges_is_put_off_and_still_ends():
    a, b = side(names(*range(40_000))), side([])
    payloads, _ = talk(a, b)

    assert len(b.needs) == 40_000
    assert a.needs == {}
    assert payloads < 60


def test_no_payload_has_more_parts_than_its_bound():
    a, b = side(names(*range(60_000))), side(names(*range(60_000, 100_000)))
    payload, turns, longest = a.open(), [b, a], 0
    while payload is not None:
        longest = max(longest, len(payload.parts))
        payload = turns[0].answer(payload)
        turns.reverse()

    assert longest == PARTS_MAX
    assert (len(a.needs), len(b.needs)) == (40_000, 60_000)


def test_what_is_needed_comes_in_the_others_witness_order():
    a = side([])
    listed = sorted((ListedHash(name(i), 100 - i) for i in range(10)), key=lambda item: item.hash)
    a.answer(Ranges((RangeItemsReply(FULL, tuple(listed)),)))

    assert a.take_needs() == [name(i) for i in reversed(range(10))]
    assert a.needs == {}


def test_beyond_its_bound_the_earliest_are_needed():
    a = side([], needs_max=3)
    for i in reversed(range(10)):
        a.answer(Ranges((RangeItemsReply(FULL, (ListedHash(name(i), i + 1),)),)))
        assert len(a.needs) <= 6

    assert a.take_needs() == [name(0), name(1), name(2)]


@pytest.mark.rule("R8.11")
def test_sets_whose_xor_is_the_same_are_told_apart_by_count_and_by_the_stronger_fingerprint():
    x, y, d = (int.from_bytes(name(i)) for i in (30, 31, 32))
    first = {value.to_bytes(32) for value in (x, y)}
    second = {value.to_bytes(32) for value in (x ^ d, y ^ d)}
    weak, strong = side(first), side(first, Scheme.HASHED_SUM)
    talk(weak, side(second))
    talk(strong, side(second, Scheme.HASHED_SUM))

    assert weak.needs == {}, "XOR alone cannot see it: that is why there is a stronger one"
    assert set(strong.needs) == second
    cancelling = [value.to_bytes(32) for value in (x, y, d, x ^ y ^ d)]
    less, more = side(names(*range(9))), side(names(*range(9)) | set(cancelling))
    talk(less, more)

    assert set(less.needs) == set(cancelling)


@pytest.mark.rule("R5.8.3")
def test_nobody_lists_more_than_2048_hashes_of_one_range():
    few, many = side(names(*range(LISTING_MAX))), side(names(*range(LISTING_MAX + 1)))

    reply = few.answer(Ranges((RangeItemsRequest(FULL, ()),)))
    assert len(reply.parts[0].items) == LISTING_MAX
    with pytest.raises(Rejected, match="2049 hashes are in it"):
        many.answer(Ranges((RangeItemsRequest(FULL, ()),)))


def test_a_payload_that_asks_for_everything_again_and_again_is_refused():
    target = side(names(*range(2000)))
    asked = Ranges((RangeItemsRequest(FULL, ()),) * (PAYLOAD_HASHES_MAX // 2000 + 1))

    with pytest.raises(Rejected, match="more than 65536 hashes"):
        target.answer(asked)


def test_a_claimed_count_cannot_make_a_small_range_split_for_ever():
    target, rounds = side(names(1)), 0
    payload = Ranges((RangeFingerprint(FULL, b"\x01" * 32, 2**64 - 1),))
    while payload and any(isinstance(part, RangeFingerprint) for part in payload.parts):
        # The liar contradicts the first range of each answer, with a count as large as can be.
        over = next(part.over for part in payload.parts if isinstance(part, RangeFingerprint))
        payload = target.answer(Ranges((RangeFingerprint(over, b"\x01" * 32, 2**64 - 1),)))
        rounds += 1

    assert rounds <= 258


def test_open_ranges_are_capped():
    target = side(names(1))
    narrow = [HashRange(i.to_bytes(32), (i + 2).to_bytes(32)) for i in range(0, 4 * PARTS_MAX, 4)]
    lies = Ranges(tuple(RangeFingerprint(over, b"\x01" * 32, 99) for over in narrow[:PARTS_MAX]))

    with pytest.raises(Rejected, match="are open"):
        for _ in range(70):
            assert len(target.answer(lies).parts) <= PARTS_MAX


def test_done_is_answered_by_nothing():
    assert side([]).answer(Ranges((RangeDone(FULL),) * 3)) is None
    assert side([]).answer(Ranges(())) is None
