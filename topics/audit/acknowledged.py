"""Nothing that a client was told is stored may be missing (semantics 2, spark 4).

The client's own log of acknowledgements is the witness: JSON lines, or Parquet where pyarrow is installed, of `topic`,
`seq` and, if it kept one, `digest`: the XXH3-64 of the record's data as it was sent, a number or 16 hex digits. What
was deleted, has expired or was evicted since is accounted for by the topic's floors and not missing; what is lost is.
`sent_ms` and `acked_ms`, where a line has both, are when the write was sent and when its answer was there, by one clock
of the client: no check needs them, a report shows how long it took.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from topics.audit.records import Ranges, name_ranges, out_of_reach, read_records, why_out_of_reach
from topics.audit.recovery import State
from topics.audit.rows import Severity, Violation
from topics.codec.primitives import checksum
from topics.host.tiers import SegmentStore
from topics.kernel.errors import Corrupt, invalid
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.topic import Topic

NO_DIGEST: Final = 0
READ_TOGETHER: Final = 256  # seqs that are no further apart are read in one go


class Acks:
    """Acknowledgements by topic: columns of seqs and digests, 0 for none. `file`: where they come from.

    `took_ms`: of those with both times the ms between them. `fell`: how many say that they were there before they were
    sent, because the clock was set back; they are in no `took_ms`.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.by_topic: dict[str, tuple[array[int], array[int]]] = {}
        self.took_ms: dict[str, array[float]] = {}
        self.fell: dict[str, int] = {}

    def add(self, topic: str, seq: int, digest: int = NO_DIGEST) -> None:
        seqs, digests = self.by_topic.setdefault(topic, (array("Q"), array("Q")))
        seqs.append(seq)
        digests.append(digest)

    def time(self, topic: str, sent_ms: float | None, acked_ms: float | None) -> None:
        """How long one of them took, if both times are known."""
        if sent_ms is None or acked_ms is None:
            return
        if acked_ms < sent_ms:
            self.fell[topic] = self.fell.get(topic, 0) + 1
        else:
            self.took_ms.setdefault(topic, array("d")).append(acked_ms - sent_ms)

    def __len__(self) -> int:
        return sum(len(seqs) for seqs, _ in self.by_topic.values())


class _Line(msgspec.Struct):
    topic: str
    seq: int
    digest: int | str | None = None
    sent_ms: float | None = None
    acked_ms: float | None = None


def load_acks(path: Path) -> Acks:
    """Read a log of acknowledgements; a last line that was cut off is left out, as its writer may have been killed.

    Raises:
        Rejected: a line, or a column, is not what it should be; or it is Parquet and pyarrow is not installed.
        OSError: it cannot be read.
    """
    acks = Acks(str(path))
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
        file.seek(0)
        if parquet:
            _load_parquet(path, acks)
            return acks
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n") or not text.strip():
                continue
            try:
                line = msgspec.json.decode(text, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise invalid("acks", f"{path}, line {number}: {error}") from None
            acks.add(line.topic, _seq(line.seq, path, number), _digest(line.digest, path, number))
            acks.time(line.topic, line.sent_ms, line.acked_ms)
    return acks


def _load_parquet(path: Path, acks: Acks) -> None:
    try:
        from pyarrow import parquet
    except ImportError:
        raise invalid("acks", f"{path} is Parquet: install pyarrow, or give JSON lines") from None
    file: Any = parquet.ParquetFile(path)
    names = set(file.schema_arrow.names)
    if not {"topic", "seq"} <= names:
        raise invalid("acks", f"{path} has the columns {', '.join(sorted(names))}; topic and seq are needed")
    number = 0
    for batch in file.iter_batches(columns=[name for name in _Line.__struct_fields__ if name in names]):
        for row in batch.to_pylist():
            number += 1
            topic = str(row["topic"])
            acks.add(topic, _seq(row["seq"], path, number), _digest(row.get("digest"), path, number))
            times = (_ms(name, row.get(name), path, number) for name in ("sent_ms", "acked_ms"))
            acks.time(topic, *times)


def _seq(seq: object, path: Path, number: int) -> int:
    if not isinstance(seq, int) or not 1 <= seq <= U64_MAX:
        raise invalid("acks", f"{path}, line {number}: {seq!r:.40} is no seq")
    return seq


def _digest(digest: object, path: Path, number: int) -> int:
    if digest is None:
        return NO_DIGEST
    try:
        value = int(digest, 16) if isinstance(digest, str) else digest
    except ValueError:
        value = None
    if not isinstance(value, int) or not -(2**63) <= value <= U64_MAX:
        raise invalid("acks", f"{path}, line {number}: {digest!r:.40} is no digest of 64 bits")
    return value & U64_MAX  # Parquet may know signed numbers only


def _ms(name: str, ms: object, path: Path, number: int) -> float | None:
    if ms is None:
        return None
    if not isinstance(ms, int | float) or not math.isfinite(ms):
        raise invalid("acks", f"{path}, line {number}: {name} is {ms!r:.40}, and must be a number of ms")
    return ms


def check_acknowledged(disk: Disk, state: State, acks: Acks) -> Iterator[Violation]:
    """What was acknowledged and is missing, or is another record now. `disk` reads the cold tier, too, if the state has
    one.
    """
    catalog = state.read.recovered.catalog
    for name, (seqs, digests) in sorted(acks.by_topic.items()):
        topic = catalog.find(name)
        if topic is not None:
            yield from _check_topic(disk, state, topic, dict(zip(seqs, digests, strict=True)), acks.file)
        elif name not in catalog.epochs:
            yield _missing(
                name, acks.file, min(seqs), f"{len(seqs)} records, and there never was such a topic"
            )


def _check_topic(
    disk: Disk, state: State, topic: Topic, acked: Mapping[int, int], file: str
) -> Iterator[Violation]:
    away = out_of_reach(topic, state.cold)
    live: list[int] = []
    unseen: list[int] = []
    for seq in sorted(acked):
        lost = topic.index.lost.at(seq)
        if seq > topic.head_seq:
            yield _missing(topic.name, file, seq, f"it was acknowledged, and head_seq is {topic.head_seq}")
        elif lost is not None:
            yield _missing(topic.name, file, seq, f"it was acknowledged, and is lost ({lost.reason})")
        elif acked[seq] != NO_DIGEST and topic.index.is_live(seq):
            (unseen if _is_in(away, seq) else live).append(seq)
    if unseen:
        yield _undecided(topic.name, file, unseen, state.cold)
    yield from _check_data(disk, topic, live, away, acked, file)


def _is_in(ranges: Ranges, seq: int) -> bool:
    at = bisect_right(ranges, seq, key=itemgetter(0)) - 1
    return at >= 0 and seq <= ranges[at][1]


def _check_data(
    disk: Disk, topic: Topic, live: list[int], away: Ranges, acked: Mapping[int, int], file: str
) -> Iterator[Violation]:
    """Neighbours are read together, unless some that cannot be read lie between them."""

    def together(one: tuple[int, int]) -> tuple[int, int]:
        return (one[1] - one[0]) // READ_TOGETHER, bisect_right(away, one[1], key=itemgetter(0))

    for _, group in groupby(enumerate(live), key=together):
        seqs = list(map(itemgetter(1), group))
        try:
            for view in read_records(disk, topic, seqs[0] - 1, seqs[-1]):
                if view.seq in acked and acked[view.seq] not in (NO_DIGEST, checksum(view.data)):
                    yield _missing(topic.name, file, view.seq, "it was acknowledged with other data")
        except Corrupt as damage:
            yield _missing(
                topic.name, file, seqs[0], f"it, or one behind it, cannot be read: {damage.message}"
            )


def _undecided(topic: str, file: str, seqs: list[int], cold: SegmentStore | None) -> Violation:
    many = len(seqs) > 1
    detail = f"{len(seqs)} acknowledged record{'s' * many}, {name_ranges(((seqs[0], seqs[-1]),))}, "
    detail += f"{'are' if many else 'is'} in the cold tier, and nobody has compared their data: "
    detail += why_out_of_reach(cold)
    return Violation(topic, file, "acknowledged", Severity.UNDECIDABLE, seqs[0], None, detail)


def _missing(topic: str, file: str, seq: int, detail: str) -> Violation:
    return Violation(topic, file, "acknowledged", Severity.ERROR, seq, None, detail)
