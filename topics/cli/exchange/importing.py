"""A file as records, each with its place in it: what an export has written, from JSON lines, CSV or Parquet, or what a
tool has dumped of a topic of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from topics.cli.exchange.exporting import FORMATS as EXPORTS
from topics.cli.exchange.kafka import LINE_FACTOR, KafkaMessages
from topics.cli.exchange.putting import PlacedRecord
from topics.cli.exchange.rows import csv_records, json_records
from topics.cli.io.quantities import counted
from topics.cli.io.source import InputSource

if TYPE_CHECKING:
    from topics.cli.exchange.parquet import ParquetFile

KAFKA: Final = "kafka-json"
FORMATS: Final = (*EXPORTS, KAFKA)


class ImportedFile:
    """The file, read once. `reserved`: of how many records something was left out that only a store may say."""

    def __init__(self, name: str, form: str) -> None:
        self.form = form
        self.reserved = 0
        self._kafka = KafkaMessages()
        self.origin: InputSource | ParquetFile
        if form == "parquet":
            from topics.cli.exchange.parquet import ParquetFile

            self.origin = ParquetFile(name)
        else:
            self.origin = InputSource(name)

    def close(self) -> None:
        self.origin.close()

    def notes(self) -> Iterator[str]:
        """What is not in the records as it was in the file."""
        if self.reserved:
            yield f"{counted(self.reserved, 'record')} came by a router or as dead letters; where from is left out"
        if self._kafka.encoded:
            yield f"{counted(self._kafka.encoded, 'record')} had a key or headers that are no text: they are base64 now"
        if self._kafka.repeated:
            yield f"{counted(self._kafka.repeated, 'record')} had a header twice: the last of a name is kept"

    def records(self, *, line_max: int, from_line: int = 1) -> Iterator[PlacedRecord]:
        for place, size, record in self._read(line_max, from_line):
            if type(record) is dict and "meta" in record:
                self._keep_own(record)
            yield place, size, record

    def _read(self, line_max: int, from_line: int) -> Iterator[PlacedRecord]:
        if not isinstance(self.origin, InputSource):
            return self.origin.records()
        if self.form == KAFKA:
            lines = self.origin.lines(line_max=LINE_FACTOR * line_max)
            return self._kafka.records(lines, from_line=from_line)
        read = json_records if self.form == "jsonl" else csv_records
        return read(self.origin, line_max=line_max, from_line=from_line)

    def _keep_own(self, record: dict[str, Any]) -> None:
        """From which queue a dead letter came and by which router a copy is only the store's to say."""
        from topics.calls.intake import RESERVED_META

        own = {name: text for name, text in record["meta"].items() if not name.startswith(RESERVED_META)}
        self.reserved += len(own) < len(record["meta"])
        record["meta"] = own or None
