"""A directory of ledgerq, read only: its dialect, how far it is read, its entries in order, and what is damaged.

Nothing is believed that no checksum covers: names of files give the order of segments, and about where their ids begin;
indexes are not read. A metadata file that cannot be read is a fault, and then nothing counts as consumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import msgspec

from topics.codec.ledgerq.entries import (
    ID_MAX,
    ID_STEP_MAX,
    BrokenEntry,
    LedgerqEntry,
    decode_segment,
    is_release,
)
from topics.codec.ledgerq.layout import RELEASE, SEED, Dialect, EntryType, Level
from topics.codec.ledgerq.position import RELEASE_METADATA, SEED_METADATA, Position, decode_position
from topics.kernel.errors import CannotOpen, Corrupt, Unusable

_SEGMENTS: Final = "[0-9]" * 20 + ".log"
RETRIES: Final = ".retry_state.json"
DEDUP: Final = ".dedup_state.json"


@attrs.frozen
class NotImported:
    """What of a directory is not imported: which file, from which byte on, and why. `id`: of which entry, if known."""

    file: str
    offset: int
    why: str
    id: int | None = None

    def __str__(self) -> str:
        name = "" if self.id is None else f" (id {self.id})"
        return f"{self.file} at byte {self.offset}{name}: {self.why}"


@attrs.frozen(kw_only=True)
class Survey:
    """What a first reading finds. `deleted`: ids of tombstones. `overtaken`: entries below the read position that have
    a lower priority than one that was handed out. `missing`: ids that are not consumed and of which there is no entry,
    first and last of each run, up to the next id.
    """

    entries: int
    first_ns: int | None
    last_id: int
    deleted: frozenset[int]
    consumed: int
    overtaken: int
    faults: list[NotImported]
    missing: list[tuple[int, int]]


class Directory:
    """One queue of ledgerq.

    Raises:
        CannotOpen: there is none at `root`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self.segments = sorted(root.glob(_SEGMENTS))
            names = {path.name for path in root.iterdir()}
        except NotADirectoryError:
            raise CannotOpen(Unusable.NOT_A_DIRECTORY, f"{root} is no directory") from None
        except FileNotFoundError:
            raise CannotOpen(Unusable.MISSING, f"{root} does not exist") from None
        metadata = names & {SEED_METADATA, RELEASE_METADATA}
        if not self.segments and not metadata:
            raise CannotOpen(
                Unusable.FOREIGN,
                f"{root} is no directory of ledgerq: it has neither segments (20 digits and .log) nor {SEED_METADATA} "
                f"or {RELEASE_METADATA}",
            )
        self.dialect = self._dialect(metadata)
        self.faults: list[NotImported] = []
        self.position = self._position()

    def entries(self) -> Iterator[tuple[str, LedgerqEntry | BrokenEntry]]:
        """Of all segments, each with its file's name."""
        last_id = 0
        for path in self.segments:
            segment = decode_segment(
                path.read_bytes(), self.dialect, after_id=last_id, about_id=int(path.stem)
            )
            for found in segment:
                if isinstance(found, LedgerqEntry) and found.type is EntryType.DATA:
                    last_id = found.id
                yield path.name, found

    def survey(self, read_id: int) -> Survey:
        """Read it all. `read_id`: what is below is consumed."""
        entries = consumed = last_id = 0
        first_ns: int | None = None
        deleted, faults = set[int](), list(self.faults)
        below, missing = _Below(), list[tuple[int, int]]()
        for name, found in self.entries():
            if isinstance(found, BrokenEntry):
                faults.append(NotImported(name, found.offset, found.why, found.id))
            elif found.type is EntryType.TOMBSTONE:
                deleted.add(found.id)
            elif found.type is EntryType.DATA:
                _add_run(missing, max(last_id + 1, read_id), found.id)
                entries, last_id = entries + 1, found.id
                first_ns = found.timestamp_ns if first_ns is None else min(first_ns, found.timestamp_ns)
                if found.id < read_id:
                    consumed += 1
                    below.add(found.priority)
        _add_run(missing, max(last_id + 1, read_id), self.next_id(last_id) or 0)
        return Survey(
            entries=entries, first_ns=first_ns, last_id=last_id, deleted=frozenset(deleted), consumed=consumed,
            overtaken=below.overtaken(), faults=faults, missing=missing,
        )  # fmt: skip

    def next_id(self, last_id: int) -> int | None:
        """Of the message to come, as the metadata file says; None if it cannot be, behind this id."""
        if self.position is None:
            return None
        about_id = max(last_id, int(self.segments[-1].stem) if self.segments else 0)
        return self.position.next_id if self.position.next_id <= min(about_id + ID_STEP_MAX, ID_MAX) else None

    def counted(self, name: str) -> int:
        """How many entries a state file beside the segments has (`RETRIES`, `DEDUP`); 0 if it cannot be read."""
        try:
            state = msgspec.json.decode((self.root / name).read_bytes())
        except (OSError, msgspec.MsgspecError, RecursionError):
            return 0
        entries = (
            state.get("entries", state) if isinstance(state, dict) else ()
        )  # the seed's has them at the top
        return len(entries) if isinstance(entries, (list, dict)) else 0

    def _dialect(self, metadata: set[str]) -> Dialect:
        """As its metadata file is called; by the first bytes of the oldest segment if there is none, or both."""
        if len(metadata) == 1:
            return RELEASE if RELEASE_METADATA in metadata else SEED
        if not self.segments:
            return SEED
        with self.segments[0].open("rb") as file:
            return RELEASE if is_release(file.read(4)) else SEED

    def _position(self) -> Position | None:
        name = RELEASE_METADATA if self.dialect is RELEASE else SEED_METADATA
        try:
            return decode_position((self.root / name).read_bytes(), self.dialect)
        except FileNotFoundError:
            self.faults.append(NotImported(name, 0, "it is not there, so nothing counts as consumed"))
        except Corrupt as error:
            self.faults.append(NotImported(name, 0, f"{error.message}; nothing counts as consumed"))
        return None


def _add_run(runs: list[tuple[int, int]], start: int, stop: int) -> None:
    """From `start` up to `stop`, if any is there."""
    if start < stop:
        runs.append((start, stop - 1))


class _Below:
    """The priorities of what counts as consumed, by id. The last one was handed out, for the position is behind it."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Level, 0)
        self._last = Level.LOW

    def add(self, priority: Level) -> None:
        self._counts[priority] += 1
        self._last = priority

    def overtaken(self) -> int:
        """How many are of a lower priority than the last."""
        return sum(count for level, count in self._counts.items() if level < self._last)
