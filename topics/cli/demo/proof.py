"""What the demo's writers write, and the proof that what they were promised is there, byte by byte.

What a writer writes follows from (writer, number), so whoever holds the same rows can compare every record with what it
must be. A topic is read from its beginning, and each acknowledged record is looked for at its seq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import msgspec

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore

PARTS_MAX: Final = 4


@attrs.frozen
class WriterThread:
    """One thread: its number, and the topic it writes, in which class."""

    number: int
    topic: str
    durability: str


WRITERS: Final = (
    *(WriterThread(number, "payments", "fsync") for number in range(4)),
    *(WriterThread(number, "clicks", "disk") for number in range(4, 6)),
)


def records_in_write(number: int) -> int:
    """How many records the write of that number has."""
    return 1 + number % PARTS_MAX


def demo_payload(rows: list[bytes], *, writer: int, number: int, part: int) -> bytes:
    """The record `part` of a write: who wrote it, around a row of the real input."""
    row = rows[(writer * 104_729 + number * PARTS_MAX + part) % len(rows)]
    return b'{"writer":%d,"write":%d,"part":%d,"row":%b}' % (writer, number, part, row)


@attrs.frozen
class AckedWrite:
    """A write that was acknowledged, and where."""

    writer: int
    number: int
    first_seq: int
    last_seq: int


@attrs.define
class TopicProof:
    """What is in one topic after the crashes, beside what was acknowledged for it."""

    topic: str
    durability: str
    acked_writes: int = 0
    acked_records: int = 0
    intact_records: int = 0
    head_seq: int = 0
    delivered: int = 0
    holes: int = 0
    foreign: int = 0
    torn_writes: int = 0
    unacked_writes: int = 0
    accounted: int = 0
    account: dict[str, int] = attrs.field(factory=dict)


def examine(store: TopicStore, rows: list[bytes], acks: list[AckedWrite]) -> list[TopicProof]:
    """Every topic the writers wrote, read from its beginning and compared."""
    findings = []
    for topic, durability in sorted({(writer.topic, writer.durability) for writer in WRITERS}, reverse=True):
        findings.append(_examine_topic(store, rows, acks, TopicProof(topic, durability)))
    return findings


def _examine_topic(
    store: TopicStore, rows: list[bytes], acks: list[AckedWrite], found: TopicProof
) -> TopicProof:
    own = {writer.number for writer in WRITERS if writer.topic == found.topic}
    stored: dict[int, bytes] = {}
    cursor, is_read = 0, False
    while not is_read:
        page = store.topic(found.topic).read(from_seq=cursor, limit=store.limits.read_limit, account=True)
        assert page.account is not None
        for name, count in attrs.asdict(page.account).items():
            found.account[name] = found.account.get(name, 0) + count
        found.holes += page.tombstone is not None
        stored.update((record.seq, record.raw) for record in page.records)
        cursor, is_read = page.next_from_seq, page.caught_up
    found.head_seq = store.topic(found.topic).state().head_seq
    found.delivered = len(stored)
    found.holes += sum(seq not in stored for seq in range(1, found.head_seq + 1))
    found.accounted = sum(found.account.values())
    for ack in acks:
        if ack.writer in own:
            found.acked_writes += 1
            _examine_ack(ack, rows, stored, found)
    _examine_writes(rows, stored, found, {(ack.writer, ack.number) for ack in acks})
    return found


def _examine_ack(ack: AckedWrite, rows: list[bytes], stored: dict[int, bytes], found: TopicProof) -> None:
    parts = records_in_write(ack.number)
    found.acked_records += parts
    if ack.last_seq - ack.first_seq + 1 != parts:
        return
    for part in range(parts):
        promised = demo_payload(rows, writer=ack.writer, number=ack.number, part=part)
        found.intact_records += stored.get(ack.first_seq + part) == promised


def _examine_writes(
    rows: list[bytes], stored: dict[int, bytes], found: TopicProof, acked: set[tuple[int, int]]
) -> None:
    """Acknowledged or not: each write is there whole, in order, or not at all; and nothing else is there."""
    writes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for seq, raw in stored.items():
        who = msgspec.json.decode(raw)
        writer, number, part = who["writer"], who["write"], who["part"]
        found.foreign += raw != demo_payload(rows, writer=writer, number=number, part=part)
        writes.setdefault((writer, number), []).append((seq, part))
    for write, places in writes.items():
        first_seq = places[0][0]
        whole = [(first_seq + part, part) for part in range(records_in_write(write[1]))]
        found.torn_writes += places != whole
        found.unacked_writes += write not in acked
