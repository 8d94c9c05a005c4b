"""A clone takes a peer's log batch by batch, verifies every record, and witnesses it anew under its own key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.weaver_nodes import OPTIONS, Place, sync
from tests.support.weaving import NOW, STORE, A, made, name_of
from topics.weaver.model.envelope import Envelope
from topics.weaver.sync.bootstrap import START, Clone, ClonePosition, CloneStage, serve_bootstrap
from topics.weaver.sync.limits import BOOTSTRAP_BATCH, ExchangeOptions
from topics.weaver.sync.messages import BootstrapBatch, BootstrapRequest, Refusal, SyncDone
from topics.weaver.sync.ranges import ZERO
from topics.weaver.sync.session import SessionPhase
from topics.weaver.sync.wire import decode, encode


def source(count, number=1):
    place = Place(number)
    for i in range(count):
        place.write(b"%d" % i)
    return place


def cloned(server, receiver, position=START, options=OPTIONS, damage=lambda batch: batch):
    """Play a clone to its end; requests and batches."""
    clone = Clone(
        receiver.inventory, receiver.clock, server=server.node.public, options=options, position=position
    )
    waiting, requests, batches = clone.open(), 0, 0
    while waiting:
        request = decode(encode(waiting.pop(0)))
        if isinstance(request, Refusal):
            break
        requests += 1
        for batch in serve_bootstrap(server.inventory, request):
            batches += 1
            waiting += clone.receive(decode(encode(damage(batch))))
    return clone, requests, batches


@pytest.mark.rule("R10.7", "R5.9.3", "R11.39")
def test_ten_intentions_give_ten_intentions_and_ten_witnesses_of_its_own():
    server, receiver = source(10), Place(2)
    clone, _, _ = cloned(server, receiver)

    assert clone.state is CloneStage.FINISHED
    assert clone.position.next_seq == 11
    assert receiver.names == server.names
    own = receiver.store.records(1, 100)
    assert len(own) == 10
    assert [record.intention for record in own] == [
        record.intention for record in server.store.records(1, 100)
    ]
    assert all(record.is_signed_by(receiver.node.public) for record in own)
    assert not any(record.is_signed_by(server.node.public) for record in own)


@pytest.mark.rule("R5.9.3")
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_batches_have_a_hundred_records_and_requests_their_limit(count):
    server, receiver = source(count), Place(2)
    clone, requests, batches = cloned(server, receiver, options=ExchangeOptions(bootstrap_limit=150))

    assert clone.state is CloneStage.FINISHED
    assert receiver.names == server.names
    assert requests == max(1, -(-count // 150))
    assert batches >= max(1, -(-count // BOOTSTRAP_BATCH))


@pytest.mark.rule("R5.9.3")
def test_requests_count_from_one_and_are_served_up_to_their_limit():
    server = source(30)
    (batch,) = serve_bootstrap(server.inventory, BootstrapRequest(0, 10))
    (rest,) = serve_bootstrap(server.inventory, BootstrapRequest(11, 1000))
    (none,) = serve_bootstrap(server.inventory, BootstrapRequest(31, 1000))

    assert (len(batch.records), batch.last_seq, batch.done) == (10, 10, False)
    assert (len(rest.records), rest.last_seq, rest.done) == (20, 30, True)
    assert none == BootstrapBatch((), (), 0, done=True)


@pytest.mark.rule("R5.9.3")
def test_a_clone_goes_on_behind_the_last_record_it_took():
    server, receiver = source(250), Place(2)
    first = Clone(receiver.inventory, receiver.clock, server=server.node.public, options=OPTIONS)
    first.open()
    first.receive(next(iter(serve_bootstrap(server.inventory, BootstrapRequest(1, 1000)))))
    first.closed()

    assert first.state is CloneStage.CLOSED
    assert first.position.next_seq == 101
    second, _, _ = cloned(server, receiver, first.position)
    assert second.state is CloneStage.FINISHED
    assert second.taken == 150
    assert receiver.names == server.names
    # The chain is checked across the break.
    astray, _, _ = cloned(server, Place(3), ClonePosition(101, b"\x01" * 32))
    assert astray.state is CloneStage.REFUSED


def rebuilt(batch, **fields):
    return BootstrapBatch(
        **{"records": batch.records, "items": batch.items, "last_seq": batch.last_seq, "done": batch.done}
        | fields
    )


def mis_signed(batch):
    return rebuilt(batch, items=(*batch.items[:-1], Envelope(batch.items[-1].body, bytes(64))))


SUBSTITUTE = made(A, NOW, ops=b"another")
DAMAGES = {
    "substituted": (lambda b: rebuilt(b, items=(*b.items[:-1], SUBSTITUTE)), "substituted"),
    "added": (lambda b: rebuilt(b, items=(*b.items, SUBSTITUTE)), "substituted"),
    "left out": (lambda b: rebuilt(b, items=b.items[:-1]), "neither in the batch nor here"),
    "badly signed": (mis_signed, "was not witnessed"),
    "record badly signed": (
        lambda b: rebuilt(b, records=(*b.records[:-1], b.records[-1]._replace(signature=bytes(64)))),
        "is not signed by",
    ),
    "record left out": (lambda b: rebuilt(b, records=b.records[1:]), "does not follow"),
    "records turned": (lambda b: rebuilt(b, records=b.records[::-1]), "does not follow"),
    "other store": (
        lambda b: rebuilt(b, records=(b.records[0]._replace(store_id=bytes(16)), *b.records[1:])),
        "does not follow",
    ),
    "wrong end": (lambda b: rebuilt(b, last_seq=7), "7 where 10 belongs"),
    "nothing": (lambda _: BootstrapBatch((), (), 0, done=False), "leads nowhere"),
    "another message": (lambda _: SyncDone(), "SyncDone has no place"),
    "refusal": (lambda _: Refusal("no"), "the peer refused"),
}


@pytest.mark.rule("R10.7", "R5.9.3")
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_the_peers_log_is_refused(damage):
    server, receiver = source(10), Place(2)
    change, why = DAMAGES[damage]
    clone, _, _ = cloned(server, receiver, damage=change)

    assert clone.state is CloneStage.REFUSED
    assert why in clone.reason
    assert clone.position == START
    assert receiver.names <= server.names
    assert name_of(SUBSTITUTE) not in receiver.store


@pytest.mark.rule("R5.9.3")
def test_records_of_another_node_are_refused_whoever_passes_them_on():
    server, thief, receiver = source(5), Place(3), Place(2)
    clone = Clone(receiver.inventory, receiver.clock, server=thief.node.public, options=OPTIONS)
    clone.open()
    (batch,) = serve_bootstrap(server.inventory, BootstrapRequest(1, 1000))
    clone.receive(batch)

    assert clone.state is CloneStage.REFUSED
    assert receiver.names == set()


def test_a_silent_peer_ends_a_clone():
    receiver = Place(2)
    clone = Clone(receiver.inventory, receiver.clock, server=bytes(32), options=OPTIONS)
    clone.open()
    receiver.clock.set(clone.deadline_ms)
    clone.tick()

    assert clone.state is CloneStage.TIMED_OUT
    assert clone.receive(BootstrapBatch((), (), 0, done=True)) == []


@pytest.mark.rule("R9.35")
@settings(max_examples=15)
@given(st.integers(0, 260), st.integers(0, 30), st.integers(0, 30))
def test_clone_then_sync_is_the_source_set(before, during, own):
    server, receiver = source(before), Place(2)
    for i in range(own):
        receiver.write(b"own %d" % i)
    clone, _, _ = cloned(server, receiver)
    for i in range(during):
        server.write(b"late %d" % i)
    first, second, _ = sync(receiver, server)

    assert clone.state is CloneStage.FINISHED
    assert first.phase is second.phase is SessionPhase.FINISHED
    assert receiver.names == server.names
    assert len(receiver.names) == before + during + own
    assert first.tally.asked == during
    assert receiver.store.fingerprint == server.store.fingerprint
    assert (receiver.store.fingerprint == ZERO) is (not receiver.names)
    assert receiver.store.store_id == STORE
