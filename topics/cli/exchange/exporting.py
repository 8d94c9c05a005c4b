"""A topic into a file: every record up to the head, and of what is lost a count by reason.

What was lost is told as it is met, and summed up at the end: a file of records alone would be silent about it. What was
deleted, acknowledged or has expired by its own wish is not lost and not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from topics.cli.core.failure import USAGE, Failed
from topics.cli.exchange.outlet import STDOUT, GzipSink, Sink, opened
from topics.cli.exchange.rows import CsvWriter, JsonLinesWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topics.calls.page import Page, Record
    from topics.log.floors import Gap

FORMATS: Final = ("jsonl", "csv", "parquet")
GZIP: Final = ".gz"
_BY_SUFFIX: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class Writer(Protocol):
    """A format."""

    def write(self, records: Sequence[Record], /) -> None: ...

    def finish(self) -> None:
        """What makes it whole."""
        ...


@attrs.define(kw_only=True)
class Exported:
    """What an export has done. `lost`: records by reason; `tombstones`: which."""

    topic: str
    file: str
    format: str
    epoch: int
    head_seq: int
    records: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    lost: dict[str, int] = attrs.field(factory=dict)
    tombstones: list[dict[str, Any]] = attrs.field(factory=list)


def format_of(name: str, asked: str | None, formats: Sequence[str] = FORMATS) -> str:
    """The format that is asked for, or that the name of the file tells; standard streams are JSON lines.

    Raises:
        Failed: neither says it, or Parquet would be packed twice.
    """
    is_packed = name.lower().endswith(GZIP)
    found = asked or ("jsonl" if name == STDOUT else _told_by(name))
    if found is None:
        raise Failed(
            f"the name of {name} does not tell its format ({', '.join(_BY_SUFFIX)}): give --format"
            f" {'|'.join(formats)}",
            code=USAGE,
        )
    if found == "parquet" and is_packed:
        raise Failed(f"Parquet is packed as it is: leave {GZIP} off {name}", code=USAGE)
    return found


def format_to_write(name: str, asked: str | None) -> str:
    """As `format_of`, and the name does not say another one. Raises `Failed`."""
    told = _told_by(name)
    if asked is not None and told not in (None, asked):
        raise Failed(
            f"FILE: the name of {name} says {told} and --format {asked}: leave one out, or give the file another name",
            code=USAGE,
        )
    return format_of(name, asked)


def _told_by(name: str) -> str | None:
    suffix = name.lower().removesuffix(GZIP)
    return next((form for end, form in _BY_SUFFIX.items() if suffix.endswith(end)), None)


def export_to(file: str, pages: Iterable[Page], done: Exported, tell: Callable[[Gap], None]) -> None:
    """Write the records of the pages that are not beyond `done.head_seq`. `tell`: is told each loss.

    Raises:
        Failed: the file cannot be written, or the topic is another one by now.
    """
    with opened(file) as stream:
        packed = GzipSink(stream) if file.lower().endswith(GZIP) else None
        writer = _writer(done.format, packed or stream)
        for page in pages:
            if page.epoch != done.epoch:
                raise Failed(
                    f"topic {done.topic!r} was deleted and created again while it was exported: export it anew"
                )
            if page.tombstone is not None:
                _add_loss(done, page.tombstone)
                tell(page.tombstone)
            records = [record for record in page.records if record.seq <= done.head_seq]
            if records:
                writer.write(records)
                done.records += len(records)
                done.first_seq = done.first_seq or records[0].seq
                done.last_seq = records[-1].seq
        writer.finish()
        if packed is not None:
            packed.finish()


def _writer(form: str, sink: Sink) -> Writer:
    match form:
        case "jsonl":
            return JsonLinesWriter(sink)
        case "csv":
            return CsvWriter(sink)
    from topics.cli.exchange.parquet import ParquetWriter

    return ParquetWriter(sink)


def _add_loss(done: Exported, gap: Gap) -> None:
    from topics.calls.page import tombstone_fields

    reason = gap.reason.value
    done.lost[reason] = done.lost.get(reason, 0) + gap.missed_estimate
    done.tombstones.append(tombstone_fields(gap))
