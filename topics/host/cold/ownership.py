"""Who may change a cold directory: one store, by a note that lies in it and in the data directory (storage 6).

`owner`, in both, says whose segments these are: two stores that were given one cold directory would each take the
other's for rubbish. A copy reads the cold segments of its original and touches none.

In a copy made by a backup the note says so. One made by other means would pass for the original. Two things tell it:

  LOCK remembers its own inode, and a copied file has another one. Then the note is marked `copied`, for good: nobody
  can know which of the two goes on, so the operator says it (`own_tier`). Not by the device: its number changes when a
  file system is mounted again.
  `epoch` counts up before the first change of a slice of relocation and behind the last, first in the data directory
  and then in the cold tier. So each copy that was made before a change has an epoch that has gone by, even one of
  whole blocks. Who has that of the tier, or the next one, changes the tier; all others read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import msgspec

from topics.codec.primitives import checksum
from topics.host.cold.cold_messages import (
    OWN_NOTE,
    told_copy,
    told_elsewhere,
    told_no_note,
    told_occupied,
    told_owner,
    told_taken,
)
from topics.host.cold.segment_stores import OWNER_FILE, GuardedStore, SegmentStore
from topics.host.system.refusals import FULL
from topics.host.system.temporary import write_file
from topics.kernel.errors import Corrupt, invalid
from topics.kernel.limits import NOTE_BYTES_MAX
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId

NOTE_FILE: Final = OWN_NOTE
NOTE_FORMAT: Final = 1
NOTE_SIZE: Final = 256  # all of the same size: one can be replaced in place
_TEMPORARY: Final = f"{NOTE_FILE}.tmp"
_OWNER_SIZE: Final = 16
_DAMAGED: Final = b""  # stands for a note that cannot be read


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`epoch` is 0 before the first change. `copied` is in the data directory's alone. `check` is the checksum of the
    rest, for one bit makes another owner; the first versions wrote none. Earlier versions drew a `token` instead of
    counting, which in the tier is that or the one `before`; what else they wrote is read and means nothing.
    """

    format: int
    owner: str
    epoch: int = 0
    copied: bool = False
    token: str = ""
    before: str = ""
    inode: int = 0
    unlocked: bool = False
    check: str = ""


class Whose(Enum):
    """Whose segments a cold directory holds, as a data directory sees it."""

    OURS = "ours"
    BORROWED = "borrowed"  # of the original of a copy, which may read them
    UNKNOWN = "unknown"  # this directory has no note: it may be a copy, of which another one has gone on
    TAKEN = "taken"  # another copy of this directory has gone on with them: what is not there may be with that one
    OTHER = "other"

    @property
    def complete(self) -> bool:
        """Whether what is not there is lost. Else another one may have it."""
        return self in (Whose.OURS, Whose.BORROWED)


def note_of(disk: Disk) -> bytes | None:
    """The note of the data directory, None if it has none. A damaged one is that of no cold tier. Raises OSError."""
    try:
        note = _own_note(disk)
    except Corrupt:
        return _DAMAGED
    return None if note is None else msgspec.json.encode(note)


def told_own(note: bytes | None, where: str, expected: int) -> str:
    """What is the matter with the note of a data directory, for its operator; "" if nothing is. `where`: the cold tier;
    `expected`: how many segments the state says are there.
    """
    if note == _DAMAGED:
        return told_no_note(where, damaged=True)
    if note is None:
        return told_no_note(where) if expected else ""
    return told_copy(where) if is_copy(note) else ""


def told_theirs(note: bytes | None, where: str, expected: int) -> str:
    """As `told_own`, of the note in the cold tier."""
    if note is None:
        return told_owner(where, damaged=False) if expected else ""
    return "" if _decoded(note) is not None else told_owner(where, damaged=True)


def note_for_copy(disk: Disk) -> bytes | None:
    """The note that a backup of the data directory gets, None if this one has none that can be read. Raises OSError."""
    note = _readable_note(disk)
    if note is None:
        return None
    return _padded(msgspec.structs.replace(note, copied=True))


def whose(disk: Disk, store: SegmentStore) -> Whose:
    """Whose segments these are, by both notes; nothing is made. Raises OSError."""
    theirs = store.read_owner()
    return compare_notes(note_of(disk), theirs)


def compare_notes(ours: bytes | None, theirs: bytes | None) -> Whose:
    """Whose segments a cold directory with the note `theirs` holds, for a data directory with the note `ours`."""
    if theirs is None:
        return Whose.OTHER
    if ours is None:
        return Whose.UNKNOWN
    own, there = _decoded(ours), _decoded(theirs)
    return Whose.OTHER if own is None or there is None else _compare(own, there)


def is_foreign(ours: bytes | None, theirs: bytes | None) -> bool:
    """Whether a cold directory is surely another store's: both notes can be read, and name another owner."""
    own, there = (None if note is None else _decoded(note) for note in (ours, theirs))
    return own is not None and there is not None and own.owner != there.owner


def is_copy(note: bytes | None) -> bool:
    """Whether a data directory with this note was copied or moved, and has not adopted the cold tier since."""
    found = None if note is None else _decoded(note)
    return found is not None and found.copied


def settle_place(disk: Disk, *, inode: int, remembered: int) -> None:
    """Before LOCK learns its place: if that is another than it remembers, say durably in the note that this is a copy.
    `inode`: of LOCK; `remembered`: the one that it has in it, 0 for none.

    Raises:
        OSError: the disk failed.
    """
    if remembered in (0, inode):
        return
    note = _readable_note(disk)  # a damaged one is that of no cold tier
    if note is not None and not note.copied:
        _write_note(disk, msgspec.structs.replace(note, copied=True))


def claim_tier(disk: Disk, store: SegmentStore, entropy: Entropy, *, expected: int = 0) -> bytes:
    """The note of the data directory, by which it may change the cold tier; made if neither has one.

    `expected`: how many segments the state says are in a cold tier. One that is empty then is not it: as a rule a
    mount point with nothing mounted. With a note it would pass for the right one, and what it lacks for lost.

    Raises:
        Rejected: the cold directory is another store's, or not where the segments are, or this is a copy.
        OSError: either fails.
        Corrupt: the note of the data directory is damaged, and there are segments that it may be about.
    """
    theirs = store.read_owner()
    empty = theirs is None and not expected and not store.list()
    try:
        note = _own_note(disk)
    except Corrupt as damage:
        if not empty:
            raise Corrupt(f"{damage.message}. {told_no_note(store.where, damaged=True)}") from damage
        note = None  # it is about nothing that anybody has
    if theirs is None:
        if expected:
            raise invalid("cold_dir", told_elsewhere(store.where, expected))
        if not empty:
            raise invalid("cold_dir", told_occupied(store.where))
        if note is None or note.copied:  # a copy that has nothing cold begins a tier of its own
            note = _Note(NOTE_FORMAT, entropy.token(_OWNER_SIZE).hex())
            _write_note(disk, note)
        store.write_owner(_encoded(note))
    elif note is None:
        why = told_no_note(store.where) if expected else told_occupied(store.where)
        raise invalid("cold_dir", why)
    else:
        _check(note, theirs, store)
    return msgspec.json.encode(note)


def are_notes_readable(disk: Disk, store: SegmentStore) -> bool:
    """Whether both notes can be read, so that they tell whose the tier is. Raises OSError."""
    theirs = store.read_owner()
    return theirs is not None and _decoded(theirs) is not None and _readable_note(disk) is not None


def own_tier(disk: Disk, store: SegmentStore, entropy: Entropy, *, fits: bool = False) -> None:
    """From now on this directory changes the tier, and every other copy of it only reads. The operator says so.

    `fits`: the segments there are this directory's by name and size (`adopting`), so a note that cannot be read takes
    the owner of the other one, or a new one. Else both notes must say the same owner.

    Raises:
        Rejected: the tier is not that of the directory's original.
        OSError: either fails; do it again.
    """
    note, theirs = _readable_note(disk), store.read_owner()
    there = None if theirs is None else _decoded(theirs)
    known = [one for one in (note, there) if one is not None]
    if not fits and (note is None or there is None or note.owner != there.owner):
        raise invalid(
            "cold_dir",
            f"{NOTE_FILE} in the directory and {OWNER_FILE} in {store.where} do not say the same owner: "
            "only the cold tier of a directory's own original can be adopted",
        )
    owner = known[0].owner if known else entropy.token(_OWNER_SIZE).hex()
    epoch = (
        max((one.epoch for one in known), default=0) + 2
    )  # a copy may have counted one on, and not said it there
    note = _Note(NOTE_FORMAT, owner, epoch)
    _write_note(disk, note)
    store.write_owner(_encoded(note))


class OwnedStore(GuardedStore):
    """A store that is changed only as long as its note says that it is ours. `claim` comes first.

    `tell`: is given the note of the data directory whenever there is a new one.
    """

    def __init__(
        self, store: SegmentStore, disk: Disk, entropy: Entropy, tell: Callable[[bytes], None]
    ) -> None:  # fmt: skip
        super().__init__(store)
        self._disk = disk
        self._entropy = entropy
        self._tell = tell
        self._note: _Note | None = None
        self._changing = False

    def claim(self, expected: int) -> None:
        """As `claim` above."""
        data = claim_tier(self._disk, self, self._entropy, expected=expected)
        self._note = _decoded(data)
        self._changing = False
        self._tell(data)

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        self._begin()
        super().put(segment, parts)

    def delete(self, segment: SegmentId) -> None:
        self._begin()
        super().delete(segment)

    def end_changes(self) -> None:
        """Nothing is changed for a while: a copy that was made meanwhile is one of before the change, too.

        Raises:
            Rejected: another copy of the directory has the tier now.
            StoreFailed, OSError: either fails.
        """
        if self._changing:
            self._count_on()
            self._changing = False

    def _begin(self) -> None:
        if self._changing:
            assert self._note is not None
            _check(self._note, self.read_owner(), self)
        else:
            self._count_on()
            self._changing = True

    def _count_on(self) -> None:
        assert self._note is not None, "claim comes first"
        there = _check(self._note, self.read_owner(), self)
        note = _Note(NOTE_FORMAT, there.owner, there.epoch + 1)
        self._note = note
        self._tell(msgspec.json.encode(note))
        _write_note(self._disk, note)  # first: the tier may be one behind
        self.write_owner(_encoded(note))


def _compare(own: _Note, there: _Note) -> Whose:
    if own.owner != there.owner:
        return Whose.OTHER
    drawn = own.epoch == there.epoch == 0 and there.token not in (own.token, own.before)
    if drawn or own.epoch - there.epoch not in (0, 1):
        return Whose.TAKEN
    return Whose.BORROWED if own.copied else Whose.OURS


def _check(own: _Note, theirs: bytes | None, store: SegmentStore) -> _Note:
    """The note of a tier that is ours. Raises Rejected if it is not."""
    there = None if theirs is None else _decoded(theirs)
    if there is None:
        raise invalid("cold_dir", told_owner(store.where, damaged=theirs is not None))
    found = _compare(own, there)
    if found is Whose.BORROWED:
        raise invalid("cold_dir", told_copy(store.where))
    if found is Whose.TAKEN:
        raise invalid("cold_dir", told_taken(store.where))
    if found is not Whose.OURS:
        raise invalid("cold_dir", told_occupied(store.where))
    return there


def _encoded(note: _Note) -> bytes:
    fields = msgspec.to_builtins(note)
    return msgspec.json.encode({**fields, "check": _check_of(fields)})


def _check_of(fields: Mapping[str, object]) -> str:
    """Of all that the note says, what other versions wrote, too."""
    said = {name: value for name, value in fields.items() if name != "check"}
    return f"{checksum(msgspec.json.encode(said)):016x}"


def _decoded(data: bytes) -> _Note | None:
    try:
        return _read(data, OWNER_FILE)
    except Corrupt:
        return None


def _own_note(disk: Disk) -> _Note | None:
    size = disk.size(NOTE_FILE)
    return None if size is None else _read(disk.read(NOTE_FILE, 0, min(size, NOTE_BYTES_MAX)), NOTE_FILE)


def _readable_note(disk: Disk) -> _Note | None:
    try:
        return _own_note(disk)
    except Corrupt:
        return None


def _read(data: bytes, name: str) -> _Note:
    try:
        fields = msgspec.json.decode(data, type=dict[str, object])
        note = msgspec.convert(fields, _Note)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"{name} does not say whose cold segments are this store's: {error}") from error
    if note.format != NOTE_FORMAT:
        raise Corrupt(f"{name} has format {note.format}, not {NOTE_FORMAT}")
    if note.check not in ("", _check_of(fields)):
        raise Corrupt(
            f"{name} does not say whose cold segments are this store's: its checksum does not match"
        )
    return note


def _padded(note: _Note) -> bytes:
    data = _encoded(note).ljust(NOTE_SIZE - 1) + b"\n"
    assert len(data) == NOTE_SIZE, "owner, tokens and epoch are bounded"
    return data


def _write_note(disk: Disk, note: _Note) -> None:
    data = _padded(note)
    try:
        write_file(disk, _TEMPORARY, data)
    except OSError as error:
        if error.errno not in FULL or disk.size(NOTE_FILE) != NOTE_SIZE:
            raise
        disk.write(NOTE_FILE, 0, [data])  # within one sector, as LOCK is: a full disk is to become less full
        disk.sync_data(NOTE_FILE)
        return
    disk.rename(_TEMPORARY, NOTE_FILE)
    disk.sync_dir("")
