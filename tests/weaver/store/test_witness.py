"""The witness log: its chain, its signatures, and that damage is found when it is opened."""

import pytest

from tests.support.weaving import NODE, NOW, STORE, A, B, Site, made, name_of
from topics.crypto.hashing import blake3
from topics.kernel.errors import Corrupt
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.store.journal_items import ItemKind, pack, unpack
from topics.weaver.store.replay import SignatureCheck
from topics.weaver.store.witness import Witness, WitnessLog, witness

pytestmark = pytest.mark.rule("R10.6", "R11.32")


def three():
    site = Site()
    one = made(A, NOW)
    for each in (one, made(B, NOW), made(A, NOW + 1, prev=one)):
        site.ingest(each)
    return site


@pytest.mark.rule("R5.3.1")
def test_w12_three_records():
    """W12: numbers 1 to 3, the first names zeros, each names the one before, the node signs."""
    site = three()
    records = site.store.records(0, 100)

    assert [record.intention for record in records] == site.order
    assert [node.seq for node in site.store.graph.order] == [1, 2, 3]
    assert records[0].prev == ZERO_HASH
    assert [record.prev for record in records[1:]] == [blake3(record.content) for record in records[:-1]]
    for record in records:
        assert record.is_signed_by(NODE.public)
        assert not record.is_signed_by(A.public)
        assert record.wall_ms == NOW
        assert Witness.decode(record.encode()) == record
    assert site.store.records(2, 1) == records[1:2]
    assert [site.store.log.hash_at(i) for i in range(4)] == [ZERO_HASH, *(each.hash for each in records)]
    assert [site.store.log.seq_of(record.hash) for record in records] == [1, 2, 3]
    assert site.store.log.seq_of(b"\x07" * 32) is None


@pytest.mark.rule("R5.3.1")
def test_any_wall_time():
    """A record's wall time may be any 64-bit number."""
    for wall_ms in (0, 2**64 - 1):
        record = witness(NODE, STORE, b"\x01" * 32, wall_ms=wall_ms, prev=ZERO_HASH)
        assert Witness.decode(record.encode()).wall_ms == wall_ms


@pytest.mark.rule("R5.3.2", "R5.3.3")
def test_w12_altered_prev():
    """W12: a record with another prev, or of another store, breaks the chain, and the store does not open."""
    log = WitnessLog(STORE)
    log.append(witness(NODE, STORE, b"\x01" * 32, wall_ms=1, prev=ZERO_HASH))
    with pytest.raises(Corrupt, match="chain"):
        log.append(witness(NODE, STORE, b"\x02" * 32, wall_ms=1, prev=ZERO_HASH))
    with pytest.raises(Corrupt, match="chain"):
        log.append(witness(NODE, b"\x01" * 16, b"\x02" * 32, wall_ms=1, prev=log.last_hash))

    site = three()
    at = records_at(site)[1]
    record = Witness.decode(unpack(site.journal.items[at])[1])
    forged = witness(NODE, STORE, record.intention, wall_ms=record.wall_ms, prev=b"\x07" * 32)
    site.journal.items[at] = pack(ItemKind.WITNESS, forged.encode())
    with pytest.raises(Corrupt, match=r"item 6: witness record 2 does not follow"):
        site.open()


def records_at(site):
    return [at for at, item in enumerate(site.journal.items) if item[0] == ItemKind.WITNESS]


@pytest.mark.rule("R5.3.2")
def test_a_dangling_hash():
    """A record whose intention is not there is corruption, and so is an intention witnessed twice."""
    site = three()
    envelope = next(at for at, item in enumerate(site.journal.items) if item[0] == ItemKind.ENVELOPE)
    del site.journal.items[envelope]
    with pytest.raises(Corrupt, match="it is not here"):
        site.open()

    site = three()
    again = site.store.log.record(1).intention
    record = witness(NODE, STORE, again, wall_ms=NOW, prev=site.store.log.last_hash)
    site.journal.items.append(pack(ItemKind.WITNESS, record.encode()))
    with pytest.raises(Corrupt, match="witnessed twice"):
        site.open()


def test_w13_witnessed_once():
    """W13: an intention that is witnessed is not witnessed again; the log keeps its length."""
    site = Site()
    one = made(A, NOW)
    site.ingest(one)
    site.ingest(one)
    assert len(site.store.log) == 1


@pytest.mark.rule("R5.3.2", "R5.6.7")
def test_every_flipped_bit_is_found():
    """No bit of the journal can rot without the opening refusing it: nothing corrupt is ever applied."""
    site = three()
    site.ingest(made(B, NOW, prev=b"\x07" * 32))
    good = list(site.journal.items)

    for at, item in enumerate(good):
        for bit in range(0, len(item) * 8, 7):
            flipped = bytearray(item)
            flipped[bit // 8] ^= 1 << bit % 8
            site.journal.items = [*good[:at], bytes(flipped), *good[at + 1 :]]
            with pytest.raises(Corrupt):
                site.open()


@pytest.mark.rule("R5.3.2", "R5.6.7")
def test_a_missing_or_moved_item_is_found():
    """An item that is gone or in another place is found, but for the last write, which nobody can know of."""
    site = three()
    good = list(site.journal.items)
    for at in range(len(good) - 3):
        if good[at][0] == ItemKind.CLOCK:
            continue
        site.journal.items = good[:at] + good[at + 1 :]
        with pytest.raises(Corrupt):
            site.open()
    records = records_at(three())
    items = list(good)
    items[records[0]], items[records[1]] = items[records[1]], items[records[0]]
    site.journal.items = items
    with pytest.raises(Corrupt):
        site.open()


@pytest.mark.rule("R5.3.2", "R5.7.1")
def test_signatures_are_checked_at_opening():
    """The last record's signature stands for all; every one is checked if asked for. A forger of checksums is found."""
    site = three()
    good = list(site.journal.items)

    def resigned(at):
        record = Witness.decode(unpack(good[at])[1])._replace(signature=bytes(64))
        return [*good[:at], pack(ItemKind.WITNESS, record.encode()), *good[at + 1 :]]

    first, *_, last = records_at(site)
    site.journal.items = resigned(last)
    with pytest.raises(Corrupt, match="not signed by node"):
        site.open()
    site.journal.items = resigned(first)
    with pytest.raises(Corrupt, match="not signed by node"):
        site.open(check=SignatureCheck.EVERY)
    site.open()  # the chain of hashes leaves no doubt about what was said

    kind, payload = unpack(good[1])
    assert kind is ItemKind.ENVELOPE
    unsigned = payload[:9] + bytes(64) + payload[73:]
    site.journal.items = [good[0], pack(kind, unsigned), *good[2:]]
    with pytest.raises(Corrupt, match="not signed by its author"):
        site.open(check=SignatureCheck.EVERY)


@pytest.mark.parametrize(
    "item",
    [b"", b"short", pack(ItemKind.HEADER, b""), pack(ItemKind.RESET, b""), pack(ItemKind.DROPPED, bytes(32)),
     pack(ItemKind.EVIDENCE, bytes(32)), pack(ItemKind.CLOCK, b"x"), pack(ItemKind.WITNESS, b"x"),
     pack(ItemKind.ENVELOPE, b"x"),
     pack(ItemKind.ENVELOPE, bytes(8) + b"\x02" + bytes(200)), pack(99, b"")],
    ids=["empty", "short", "header", "reset", "dropped", "evidence", "clock", "witness", "envelope", "flag", "kind"],
)  # fmt: skip
def test_an_item_out_of_place_is_refused(item):
    """Whatever an item says that this store cannot have written, it does not open; and a journal needs its header."""
    site = three()
    good = list(site.journal.items)
    site.journal.items = [*good, item]
    with pytest.raises(Corrupt):
        site.open()
    site.journal.items = good[1:]
    with pytest.raises(Corrupt, match="header"):
        site.open()


@pytest.mark.rule("R5.3.2")
def test_an_intention_before_its_parent_is_corrupt():
    """Even with a sound chain of records, an order that is not causal was not written by this store."""
    site = Site()
    one = made(A, NOW)
    two = made(A, NOW + 1, prev=one)
    site.ingest(two)
    record = witness(NODE, STORE, name_of(two), wall_ms=NOW, prev=ZERO_HASH)
    site.journal.items.append(pack(ItemKind.WITNESS, record.encode()))
    with pytest.raises(Corrupt, match="before its parent"):
        site.open()
