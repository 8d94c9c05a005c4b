"""A record as a row of Parquet, both ways, by pyarrow (the extra `parquet`).

`data` is JSON text and `bytes` what is not JSON: of each row one of them is null. Rows are gathered into groups, which
bound the memory of whoever writes them and whoever reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topics.cli.core.failure import USAGE, Failed
from topics.cli.exchange.putting import PlacedRecord
from topics.cli.exchange.rows import as_put
from topics.cli.io.source import STDIN, BadLine
from topics.kernel.extras import Needs
from topics.kernel.limits import MIB

with Needs("Parquet", "parquet"):
    import pyarrow as pa
    import pyarrow.parquet as pq

if TYPE_CHECKING:
    from topics.calls.page import Record
    from topics.cli.exchange.outlet import Sink

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("node", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("key", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("meta", pa.map_(pa.string(), pa.string())),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)
GROUP_RECORDS: Final = 64 * 1024
GROUP_BYTES: Final = 32 * MIB  # and a page more
_NAMES: Final = ("node", "tag", "key", "content_type")
_BATCH_ROWS: Final = 1024


class ParquetWriter:
    """A group of rows at a time; `finish` writes the foot, without which it is no Parquet file."""

    def __init__(self, sink: Sink) -> None:
        self._stream = _ArrowStream(sink)
        self._records: list[Record] = []
        self._bytes = 0
        with self._stream.taking():
            self._writer = pq.ParquetWriter(
                self._stream, SCHEMA, compression="zstd", use_dictionary=list(_NAMES),
                write_statistics=["seq", "ts", *_NAMES],
            )  # fmt: skip

    def write(self, records: Sequence[Record]) -> None:
        self._records.extend(records)
        self._bytes += sum(len(record.raw) for record in records)
        if len(self._records) >= GROUP_RECORDS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        if self._records:
            self._write_group()
        with self._stream.taking():
            self._writer.close()

    def _write_group(self) -> None:
        records, self._records, self._bytes = self._records, [], 0
        columns: list[Any] = [[record.seq for record in records], [record.ts for record in records]]
        columns += [[getattr(record, name) for record in records] for name in _NAMES]
        columns.append([list(record.meta.items()) or None for record in records])
        columns.append([None if record.content_type else record.raw for record in records])
        columns.append([record.raw if record.content_type else None for record in records])
        arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
        with self._stream.taking():
            self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA), row_group_size=len(records))


class _ArrowStream:
    """What pyarrow writes to. It writes a foot whenever its writer ends, also of what broke off: that goes nowhere."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._at = 0
        self._is_taking = False

    @contextmanager
    def taking(self) -> Iterator[None]:
        self._is_taking = True
        try:
            yield
        finally:
            self._is_taking = False

    def write(self, data: bytes) -> int:
        if self._is_taking:
            self._sink.write(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class ParquetFile:
    """A file of an export, read once: `putting.RecordSource`."""

    is_waiting = False

    def __init__(self, name: str) -> None:
        path = Path(name)
        if name == STDIN or path.is_fifo() or path.is_char_device():
            raise Failed(
                "Parquet is read from its end, so not from a pipe: name a file, or pipe JSON lines or CSV",
                code=USAGE,
            )
        self.name = name
        self.bytes_read = 0
        self.bytes_total: int | None = None
        try:
            self._stream = path.open("rb")
        except FileNotFoundError:
            raise Failed(f"{path} does not exist") from None
        except OSError as error:
            raise Failed(f"{path} cannot be read: {error.strerror}") from None
        try:
            self.bytes_total = path.stat().st_size
            self._file = pq.ParquetFile(self._stream)
        except (OSError, ValueError) as error:  # pyarrow's own are of both kinds
            self._stream.close()
            raise Failed(f"{path} cannot be read as Parquet: {error}") from None

    def close(self) -> None:
        self._stream.close()

    def records(self) -> Iterator[PlacedRecord]:
        """Raises `BadLine`: a row that is no record; `Failed`: a file that is none of an export."""
        names = self._file.schema_arrow.names
        other = sorted(set(names) - set(SCHEMA.names))
        if other or not {"data", "bytes"} & set(names) or len(set(names)) != len(names):
            what = f"has the column {other[0]!r}" if other else "has no column data"
            raise Failed(
                f"{self.name} {what}: it is no export, which has {', '.join(SCHEMA.names)}", code=USAGE
            )
        place = 0
        try:
            for group in range(self._file.num_row_groups):
                for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                    for record, size in _rows(batch, place):
                        place += 1
                        yield place, size, record
                    self.bytes_read = self._stream.tell()
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: text that is none
            raise Failed(f"{self.name} cannot be read as Parquet: {error}") from None


def _rows(batch: Any, before: int) -> Iterator[tuple[Any, int]]:
    none = [None] * batch.num_rows

    def column(name: str, kind: Any) -> list[Any]:
        if name not in batch.schema.names:
            return none
        values: list[Any] = batch.column(name).cast(kind).to_pylist()
        return values

    texts, raws = column("data", pa.string()), column("bytes", pa.binary())
    labels = [column(name, pa.string()) for name in _NAMES]
    metas = column("meta", SCHEMA.field("meta").type)
    for at, (text, raw, node, tag, key, content_type, meta) in enumerate(
        zip(texts, raws, *labels, metas, strict=True), before + 1
    ):
        if (text is None) == (raw is None):
            raise BadLine(at, f"has {'neither data nor' if raw is None else 'both data and'} bytes")
        data = raw if text is None else msgspec.Raw(text.encode())
        fields = {
            "node": node,
            "tag": tag,
            "key": key,
            "content_type": content_type,
            "meta": dict(meta or ()),
        }
        yield as_put(data, fields), len(data)
