"""A sync session gives both sides the union, fetches nothing twice, and ends in a named way whatever the peer does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.weaver_nodes import OPTIONS, Line, Place, sync
from tests.support.weaving import NOW, STORE, A, B, made, name_of
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.envelope import Envelope
from topics.weaver.sync.limits import FETCH_MAX, ExchangeOptions
from topics.weaver.sync.messages import (
    Fetch,
    FetchReply,
    FrontierTips,
    Hello,
    ListedHash,
    RangeDone,
    RangeFingerprint,
    RangeItemsReply,
    Ranges,
    Refusal,
    SyncDone,
)
from topics.weaver.sync.ranges import FULL, ZERO, Scheme
from topics.weaver.sync.session import TRANSITIONS, SessionPhase


def finished(*sessions):
    return all(session.phase is SessionPhase.FINISHED for session in sessions)


@pytest.mark.rule("R5.8.4", "R11.37")
def test_two_sides_end_with_the_union_and_both_say_done():
    one, other = Place(1), Place(2)
    for i in range(8):
        one.write(b"%d" % i)
    for i in range(5):
        other.write(b"%d" % i)
    first, second, _ = sync(one, other)

    assert finished(first, second)
    assert one.names == other.names
    assert len(one.names) == 13
    assert one.store.fingerprint == other.store.fingerprint
    assert (first.tally.taken, second.tally.taken) == (5, 8)
    assert (first.tally.given, second.tally.given) == (8, 5)
    assert first.pending_ranges == second.pending_ranges == first.active_fetches == second.active_fetches == 0


@pytest.mark.rule("R10.6", "R5.8.4")
def test_equal_and_empty_sides_need_one_answer_and_no_fetch():
    one, other = Place(1), Place(2)
    first, second, line = sync(one, other)

    assert finished(first, second)
    assert first.tally.asked == second.tally.asked == 0
    assert line.messages == 5, "Hello, fingerprint, Done, and SyncDone of each"


@pytest.mark.rule("R9.31")
@settings(max_examples=30)
@given(
    common=st.integers(0, 60),
    mine=st.integers(0, 70),
    theirs=st.integers(0, 70),
    scheme=st.sampled_from(Scheme),
)
def test_each_side_fetches_only_what_it_lacked(common, mine, theirs, scheme):
    one, other = Place(1), Place(2)
    for i in range(common):
        one.write(b"%d" % i)
    sync(one, other)
    for i in range(mine):
        one.write(b"m%d" % i)
    for i in range(theirs):
        other.write(b"t%d" % i)
    first, second, _ = sync(one, other, scheme=scheme)

    assert finished(first, second)
    assert one.names == other.names
    assert len(one.names) == common + mine + theirs
    assert (first.tally.asked, first.tally.taken) == (theirs, theirs)
    assert (second.tally.asked, second.tally.taken) == (mine, mine)


@pytest.mark.rule("R10.6", "R5.8.4")
@pytest.mark.parametrize("delivered", range(0, 12, 2))
def test_a_stream_closed_before_both_are_done_is_an_error(delivered):
    one, other = Place(1), Place(2)
    one.write(b"a")
    other.write(b"b")
    first, second = one.session(initiator=True), other.session(initiator=False)
    line = Line(first, second)
    for _ in range(delivered):
        if line.waiting:
            line.step()
    over = finished(first)
    first.closed()

    assert first.phase is (SessionPhase.FINISHED if over else SessionPhase.CLOSED)
    assert over or "before both sides were done" in first.reason


@pytest.mark.rule("R10.6", "R5.2.4", "R9.28")
def test_what_floats_is_neither_counted_nor_sent():
    one, other = Place(1), Place(2)
    absent = made(A, NOW)
    one.ingest(made(A, NOW + 1, prev=absent))
    first, second, _ = sync(one, other)

    assert finished(first, second)
    assert len(one.store.floating) == 1
    assert other.names == set()
    assert len(other.store.floating) == 0
    assert one.store.fingerprint == other.store.fingerprint == ZERO


def test_what_floats_here_is_not_fetched_again():
    one, other = Place(1), Place(2)
    root = made(A, NOW)
    child = made(A, NOW + 1, prev=root)
    one.ingest(child)
    other.ingest(root, child)
    first, _, _ = sync(one, other)

    assert first.tally.asked == 1
    assert one.names == other.names
    assert len(one.store.floating) == 0


def test_a_long_history_arrives_in_witness_order_so_that_nothing_floats_away():
    one, other = Place(1), Place(2, bounds=Bounds(floats_per_author=60))
    for i in range(600):
        one.write(b"%d" % i)
    first, second, _ = sync(other, one)

    assert finished(first, second)
    assert [node.hash for node in other.store.graph.order] == [node.hash for node in one.store.graph.order]


@pytest.mark.rule("R5.8.5")
def test_fetching_goes_in_batches_the_last_reply_is_flagged_and_unknown_hashes_are_absent():
    one, other = Place(1), Place(2)
    names = [one.write(b"%d" % i) for i in range(3)]
    serving = one.session(initiator=False)
    serving.receive(Hello(STORE, Scheme.XOR, ZERO))
    asked = (names[0], b"\x77" * 32, names[2])
    (reply,) = [m for m in serving.receive(Fetch(asked)) if isinstance(m, FetchReply)]

    assert reply.done
    assert [name_of(item) for item in reply.items] == [names[0], names[2]]
    for i in range(FETCH_MAX):
        other.write(b"%d" % i)
    asking = one.session(initiator=True)
    line = Line(asking, other.session(initiator=False)).run()
    assert asking.tally.asked == FETCH_MAX
    assert line.ends[0].phase is SessionPhase.FINISHED


@pytest.mark.rule("R5.8.5")
def test_large_intentions_come_in_several_replies_and_only_the_last_is_flagged():
    one = Place(1)
    names = [one.write(bytes(100_000) + b"%d" % i) for i in range(25)]
    serving = one.session(initiator=False)
    serving.receive(Hello(STORE, Scheme.XOR, ZERO))
    replies = [m for m in serving.receive(Fetch(tuple(names))) if isinstance(m, FetchReply)]

    assert [reply.done for reply in replies] == [False] * (len(replies) - 1) + [True]
    assert len(replies) > 1
    assert [name_of(item) for reply in replies for item in reply.items] == names


def fetching(place, *names):
    """A session of `place` that has asked for these hashes."""
    session = place.session(initiator=True)
    session.open()
    listed = tuple(
        ListedHash(name, seq) for seq, name in sorted(enumerate(names, 1), key=lambda pair: pair[1])
    )
    answers = session.receive(Ranges((RangeItemsReply(FULL, listed),)))
    assert [m.hashes for m in answers if isinstance(m, Fetch)] == [names]
    return session


@pytest.mark.rule("R5.8.5", "R9.34")
def test_invalid_and_unasked_items_are_skipped_and_the_rest_is_taken():
    good, forged, unasked = made(A, NOW), made(B, NOW), made(B, NOW + 1)
    forged = Envelope(forged.body, bytes(64))
    place = Place(3)
    session = fetching(place, name_of(good), name_of(forged))
    session.receive(FetchReply((forged, unasked, good, Envelope(b"rubbish", bytes(64))), done=True))

    assert place.names == {name_of(good)}
    assert session.tally.taken == 1
    assert session.tally.skipped == 3
    assert session.phase is SessionPhase.SYNCING


def test_what_was_promised_and_never_came_is_told():
    place = Place(3)
    session = fetching(place, b"\x01" * 32, b"\x02" * 32)
    answers = session.receive(FetchReply((), done=True))

    assert session.tally.absent == 2
    assert SyncDone() in answers


@pytest.mark.rule("R5.8.7", "R5.8.4")
def test_silence_and_length_end_a_session_at_their_deadlines():
    place = Place(1)
    idle = place.session(initiator=True)
    idle.open()

    assert idle.deadline_ms == place.clock.now_ms() + 15_000
    place.clock.advance(14_999)
    idle.tick()
    assert idle.phase is SessionPhase.SYNCING
    place.clock.advance(1)
    idle.tick()
    assert idle.phase is SessionPhase.TIMED_OUT
    assert idle.deadline_ms is None
    assert idle.receive(SyncDone()) == []

    slow = place.session(initiator=True)
    slow.open()
    slow.receive(Ranges((RangeDone(FULL),)))
    for _ in range(2):
        place.clock.advance(12_000)
        slow.receive(Fetch((b"\x01" * 32,)))
    assert slow.phase is SessionPhase.SYNCING
    place.clock.advance(6_000)
    slow.tick()
    assert slow.phase is SessionPhase.TIMED_OUT
    assert "not done in 30000 ms" in slow.reason


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([Hello(bytes(16), Scheme.XOR, ZERO)], "is not the store"),
        ([Ranges(())], "Ranges has no place"),
        ([SyncDone()], "SyncDone has no place"),
        ([Fetch(())], "Fetch has no place"),
        ([FrontierTips(())], "FrontierTips has no place"),
        ([Hello(STORE, Scheme.XOR, ZERO)] * 2, "Hello has no place"),
        ([Hello(STORE, Scheme.XOR, ZERO), FetchReply((), done=True)], "FetchReply has no place"),
        (
            [
                Hello(STORE, Scheme.XOR, ZERO),
                Ranges((RangeFingerprint(FULL, ZERO, 9),)),
                Ranges(()),
                Ranges(()),
            ],
            "Ranges has no place",
        ),
        ([Refusal("no")], "the peer refused: no"),
    ],
    ids=range(9),
)
def test_what_breaks_the_protocol_ends_the_session_with_a_reason(messages, why):
    place = Place(1)
    place.write(b"a")
    session = place.session(initiator=False)
    answers = []
    for message in messages:
        answers = session.receive(message)

    assert session.phase is SessionPhase.REFUSED
    assert why in session.reason
    assert answers == ([] if isinstance(messages[-1], Refusal) else [Refusal(session.reason)])
    assert session.receive(SyncDone()) == []


def test_a_weaker_fingerprint_than_this_nodes_is_refused_and_a_stronger_one_adopted():
    one, other = Place(1), Place(2)
    one.write(b"a")
    weak, strict = one.session(initiator=True), other.session(initiator=False, scheme=Scheme.HASHED_SUM)
    Line(weak, strict).run()

    assert weak.phase is strict.phase is SessionPhase.REFUSED
    assert "too weak" in strict.reason
    strong, lax = one.session(initiator=True, scheme=Scheme.HASHED_SUM), other.session(initiator=False)
    Line(strong, lax).run()
    assert finished(strong, lax)
    assert one.names == other.names


def test_needs_beyond_the_bound_are_the_next_sessions():
    one, other = Place(1), Place(2)
    for i in range(100):
        one.write(b"%d" % i)
    options = ExchangeOptions(needs_max=10)
    taken = []
    for _ in range(12):
        first, _, _ = sync(other, one, options=options)
        taken.append(first.tally.taken)

    assert all(count in range(10, 101) for count in taken[:1])
    assert other.names == one.names
    assert sum(taken) == 100


def test_phases_only_move_along_their_table():
    assert set(TRANSITIONS) == set(SessionPhase)
    assert TRANSITIONS[SessionPhase.FINISHED] == frozenset()
    assert SessionPhase.FINISHED not in TRANSITIONS[SessionPhase.OPENING]
    assert OPTIONS.idle_ms < OPTIONS.total_ms


def test_a_done_said_before_the_last_payload_was_heard_no_longer_holds():
    session = Place(1).session(initiator=True)
    session.open()
    session.receive(SyncDone())
    answers = session.receive(Ranges((RangeDone(FULL),)))

    assert answers == [SyncDone()]
    assert session.phase is SessionPhase.SYNCING
    session.receive(SyncDone())
    assert session.phase is SessionPhase.FINISHED


@pytest.mark.rule("R5.2.10")
def test_what_is_kept_as_evidence_only_is_not_fetched_again_and_the_session_ends():
    one, strict = Place(8), Place(9, strict_linearity=True)
    root = made(A, NOW)
    children = [made(A, NOW + i, prev=root) for i in (1, 2)]
    one.ingest(root, *children)
    strict.ingest(root, *children)
    assert len(strict.names) == 2
    first, second, _ = sync(strict, one)

    assert finished(first, second)
    assert first.tally.asked == 0
