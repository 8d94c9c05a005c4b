"""A gap in an author's chain is closed by walking back from its newer end, or it is said that only a sync will help."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.weaver_nodes import Place
from tests.support.weaving import NOW, A, B, made, name_of
from topics.weaver.model.envelope import Envelope
from topics.weaver.sync.fetch import ChainWalk, WalkStage, serve_chain
from topics.weaver.sync.limits import CHAIN_MAX, CHAIN_ROUNDS_MAX
from topics.weaver.sync.messages import ChainReply, ChainRequest, Ending
from topics.weaver.sync.ranges import ZERO
from topics.weaver.sync.wire import decode, encode


def chain(count, key=A):
    items = [made(key, NOW)]
    while len(items) < count:
        items.append(made(key, NOW + len(items), prev=items[-1], ops=b"x"))
    return items


def place_with(items, number=1, **options):
    place = Place(number, **options)
    place.ingest(*items)
    return place


def walked(server, walk):
    """Play to its end; how many replies it took."""
    replies, request = 0, walk.request() if walk.walk is WalkStage.GOING else None
    while request is not None:
        replies += 1
        request = walk.receive(decode(encode(serve_chain(server.inventory, request))))
    return replies


@pytest.mark.rule("R5.9.1", "R11.38")
@pytest.mark.parametrize("fast", [False, True], ids=["verifying", "linked"])
@pytest.mark.parametrize(
    ("gap", "replies"), [(1, 1), (CHAIN_MAX - 1, 1), (CHAIN_MAX, 1), (CHAIN_MAX + 1, 2), (100, 4)]
)
def test_a_gap_of_any_length_is_closed_32_at_a_time(fast, gap, replies):
    items = chain(gap + 3)
    server, receiver = place_with(items), place_with(items[:2], 2, fast=fast)
    newest = items[-1]
    report = receiver.ingest(newest)
    (missing,) = report.missing
    walk = ChainWalk(receiver.inventory, target=missing.hash, since=missing.since, author=missing.author)
    took = walked(server, walk)

    assert walk.walk is WalkStage.CLOSED, walk.reason
    assert receiver.names == server.names
    assert walk.taken == gap
    assert took == replies


@pytest.mark.rule("R5.9.1")
def test_one_reply_holds_32_exclusive_of_since():
    items = chain(40)
    server = place_with(items)
    exact = serve_chain(server.inventory, ChainRequest(name_of(items[33]), name_of(items[1])))
    more = serve_chain(server.inventory, ChainRequest(name_of(items[34]), name_of(items[1])))

    assert exact.ending is Ending.REACHED
    assert list(exact.items) == items[33:1:-1]
    assert more.ending is Ending.MORE
    assert list(more.items) == items[34:2:-1]


@pytest.mark.rule("R5.9.1")
def test_genesis_unknown_and_empty_since_need_a_full_sync():
    items, others = chain(5), chain(5, B)
    server, receiver = place_with(items), place_with([], 2)

    nothing_known = ChainWalk(receiver.inventory, target=name_of(items[3]), since=ZERO, author=A.public)
    assert nothing_known.walk is WalkStage.FAILED
    elsewhere = ChainWalk(receiver.inventory, target=name_of(items[3]), since=b"\x05" * 32, author=A.public)
    walked(server, elsewhere)
    assert (elsewhere.walk, elsewhere.reason) == (WalkStage.FAILED, "the walk ended: genesis")
    absent = ChainWalk(receiver.inventory, target=name_of(others[3]), since=b"\x05" * 32, author=B.public)
    walked(server, absent)
    assert (absent.walk, absent.reason) == (WalkStage.FAILED, "the walk ended: unknown")


@pytest.mark.rule("R5.9.1")
def test_a_gap_without_end_is_given_up():
    items = chain(CHAIN_MAX * CHAIN_ROUNDS_MAX + 10)
    server, receiver = place_with(items), place_with(items[:1], 2)
    walk = ChainWalk(receiver.inventory, target=name_of(items[-1]), since=name_of(items[0]), author=A.public)

    assert walked(server, walk) == CHAIN_ROUNDS_MAX
    assert walk.walk is WalkStage.FAILED


@pytest.mark.rule("R5.7.1")
@pytest.mark.parametrize("fast", [False, True], ids=["verifying", "linked"])
def test_a_broken_link_another_author_and_more_than_asked_for_are_refused(fast):
    items, others = chain(8), chain(8, B)

    def answered(*reply):
        receiver = place_with(items[:2], 2, fast=fast)
        walk = ChainWalk(
            receiver.inventory, target=name_of(items[5]), since=name_of(items[1]), author=A.public
        )
        assert walk.receive(ChainReply(reply, Ending.REACHED)) is None
        return walk, receiver

    for reply in (
        (items[5], items[3], items[2]),
        (items[5], others[4], items[3], items[2]),
        (others[5],),
        (items[5], items[4], items[3], items[2], items[1]),
        (Envelope(b"rubbish", bytes(64)),),
    ):
        walk, receiver = answered(*reply)
        assert walk.walk is WalkStage.FAILED
        assert receiver.names <= {name_of(item) for item in items}
    walk, receiver = answered(items[5], items[4], items[3], items[2])
    assert walk.walk is WalkStage.CLOSED
    assert name_of(items[5]) in receiver.names


@pytest.mark.rule("R5.7.1")
def test_a_signature_on_the_newest_speaks_for_the_older_and_is_needed():
    items = chain(6)
    unsigned = [Envelope(item.body, bytes(64)) for item in items]

    def answered(reply, *, fast):
        receiver = place_with(items[:1], 2, fast=fast)
        walk = ChainWalk(
            receiver.inventory, target=name_of(items[5]), since=name_of(items[0]), author=A.public
        )
        walk.receive(ChainReply(tuple(reversed(reply)), Ending.REACHED))
        return walk, receiver

    linked, trusting = answered([*unsigned[1:5], items[5]], fast=True)
    assert linked.walk is WalkStage.CLOSED
    assert len(trusting.names) == 6
    # What nobody else could verify is not passed on; its successors wait for a copy with its signature.
    assert trusting.envelopes(*(name_of(item) for item in items)) == [items[0], items[5]]
    for reply, fast in (([*unsigned[1:5], items[5]], False), ([*items[1:5], unsigned[5]], True)):
        refused, receiver = answered(reply, fast=fast)
        assert refused.walk is WalkStage.FAILED
        assert receiver.names == {name_of(items[0])}


@settings(max_examples=25)
@given(st.integers(2, 120), st.data())
def test_whatever_is_lost_of_a_chain_a_walk_closes_the_gap(length, data):
    items = chain(length)
    known = data.draw(st.integers(1, length - 1))
    server, receiver = place_with(items), place_with(items[:known], 2)
    walk = ChainWalk(
        receiver.inventory, target=name_of(items[-1]), since=name_of(items[known - 1]), author=A.public
    )
    walked(server, walk)

    assert walk.walk is WalkStage.CLOSED
    assert receiver.names == server.names


@pytest.mark.rule("R5.9.1", "R5.2.7")
def test_somebody_elses_intention_is_no_part_of_the_chain():
    receiver, other = Place(2), made(B, NOW)
    walk = ChainWalk(receiver.inventory, target=name_of(other), since=b"\x01" * 32, author=A.public)
    walk.receive(ChainReply((other,), Ending.GENESIS))

    assert walk.walk is WalkStage.FAILED
    assert receiver.names == set()
