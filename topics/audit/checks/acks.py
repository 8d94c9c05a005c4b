"""What clients were told is stored: their own logs of acknowledgements (spark 4).

JSON lines, or Parquet where pyarrow is installed, of `topic`, `seq` and, if the client kept one, `digest`: the XXH3-64
of the record's data as it was sent, a number or 16 hex digits. `epoch`, as the state of a topic says it, is which one
of that name it was: a topic that is made anew counts its seqs from 1 again. `sent_ms` and `acked_ms`, where a line has
both, are when the write was sent and when its answer was there, by one clock of the client: no check needs them, a
report shows how long it took.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any, Final

import msgspec

from topics.kernel.errors import invalid
from topics.kernel.limits import U64_MAX

NO_DIGEST: Final = 0
ANY_EPOCH: Final = 0


class Acks:
    """Acknowledgements by topic and epoch, 0 if it is not said: columns of seqs and digests, 0 for none. `file`: where
    they come from.

    `took_ms`: of those with both times the ms between them. `fell`: how many say that they were there before they were
    sent, because the clock was set back; they are in no `took_ms`.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.by_topic: dict[tuple[str, int], tuple[array[int], array[int]]] = {}
        self.took_ms: dict[str, array[float]] = {}
        self.fell: dict[str, int] = {}

    def add(self, topic: str, seq: int, digest: int = NO_DIGEST, *, epoch: int = ANY_EPOCH) -> None:
        seqs, digests = self.by_topic.setdefault((topic, epoch), (array("Q"), array("Q")))
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


class _AckLine(msgspec.Struct):
    topic: str
    seq: int
    digest: int | str | None = None
    epoch: int | None = None
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
                line = msgspec.json.decode(text, type=_AckLine)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise invalid("acks", f"{path}, line {number}: {error}") from None
            epoch = _epoch(line.epoch, path, number)
            acks.add(
                line.topic, _seq(line.seq, path, number), _digest(line.digest, path, number), epoch=epoch
            )
            acks.time(line.topic, line.sent_ms, line.acked_ms)
    return acks


def _load_parquet(path: Path, acks: Acks) -> None:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise invalid("acks", f"{path} is Parquet: install pyarrow, or give JSON lines") from None
    try:
        _load_columns(parquet.ParquetFile(path), path, acks)
    except ArrowException as damage:
        raise invalid("acks", f"{path} begins as Parquet, and is none that can be read: {damage}") from None


def _load_columns(file: Any, path: Path, acks: Acks) -> None:
    names = set(file.schema_arrow.names)
    if not {"topic", "seq"} <= names:
        raise invalid("acks", f"{path} has the columns {', '.join(sorted(names))}; topic and seq are needed")
    number = 0
    for batch in file.iter_batches(columns=[name for name in _AckLine.__struct_fields__ if name in names]):
        columns = [_column(batch, name) for name in _AckLine.__struct_fields__]
        for topic, seq, digest, told, sent_ms, acked_ms in zip(*columns, strict=True):
            number += 1
            if not isinstance(topic, str):
                raise invalid("acks", f"{path}, line {number}: {topic!r:.40} is no name of a topic")
            epoch = _epoch(told, path, number)
            acks.add(topic, _seq(seq, path, number), _digest(digest, path, number), epoch=epoch)
            times = (_ms("sent_ms", sent_ms, path, number), _ms("acked_ms", acked_ms, path, number))
            acks.time(topic, *times)


def _column(batch: Any, name: str) -> list[Any]:
    """A column, empty if there is none."""
    if name not in batch.schema.names:
        return [None] * len(batch)
    values: list[Any] = batch.column(name).to_pylist()
    return values


def _seq(seq: object, path: Path, number: int) -> int:
    if not isinstance(seq, int) or not 1 <= seq <= U64_MAX:
        raise invalid("acks", f"{path}, line {number}: {seq!r:.40} is no seq")
    return seq


def _epoch(epoch: object, path: Path, number: int) -> int:
    if epoch is None:
        return ANY_EPOCH
    if not isinstance(epoch, int) or not 1 <= epoch <= U64_MAX:
        raise invalid("acks", f"{path}, line {number}: {epoch!r:.40} is no epoch")
    return epoch


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
