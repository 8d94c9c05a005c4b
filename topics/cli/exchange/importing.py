"""A file as records, each with its place in it: what an export has written, from JSON lines, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from topics.cli.exchange.putting import PlacedRecord
from topics.cli.exchange.rows import csv_records, json_records
from topics.cli.io.source import InputSource

if TYPE_CHECKING:
    from topics.cli.exchange.parquet import ParquetFile


class ImportedFile:
    """The file, read once. `reserved`: of how many records something was left out that only a store may say."""

    def __init__(self, name: str, form: str) -> None:
        self.form = form
        self.reserved = 0
        self.origin: InputSource | ParquetFile
        if form == "parquet":
            from topics.cli.exchange.parquet import ParquetFile

            self.origin = ParquetFile(name)
        else:
            self.origin = InputSource(name)

    def close(self) -> None:
        self.origin.close()

    def records(self, *, line_max: int) -> Iterator[PlacedRecord]:
        for place, size, record in self._read(line_max):
            if type(record) is dict and "meta" in record:
                self._keep_own(record)
            yield place, size, record

    def _read(self, line_max: int) -> Iterator[PlacedRecord]:
        if not isinstance(self.origin, InputSource):
            return self.origin.records()
        read = json_records if self.form == "jsonl" else csv_records
        return read(self.origin, line_max=line_max)

    def _keep_own(self, record: dict[str, Any]) -> None:
        """From which queue a dead letter came and by which router a copy is only the store's to say."""
        from topics.calls.intake import RESERVED_META

        own = {name: text for name, text in record["meta"].items() if not name.startswith(RESERVED_META)}
        self.reserved += len(own) < len(record["meta"])
        record["meta"] = own or None
