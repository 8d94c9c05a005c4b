"""Ranges of hashes: folds and listings of any range are those of the plain set, whatever was put in and taken out."""

from __future__ import annotations

from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.crypto.hashing import blake3
from topics.kernel.errors import Rejected
from topics.weaver.sync.ranges import (
    FULL,
    LAST,
    NOTHING,
    RUN_MAX,
    ZERO,
    Fold,
    HashRange,
    HashSet,
    Scheme,
    fold_of,
    midpoint,
)


def number(value: int) -> bytes:
    return value.to_bytes(32)


def name(value: int) -> bytes:
    return blake3(value.to_bytes(8))


# Few numbers at both ends and in the middle, so that bounds and values meet.
edges = st.sampled_from([0, 1, 2, 3, 2**255 - 1, 2**255, 2**255 + 1, 2**256 - 3, 2**256 - 2, 2**256 - 1])
hashes = edges.map(number) | st.integers(0, 2**256 - 1).map(number)
ranges = st.builds(HashRange, hashes, st.none() | hashes)


@pytest.mark.rule("R10.5", "R5.8.2")
def test_the_midpoint_is_rounded_down():
    assert midpoint(ZERO, LAST) == b"\x7f" + b"\xff" * 31
    assert midpoint(number(3), number(4)) == number(3)
    assert midpoint(number(3), number(5)) == number(4)
    assert midpoint(LAST, LAST) == LAST


@pytest.mark.rule("R5.8.1", "R5.8.6")
@given(st.sets(hashes), st.sets(hashes), st.lists(ranges, max_size=8))
def test_folds_and_listings_are_those_of_the_plain_set(given_first, others, asked):
    target, oracle = HashSet(given_first), set(given_first)
    for value in sorted(others):
        assert target.add(value) is (value not in oracle)
        oracle.add(value)
    for value in sorted(given_first)[::2]:
        assert target.discard(value) is True
        assert target.discard(value) is False
        oracle.discard(value)

    assert list(target) == sorted(oracle)
    assert len(target) == len(oracle)
    for over in [FULL, *asked]:
        inside = sorted(value for value in oracle if over.holds(value))

        assert target.fold(over) == fold_of(inside)
        assert target.listing(over, len(inside)) == inside
    for value in sorted(given_first | others):
        assert (value in target) == (value in oracle)


def test_many_hashes_in_any_order_split_runs_and_keep_every_prefix():
    names = [name(i) for i in range(20 * RUN_MAX)]
    target = HashSet(names[:RUN_MAX])
    for at, value in enumerate(names[RUN_MAX:]):
        target.add(value)
        if at % 97 == 0:  # questions in between, so that prefixes are made and go stale
            over = HashRange(names[at], None)

            assert target.fold(over) == fold_of(n for n in names[: RUN_MAX + at + 1] if over.holds(n))
    assert list(target) == sorted(names)
    for value in names:
        assert target.discard(value)

    assert list(target) == []
    assert target.fold() == NOTHING
    assert target.add(names[0])


def test_hashes_that_share_a_prefix_leave_runs_short():
    ground = [b"\x00" * 28 + i.to_bytes(4) for i in range(4096)]
    target = HashSet()
    for value in ground:
        target.add(value)

    assert max(len(run) for run in target._runs) <= RUN_MAX
    assert target.fold(HashRange(ground[7], ground[4000])) == fold_of(ground[7:4000])


@pytest.mark.rule("R5.8.3")
@pytest.mark.parametrize(
    "over", [HashRange(LAST, ZERO), HashRange(number(5), number(5)), HashRange(ZERO, ZERO)]
)
def test_an_inverted_or_zero_width_range_is_empty(over):
    target = HashSet([ZERO, number(5), LAST])

    assert over.is_empty
    assert target.fold(over) == NOTHING
    assert target.listing(over, 0) == []
    assert NOTHING.fingerprint(Scheme.XOR) == ZERO


def test_the_stop_is_exclusive_and_the_last_hash_needs_an_open_one():
    target = HashSet([ZERO, number(5), LAST])

    assert target.listing(HashRange(ZERO, number(5)), 9) == [ZERO]
    assert target.listing(HashRange(number(5), LAST), 9) == [number(5)]
    assert target.listing(HashRange(number(5), None), 9) == [number(5), LAST]
    assert LAST in target


def test_a_listing_refuses_more_than_its_limit_and_says_how_many():
    target = HashSet(name(i) for i in range(11))

    assert len(target.listing(FULL, 11)) == 11
    with pytest.raises(Rejected, match="11 hashes are in it, 10 at most"):
        target.listing(FULL, 10)


@given(hashes, st.none() | hashes)
def test_halves_are_disjoint_cover_the_range_and_end(start, stop):
    over = HashRange(start, stop)
    if over.is_empty:
        return
    depth = 0
    while (halves := over.halves()) is not None:
        left, right = halves

        assert (left.start, left.stop, right.stop) == (over.start, right.start, over.stop)
        assert not left.is_empty
        assert not right.is_empty
        over = right if depth % 2 else left
        depth += 1
    assert depth <= 256


def test_folds_of_disjoint_sets_add_up():
    left, right = [name(1), name(2)], [name(3)]
    both = fold_of(left + right)

    assert fold_of(left).plus(fold_of(right)) == both
    assert both.minus(fold_of(left)) == fold_of(right)
    assert both.xor == reduce(xor, (int.from_bytes(value) for value in left + right))


def cancelling() -> list[bytes]:
    """Four hashes of different values whose XOR is zero: linear algebra finds such sets in no time."""
    a, b, c = (int.from_bytes(name(i)) for i in range(3))
    return [number(value) for value in (a, b, c, a ^ b ^ c)]


@pytest.mark.rule("R8.11", "R5.8.1")
def test_xor_alone_takes_sets_for_equal_that_count_or_sum_tell_apart():
    common = [name(i) for i in range(10, 20)]
    plain, padded = fold_of(common), fold_of(common + cancelling())

    assert plain.fingerprint(Scheme.XOR) == padded.fingerprint(Scheme.XOR)
    assert plain.size != padded.size
    # Of one size the count says nothing: x and y for x ^ d and y ^ d.
    x, y, d = (int.from_bytes(name(i)) for i in (30, 31, 32))
    first = fold_of([number(x), number(y)])
    second = fold_of([number(x ^ d), number(y ^ d)])

    assert (first.fingerprint(Scheme.XOR), first.size) == (second.fingerprint(Scheme.XOR), second.size)
    assert first.fingerprint(Scheme.HASHED_SUM) != second.fingerprint(Scheme.HASHED_SUM)


def test_a_hashed_sum_is_that_of_sum_and_count():
    assert Fold(1, 2, 3).fingerprint(Scheme.HASHED_SUM) == blake3(number(2) + (3).to_bytes(8))
