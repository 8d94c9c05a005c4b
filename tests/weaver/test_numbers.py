"""The numbers of the page, said once more: tests elsewhere count on the constants, whatever they are."""

from __future__ import annotations

import pytest

from tests.support.weaver_hashes import Hashes
from topics.crypto.hashing import blake3
from topics.weaver.graph.heads import KeyHead, winner
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.hlc import HLC
from topics.weaver.sync import limits
from topics.weaver.sync.messages import RangeFingerprint, RangeItemsRequest, Ranges
from topics.weaver.sync.ranges import FULL, Scheme
from topics.weaver.sync.reconcile import Reconciliation


@pytest.mark.rule("R5.8.5", "R5.9.3", "R5.2.9", "R5.6.1")
def test_the_bounds_are_those_of_the_page():
    bounds, options = Bounds(), limits.ExchangeOptions()
    assert (bounds.projection_chunk, bounds.walk_steps) == (256, 100_000)
    assert (bounds.floats_per_author, bounds.float_age_ms) == (10_000, 604_800_000)
    assert (limits.LEAF_HASHES, limits.LISTING_MAX, limits.FETCH_MAX, limits.CHAIN_MAX) == (32, 2048, 50, 32)
    assert (limits.BOOTSTRAP_BATCH, limits.BOOTSTRAP_LIMIT_MAX, options.bootstrap_limit) == (
        100,
        10_000,
        1000,
    )
    assert (options.idle_ms, options.total_ms, options.ack_debounce_ms) == (15_000, 30_000, 5000)
    assert (options.attest_gap_ms, options.attest_heartbeat_ms) == (300_000, 900_000)


@pytest.mark.rule("R5.8.2")
@pytest.mark.parametrize(("theirs", "part"), [(12, RangeItemsRequest), (13, RangeFingerprint)])
def test_hashes_travel_while_both_sides_have_32_together(theirs, part):
    own = Reconciliation(Hashes(blake3(b"%d" % at) for at in range(20)), Scheme.XOR, needs_max=100)
    answer = own.answer(Ranges((RangeFingerprint(FULL, bytes(32), theirs),)))
    assert isinstance(answer.parts[0], part)


@pytest.mark.rule("R5.5.2")
def test_of_one_author_and_stamp_the_greater_hash_wins():
    heads = tuple(KeyHead(bytes([at]) * 32, HLC(1, 0), bytes(32), b"%d" % at) for at in (1, 2, 3))
    assert winner(heads, lambda head: head.hlc).hash == b"\x03" * 32
