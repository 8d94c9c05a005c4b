"""Acks say what was seen, once a burst, and come to an end."""

from __future__ import annotations

import pytest

from tests.support.weaver_nodes import OPTIONS, Place, sync
from tests.support.weaving import NOW, A, B, made, name_of
from topics.weaver.node.acks import Acker


def acker(place):
    return Acker(place.store.graph, place.node.public, place.clock, OPTIONS)


@pytest.mark.rule("R10.6", "R5.9.5", "R11.41")
def test_when_each_has_acked_the_others_content_both_deltas_are_empty():
    one, other = Place(1), Place(2)
    a1, b1 = one.write(b"a1"), other.write(b"b1")
    sync(one, other)
    ackers = acker(one), acker(other)

    assert [each.delta() for each in ackers] == [[b1], [a1]]
    one.write(b"", [b1])
    other.write(b"", [a1])
    sync(one, other)
    assert [each.delta() for each in ackers] == [[], []]


@pytest.mark.rule("R5.9.5")
def test_acks_and_merge_nodes_are_never_acked():
    place = Place(9)
    root = made(A, NOW, ops=b"content")
    ack = made(B, NOW, after=[root])
    place.ingest(root, ack, made(A, NOW + 1, prev=root, after=[ack]))

    assert acker(place).delta() == [name_of(root)]
    assert acker(place).due_ms is not None


@pytest.mark.rule("R5.9.5")
def test_what_another_uncovered_intention_implies_and_what_is_covered_is_not_cited():
    place = Place(9)
    a1 = made(A, NOW, ops=b"1")
    a2 = made(A, NOW + 1, prev=a1, ops=b"2")
    b1 = made(B, NOW + 2, after=[a2], ops=b"3")
    place.ingest(a1, a2)
    watching = acker(place)

    assert watching.delta() == [name_of(a2)]
    place.ingest(b1)
    assert watching.delta() == [name_of(b1)], "b1 implies a2"
    place.write(b"mine", [name_of(b1)])
    assert watching.delta() == []
    place.ingest(made(B, NOW + 3, prev=b1, ops=b"4"))
    assert len(watching.delta()) == 1


@pytest.mark.rule("R5.9.5", "R5.2.10")
def test_both_branches_of_an_equivocator_are_cited():
    place = Place(9)
    root = made(A, NOW, ops=b"root")
    branches = [made(A, NOW + i, prev=root, ops=b"%d" % i) for i in (1, 2)]
    place.ingest(root, *branches)

    assert acker(place).delta() == sorted(map(name_of, branches))


@pytest.mark.rule("R5.9.6")
def test_an_ack_is_due_five_seconds_after_the_last_foreign_content_and_not_much_later_in_a_long_burst():
    place = Place(9)
    watching = acker(place)
    place.write(b"own")
    watching.notice()
    assert watching.due_ms is None

    prev = made(A, NOW, ops=b"0")
    place.ingest(prev)
    watching.notice()
    begun = place.clock.now_ms()
    assert watching.due_ms == begun + 5_000
    for i in range(1, 12):
        place.clock.advance(4_000)
        prev = made(A, NOW + i, prev=prev, ops=b"%d" % i)
        place.ingest(prev)
        watching.notice()
        assert watching.due_ms == min(place.clock.now_ms() + 5_000, begun + 30_000)
    assert watching.take_ack() == [name_of(prev)]
    assert watching.due_ms is None


@pytest.mark.rule("R5.9.6")
def test_what_was_not_acked_before_a_restart_is_acked_after_it():
    place = Place(9)
    place.ingest(made(A, NOW, ops=b"0"))
    place.reopen()

    assert acker(place).due_ms == place.clock.now_ms() + 5_000


@pytest.mark.rule("R5.10.1")
def test_an_attestation_covers_acks_too_and_comes_at_most_every_five_minutes():
    place = Place(9)
    root = made(A, NOW, ops=b"content")
    ack = made(B, NOW, after=[root])
    watching = acker(place)
    assert watching.attest_due_ms == place.clock.now_ms() + 900_000
    place.ingest(root, ack)

    assert watching.take_attestation() == []
    place.clock.advance(300_000)
    assert watching.take_attestation() == [name_of(ack)], "it implies the content"
    assert watching.take_attestation() == []
    place.write(b"", [name_of(ack)])
    place.clock.advance(300_000)
    assert watching.take_attestation() == [], "nothing new"
