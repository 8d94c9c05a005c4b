"""Faults of what a client was told, and of journals: whole records that say what cannot be."""

from __future__ import annotations

from typing import Final

from topics.codec.frame import decode_frame
from topics.codec.layout import CHECKSUM_SIZE
from topics.codec.primitives import U64, checksum
from topics.testing.planting.ground import Ground, Kind, Planted
from topics.testing.sample_store import CLICKS, KV_TOPIC, ORDERS, WEAVER_TOPIC, Ack
from topics.weaver.item import RECEIVED
from topics.weaver.item import Kind as ItemKind

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


def forged(ground: Ground) -> Planted:
    """An intention that its author has not signed."""
    found = []
    for segment, seq in ground.stored(WEAVER_TOPIC):
        path = ground.path(segment, topic=WEAVER_TOPIC)
        offset, length = ground.frame(segment, seq, WEAVER_TOPIC)
        item = decode_frame(ground.files[path], offset, offset + length).data
        if item[0] == ItemKind.ENVELOPE:
            found.append((path, seq, offset, length, item))
    path, seq, offset, length, item = ground.rng.choice(found)
    signed = bytearray(item[: -U64.size])
    signed[1 + RECEIVED.size + ground.rng.randrange(32)] ^= 1
    new = bytes(signed) + U64.pack(checksum(signed))
    ground.reseal(path, offset, length, length - CHECKSUM_SIZE - len(item), new)
    return _journal(ground, WEAVER_TOPIC, "weaver.journal", seq)


def _journal(ground: Ground, topic: str, check: str, seq: int) -> Planted:
    return Planted(kind="", file=f"topics/{ground.topic_id(topic):016x}", check=check, topic=topic, seq=seq)


KINDS: Final[dict[str, Kind]] = {
    "acknowledged: above the head": told_of_more,
    "acknowledged: with other data": told_of_other_data,
    "acknowledged: lost": told_of_what_is_lost,
    "kv.journal: no item": no_cell,
    "weaver.journal: forged": forged,
}
