"""Faults of what a client was told, and of journals: whole records that say what cannot be."""

from __future__ import annotations

from typing import Final

from tests.support.planting.ground import Ground, Kind, Planted
from tests.support.sample_store import AUTHOR, CLICKS, KV_TOPIC, ORDERS, WEAVER_TOPIC, Ack
from topics.codec.log.frame import decode_frame
from topics.codec.log.layout import CHECKSUM_SIZE
from topics.codec.primitives import U64, checksum
from topics.weaver.store.journal_items import RECEIVED, ItemKind, pack, unpack
from topics.weaver.store.witness import Witness, witness

ACKS: Final = "acks.jsonl"


def told_of_more(ground: Ground) -> Planted:
    """A record that was acknowledged, above the head."""
    seq = ground.state.recovered.catalog.topics[ground.topic_id(CLICKS)].head_seq + 1
    return Planted(
        kind="", file=ACKS, check="acknowledged", topic=CLICKS, seq=seq, acks=(Ack(CLICKS, seq, 1),)
    )


def told_of_other_data(ground: Ground) -> Planted:
    seq = ground.live(ground.segment())
    return Planted(
        kind="", file=ACKS, check="acknowledged", topic=ORDERS, seq=seq, acks=(Ack(ORDERS, seq, 1),)
    )


def told_of_what_is_lost(ground: Ground) -> Planted:
    """A record that was acknowledged, and that the log has lost."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=False)
    ground.edit(path, offset, bytes(length))
    return Planted(
        kind="", file=ACKS, check="acknowledged", topic=CLICKS, seq=seq, acks=(Ack(CLICKS, seq, 1),),
        also=(("wal.damage", path),),
    )  # fmt: skip


def no_cell(ground: Ground) -> Planted:
    """An item of a database that is none."""
    segment, seq = ground.rng.choice(ground.stored(KV_TOPIC)[1:])
    offset, length = ground.frame(segment, seq, KV_TOPIC)
    path = ground.path(segment, topic=KV_TOPIC)
    ground.reseal(path, offset, length, length - CHECKSUM_SIZE - 1, b"\x7f")
    return _journal(ground, KV_TOPIC, "kv.journal", seq)


def of_another_database(ground: Ground) -> Planted:
    """The item that says whose journal it is names another database."""
    segment, seq = ground.stored(KV_TOPIC)[0]
    offset, length = ground.frame(segment, seq, KV_TOPIC)
    path = ground.path(segment, topic=KV_TOPIC)
    item = decode_frame(ground.files[path], offset, offset + length).data
    assert item.count(b"settings") == 1
    new = item.replace(b"settings", b"settingz")
    ground.reseal(path, offset, length, length - CHECKSUM_SIZE - len(item), new)
    return _journal(ground, KV_TOPIC, "kv.journal", seq)


def forged(ground: Ground) -> Planted:
    """An intention that its author has not signed."""
    place, item = ground.rng.choice(_items(ground, ItemKind.ENVELOPE))
    signed = bytearray(item[: -U64.size])
    signed[1 + RECEIVED.size + ground.rng.randrange(32)] ^= 1
    return _replaced(ground, place, bytes(signed) + U64.pack(checksum(signed)))


def unlinked(ground: Ground) -> Planted:
    """A record of the witness log, signed by its node, that names another one before it than there is."""
    place, item = ground.rng.choice(_items(ground, ItemKind.WITNESS)[1:])
    record = Witness.decode(unpack(item)[1])
    other = bytes((record.prev[0] ^ 1,)) + record.prev[1:]
    new = witness(AUTHOR, record.store_id, record.intention, wall_ms=record.wall_ms, prev=other)
    return _replaced(ground, place, pack(ItemKind.WITNESS, new.encode()))


def out_of_order(ground: Ground) -> Planted:
    """Two intentions in each other's place: a child is before its parent."""
    items = _items(ground, ItemKind.ENVELOPE)
    at = ground.rng.randrange(len(items) - 1)
    (one, first), (other, second) = items[at : at + 2]
    _replaced(ground, other, first)
    _replaced(ground, one, second)
    # Either is a whole intention: what does not fit is the witness behind it, which names the other.
    named = next(seq for (_, seq, _, _), _ in _items(ground, ItemKind.WITNESS) if seq > one[1])
    return _journal(ground, WEAVER_TOPIC, "weaver.journal", named)


_Place = tuple[str, int, int, int]  # file, seq, offset and length of a record


def _items(ground: Ground, kind: ItemKind) -> list[tuple[_Place, bytes]]:
    """The items of a kind that are in the Weaver's segments."""
    found = []
    for segment, seq in ground.stored(WEAVER_TOPIC):
        path = ground.path(segment, topic=WEAVER_TOPIC)
        offset, length = ground.frame(segment, seq, WEAVER_TOPIC)
        item = decode_frame(ground.files[path], offset, offset + length).data
        if item[0] == kind:
            found.append(((path, seq, offset, length), item))
    return found


def _replaced(ground: Ground, place: _Place, item: bytes) -> Planted:
    path, seq, offset, length = place
    ground.reseal(path, offset, length, length - CHECKSUM_SIZE - len(item), item)
    return _journal(ground, WEAVER_TOPIC, "weaver.journal", seq)


def _journal(ground: Ground, topic: str, check: str, seq: int) -> Planted:
    return Planted(kind="", file=f"topics/{ground.topic_id(topic):016x}", check=check, topic=topic, seq=seq)


KINDS: Final[dict[str, Kind]] = {
    "acknowledged: above the head": told_of_more,
    "acknowledged: with other data": told_of_other_data,
    "acknowledged: lost": told_of_what_is_lost,
    "kv.journal: no item": no_cell,
    "kv.journal: of another database": of_another_database,
    "weaver.journal: forged": forged,
    "weaver.journal: a broken link": unlinked,
    "weaver.journal: out of order": out_of_order,
}
