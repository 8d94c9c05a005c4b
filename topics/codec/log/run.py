"""A run: consecutive appends of one topic as columns, never an object a record.

A run has one ts, one durability and lies in one piece in one file, so a record's place is the sum of the lengths before
it. Live writes make a run by `frame.encode_run`, recovery by `scan.scan`; both fill the same columns, because `apply`
must not be able to tell them apart (I-09). Columns that no record of the run needs are None.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeVar

import attrs
import msgspec

T = TypeVar("T")


@attrs.frozen
class Keyed:
    """An idempotent write: its key and the digest of its body (extensions 6 and 11 of its first frame)."""

    key: bytes
    digest: int


_PRIORITY_AT: Final = 56  # bits of a job below its priority
_PRIORITY_MAX: Final = 254
_NOT_BEFORE_MAX: Final = (1 << _PRIORITY_AT) - 1


def pack_job(priority: int | None, not_before: int | None) -> int:
    """What a queue must know of a record, as one number: its priority and one in the high byte, 0 for none, and below
    it the instant before which it cannot be claimed. 0: neither. What is greater than fits is as great as fits.
    """
    high = 0 if priority is None else min(priority, _PRIORITY_MAX) + 1
    return high << _PRIORITY_AT | min(not_before or 0, _NOT_BEFORE_MAX)


def unpack_job(job: int) -> tuple[int | None, int | None]:
    """(priority, not before) of a record."""
    high, not_before = job >> _PRIORITY_AT, job & _NOT_BEFORE_MAX
    return high - 1 if high else None, not_before or None


class Run(msgspec.Struct, kw_only=True):
    """Appends [seq_start, seq_stop) of one topic.

    `lengths`: whole frames, `frame_len` field included. `sizes`: stored bytes of data + meta, what `cap_bytes` counts.
    `offset`: of the first frame in its file, 0 until placed. `flags`: one byte a record or None if all are 0; of the
    frame's flags those that speak of the record: TAG NODE META COMPRESSED, and EXT only if an extension is the record's
    own, not its write's. DURABLE is the run's.
    Absent values: `b""` in `tags`, `nodes` and `keys`, 0 in `expires` and `jobs` (see `pack_job`). `dedup` holds (index
    in the run, id) of the records that have one.
    """

    topic_id: int
    seq_start: int
    ts: int
    lengths: array[int]
    sizes: array[int]
    offset: int = 0
    flags: bytes | bytearray | None = None
    tags: list[bytes] | None = None
    nodes: list[bytes] | None = None
    expires: list[int] | None = None
    dedup: list[tuple[int, bytes]] | None = None
    jobs: list[int] | None = None
    keys: list[bytes] | None = None
    keyed: Keyed | None = None
    durable: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        seqs = f"[{self.seq_start}, {self.seq_stop})"
        return f"Run(topic_id={self.topic_id}, seqs={seqs}, ts={self.ts}, offset={self.offset})"

    @property
    def seq_stop(self) -> int:
        return self.seq_start + len(self.lengths)

    @property
    def length(self) -> int:
        """Bytes of all its frames."""
        return sum(self.lengths)

    def first(self, count: int) -> Run:
        """Its first `count` records as a run, each column None if none of them needs it."""
        assert 0 < count <= len(self)
        flags = None if self.flags is None else bytes(self.flags[:count])
        return Run(
            topic_id=self.topic_id, seq_start=self.seq_start, ts=self.ts, lengths=self.lengths[:count],
            sizes=self.sizes[:count], offset=self.offset, flags=flags if flags is not None and any(flags) else None,
            tags=_narrow(self.tags, count, b""), nodes=_narrow(self.nodes, count, b""),
            expires=_narrow(self.expires, count, 0), jobs=_narrow(self.jobs, count, 0),
            keys=_narrow(self.keys, count, b""), keyed=self.keyed, durable=self.durable,
            dedup=None if self.dedup is None else [entry for entry in self.dedup if entry[0] < count] or None,
        )  # fmt: skip


def _narrow(column: list[T] | None, count: int, absent: T) -> list[T] | None:
    if column is None:
        return None
    kept = column[:count]
    return None if all(value == absent for value in kept) else kept
