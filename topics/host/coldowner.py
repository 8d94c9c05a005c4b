"""Whose segments a cold directory holds: one note in the data directory, the same one in the cold tier (storage 6).

Without it two stores that were given one cold directory would each take the other's segments for rubbish, and remove
them. A copy of a data directory made by a backup has no note of its own, so it reads the cold segments of its original
and touches none of them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from topics.host.tiers import OWNER_FILE, SegmentStore
from topics.kernel.errors import Corrupt, Rejected, invalid
from topics.kernel.ports import Disk, Entropy

NOTE_FILE: Final = "COLD"
NOTE_FORMAT: Final = 1
_TEMPORARY: Final = f"{NOTE_FILE}.tmp"
_NOTE_SIZE_MAX: Final = 4096
_TOKEN_SIZE: Final = 16


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    owner: str


class Whose(Enum):
    """Whose segments a cold directory holds, as a data directory sees it."""

    OURS = "ours"
    BORROWED = "borrowed"  # of the original of a copy, which may read them
    OTHER = "other"


def note_of(disk: Disk) -> bytes | None:
    """The note of the data directory, None if it has none. A damaged one is that of no cold tier. Raises OSError."""
    try:
        return _own_note(disk)
    except Corrupt:
        return b""


def whose(disk: Disk, store: SegmentStore) -> Whose:
    """Whose segments these are, by both notes; nothing is made. Raises OSError."""
    theirs = store.read_owner()
    return compare_notes(note_of(disk), theirs)


def compare_notes(ours: bytes | None, theirs: bytes | None) -> Whose:
    """Whose segments a cold directory with the note `theirs` holds, for a data directory with the note `ours`."""
    if theirs is None or ours not in (None, theirs):
        return Whose.OTHER
    return Whose.BORROWED if ours is None else Whose.OURS


def claim(disk: Disk, store: SegmentStore, entropy: Entropy, *, expected: int = 0) -> bytes:
    """The note that both have; made if neither has one. Nothing may be put or removed before.

    `expected`: how many segments the state says are in a cold tier. One that is empty then is not it: as a rule a
    mount point with nothing mounted. With a note it would pass for the right one, and what it lacks for lost.

    Raises:
        Rejected: the cold directory is another store's, or not where the segments are.
        OSError: either fails.
        Corrupt: the note of the data directory is damaged.
    """
    note, theirs = _own_note(disk), store.read_owner()
    if theirs is None and expected:
        raise _elsewhere(store, expected)
    if note is None:
        if theirs is not None or store.list():
            raise _foreign(store)
        note = _make_note(disk, entropy)
    if theirs is None:
        if store.list():
            raise _foreign(store)
        store.write_owner(note)
    elif theirs != note:
        raise _foreign(store)
    return note


def _own_note(disk: Disk) -> bytes | None:
    size = disk.size(NOTE_FILE)
    if size is None:
        return None
    data = disk.read(NOTE_FILE, 0, min(size, _NOTE_SIZE_MAX))
    try:
        note = msgspec.json.decode(data, type=_Note)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"{NOTE_FILE} does not say whose cold segments are this store's: {error}") from error
    if note.format != NOTE_FORMAT:
        raise Corrupt(f"{NOTE_FILE} has format {note.format}, not {NOTE_FORMAT}")
    return data


def _make_note(disk: Disk, entropy: Entropy) -> bytes:
    note = msgspec.json.encode(_Note(NOTE_FORMAT, entropy.token(_TOKEN_SIZE).hex()))
    disk.create(_TEMPORARY, 0)
    disk.write(_TEMPORARY, 0, [note])
    disk.sync_data(_TEMPORARY)
    disk.rename(_TEMPORARY, NOTE_FILE)
    disk.sync_dir("")
    return note


def _elsewhere(store: SegmentStore, expected: int) -> Rejected:
    what = (
        f"{expected} segments of this store are in a cold tier"
        if expected > 1
        else "a segment of this store is in a cold tier"
    )
    return invalid(
        "cold_dir",
        f"{what}, and {store.where} has no {OWNER_FILE}: it is not mounted, or not the place: see to it, start again",
    )


def _foreign(store: SegmentStore) -> Rejected:
    return invalid(
        "cold_dir",
        f"{store.where} holds the cold segments of another store; give each store a cold directory of its own",
    )
