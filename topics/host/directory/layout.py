"""The names of a data directory, and its two smallest files: FORMAT and CURRENT (storage 1).

FORMAT says which store it is, too: 16 random bytes, with which the checksums of a segment's smaller files begin
(`host.segments.segment_seals`). Its own checksum is over all that stands before it.

Where the log and the segments lie is said here, as paths and as patterns. Whoever meets a name and asks whether topics
gave it uses the patterns, so that a start, fsck and a restore agree on which files there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import attrs
import msgspec

from topics.codec.primitives import checksum
from topics.host.system.temporary import write_file
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import GENERATION_MAX, WAL_SHARDS_MAX
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId, Source, WalFileId

FORMAT_VERSION: Final = 2
OLDEST_VERSION: Final = 1
FORMAT_FILE: Final = "FORMAT"
_FORMAT_TEMPORARY: Final = "FORMAT.tmp"
_FORMAT_SIZE_MAX: Final = 4096
_IDENTITIES_KEPT: Final = 16  # one a store that a process looks at
_OWN_NAMES: Final = frozenset({"LOCK", FORMAT_FILE, _FORMAT_TEMPORARY})
_OWN_FOLDERS: Final = frozenset({"archive", "meta", "topics", "wal"})
NEXT_FILE: Final = "next.tmp"
CURRENT_FILE: Final = "CURRENT"
CURRENT_SIZE: Final = len("wal-.log") + 20 + 1 + 16 + 1
OF_A_NEW_DISK: Final = frozenset({"lost+found"})
SEGMENT_PARTS: Final = ("data", "idx", "col", "del")
# Patterns of names, to be put together; the groups hold the numbers.
GENERATION_NAME: Final = r"gen-(?P<generation>0|[1-9][0-9]{0,8})"
SHARD_NAME: Final = r"shard-(?P<shard>[0-9]{2})"
WAL_NAME: Final = r"wal-(?P<first_frame>[0-9]{20})\.log"
TOPIC_NAME: Final = r"(?P<topic_id>[0-9a-f]{16})"
SEGMENT_NAME: Final = rf"seg-(?P<first_seq>[0-9]{{20}})\.(?P<part>{'|'.join(SEGMENT_PARTS)})"
_STORE: Final = re.compile(rb'"store":"([0-9a-f]{32})"')
_GENERATION: Final = re.compile(GENERATION_NAME, re.ASCII)
_SHARD: Final = re.compile(SHARD_NAME, re.ASCII)
_WAL: Final = re.compile(WAL_NAME, re.ASCII)
_SEGMENT_PATH: Final = re.compile(rf"topics/{TOPIC_NAME}/{SEGMENT_NAME}(\.tmp)?", re.ASCII)

_T = TypeVar("_T")


class _Version(msgspec.Struct, frozen=True):
    """What every FORMAT says, whatever else a newer one may hold."""

    format: int


@attrs.frozen
class Format:
    """The FORMAT file: version, how many shards the current generation of the WAL has, and which store it is.

    `store`: 32 hex digits. `raising`: there may be segments' files of format 1 yet.
    """

    shards: int
    generation: int
    format: int = FORMAT_VERSION
    store: str = "0" * 32
    raising: bool = False

    def encode(self) -> bytes:
        assert self.format == FORMAT_VERSION
        said = {
            "format": self.format,
            "shards": self.shards,
            "generation": self.generation,
            "store": self.store,
        }
        return with_sum(said | ({"raising": True} if self.raising else {}))


@attrs.frozen
class Identity:
    """Which store a FORMAT is of: None of format 1, or if nobody can tell. `raising` as in `Format`."""

    store: bytes | None
    raising: bool


def with_sum(value: object) -> bytes:
    """The JSON of an object, and at its end the checksum over all that stands before it."""
    text = msgspec.json.encode(value)[:-1]
    return b'%b,"sum":"%016x"}' % (text, checksum(text))


def read_format(disk: Disk, where: str) -> Format | None:
    """The directory's FORMAT, None if it is empty and may become a store. Disks may be mounted in it already.

    Raises:
        CannotOpen: not a store's directory, or one of a newer version.
    """
    size = disk.size(FORMAT_FILE)
    if size is None:
        names = set(disk.names(""))
        if FORMAT_FILE in names:
            raise CannotOpen(
                Unusable.FOREIGN,
                f"{where}/{FORMAT_FILE} is no file: remove it, and put the file back from a backup",
                path=where,
            )
        others = sorted(name for name in names - _OWN_NAMES if not _awaits_a_store(disk, name))
        if others:
            raise CannotOpen(
                Unusable.FOREIGN,
                f"{where} is no topics directory: it has no FORMAT, but holds {', '.join(others[:3])}; "
                f"{_way_out(others)}",
                path=where,
            )
        return None
    data = disk.read(FORMAT_FILE, 0, min(size, _FORMAT_SIZE_MAX))
    version = _decode(data, _Version)
    if version is not None and version.format > FORMAT_VERSION:
        raise CannotOpen(
            Unusable.NEWER_FORMAT,
            f"{where} has format {version.format}; this version of topics reads up to {FORMAT_VERSION}: "
            "use a newer topics",
            path=where,
            format=version.format,
        )
    form = _decode(data, Format)
    if (
        version is None
        or version.format < OLDEST_VERSION
        or form is None
        or not 1 <= form.shards <= WAL_SHARDS_MAX
        or not 0 <= form.generation <= GENERATION_MAX
        or (form.format > OLDEST_VERSION and form.encode() != data)
    ):
        raise CannotOpen(
            Unusable.FOREIGN,
            f"{where}/FORMAT is not a FORMAT file of topics; if it is damaged: topics fsck {where} --repair",
            path=where,
        )
    return form


def _way_out(names: Sequence[str]) -> str:
    """What to do with a directory that has no FORMAT and holds these."""
    if "wal" in names:
        return "if it has lost its FORMAT: put it back from a backup, or topics fsck --repair"
    return "choose another"


def _awaits_a_store(disk: Disk, name: str) -> bool:
    """Whether it is one of a store's folders with nothing in it: made beforehand, for a disk of its own."""
    if name not in _OWN_FOLDERS or disk.size(name) is not None:
        return False
    return OF_A_NEW_DISK.issuperset(disk.names(name))


def _decode(data: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def write_format(disk: Disk, form: Format) -> None:
    """Replace FORMAT atomically and durably."""
    write_file(disk, _FORMAT_TEMPORARY, form.encode())
    disk.rename(_FORMAT_TEMPORARY, FORMAT_FILE)
    disk.sync_dir("")


def read_identity(disk: Disk) -> Identity:
    """Which store it is, even if the rest of FORMAT is damaged: what is believed is shown by the files that fit it.

    Raises:
        OSError: the disk failed.
    """
    try:
        return _identity(disk.read(FORMAT_FILE, 0, _FORMAT_SIZE_MAX))
    except FileNotFoundError:
        return Identity(None, raising=False)


@lru_cache(maxsize=_IDENTITIES_KEPT)
def _identity(data: bytes) -> Identity:
    found = _STORE.search(data)
    return Identity(bytes.fromhex(found[1].decode()) if found else None, raising=b'"raising":true' in data)


def shard_dir(generation: int, shard: int) -> str:
    return f"wal/gen-{generation}/shard-{shard:02d}"


def wal_path(file: WalFileId) -> str:
    """Path of a WAL file: its name is the number of its first frame, 20 digits."""
    return f"{shard_dir(file.generation, file.shard)}/wal-{file.first_frame:020d}.log"


def hint(file: WalFileId) -> bytes:
    """What CURRENT says: the file's name and a checksum of it. It is written when header and name are durable, so it
    may lag behind but never leads: a file it names and that is not there is lost.
    """
    name = wal_path(file).rsplit("/", 1)[1].encode()
    line = b"%b %016x\n" % (name, checksum(name))
    assert len(line) == CURRENT_SIZE
    return line


def topic_dir(topic_id: int) -> str:
    """Directory of a topic's segments: its name is the topic's id, 16 hex digits."""
    return f"topics/{topic_id:016x}"


def segment_path(topic_id: int, first_seq: int, part: str) -> str:
    """Path of one file of a segment, below a data directory or a cold tier; `part`: of SEGMENT_PARTS."""
    assert part in SEGMENT_PARTS, part
    return f"{topic_dir(topic_id)}/seg-{first_seq:020d}.{part}"


def segment_of(path: str) -> SegmentId | None:
    """The segment that a path below the root belongs to, its temporary names too; None if it is none of ours."""
    match = _SEGMENT_PATH.fullmatch(path)
    return SegmentId(int(match["topic_id"], 16), int(match["first_seq"])) if match is not None else None


def path_of(source: Source) -> str:
    """The file that a source of records is."""
    assert not isinstance(source, bytes), "an ephemeral topic's records are in no file"
    return wal_path(source) if isinstance(source, WalFileId) else segment_path(*source, "data")


def find_shards(disk: Disk) -> list[tuple[int, int]]:
    """(generation, shard) of every log directory, ascending."""
    return shards_in(disk, "wal")


def shards_in(disk: Disk, root: str) -> list[tuple[int, int]]:
    """The same of another directory that holds logs; `""` is the disk's own root."""
    found = []
    for generation_name in disk.names(root):
        generation = _GENERATION.fullmatch(generation_name)
        if generation is None:
            continue
        for shard_name in disk.names(f"{root}/{generation_name}".lstrip("/")):
            shard = _SHARD.fullmatch(shard_name)
            if shard is not None:
                found.append((int(generation["generation"]), int(shard["shard"])))
    return sorted(found)


def find_wal_files(disk: Disk, generation: int, shard: int) -> list[WalFileId]:
    """The WAL files of one shard, ascending; temporary files and the hint are not among them."""
    return find_wal_files_in(disk, "wal", generation, shard)


def find_wal_files_in(disk: Disk, root: str, generation: int, shard: int) -> list[WalFileId]:
    """The same of another directory that holds logs."""
    names = disk.names(_below(root, shard_dir(generation, shard)))
    found = (_WAL.fullmatch(name) for name in names)
    numbers = sorted(int(match["first_frame"]) for match in found if match is not None)
    return [WalFileId(generation, shard, number) for number in numbers]


def log_files_bytes(disk: Disk) -> int:
    """Of all files of the log, with the next ones."""
    size = 0
    for key in find_shards(disk):
        paths = [wal_path(file) for file in find_wal_files(disk, *key)]
        size += sum(disk.size(path) or 0 for path in [*paths, f"{shard_dir(*key)}/{NEXT_FILE}"])
    return size


def wal_path_in(root: str, file: WalFileId) -> str:
    """Where a WAL file lies in another directory that holds logs."""
    return _below(root, wal_path(file))


def _below(root: str, path: str) -> str:
    """A path below `wal` as one below another root."""
    return (root + path.removeprefix("wal")).lstrip("/")


def read_hint(disk: Disk, generation: int, shard: int) -> WalFileId | None:
    """The file that CURRENT names; None if there is no hint, or it fails its checksum: it is only a hint."""
    return read_hint_in(disk, "wal", generation, shard)


def read_hint_in(disk: Disk, root: str, generation: int, shard: int) -> WalFileId | None:
    """The same of another directory that holds logs."""
    path = _below(root, f"{shard_dir(generation, shard)}/{CURRENT_FILE}")
    if disk.size(path) != CURRENT_SIZE:
        return None
    line = disk.read(path, 0, CURRENT_SIZE)
    match = _WAL.fullmatch(line[:28].decode("ascii", "replace"))
    if match is None:
        return None
    file = WalFileId(generation, shard, int(match["first_frame"]))
    return file if line == hint(file) else None


def write_hint(disk: Disk, file: WalFileId) -> None:
    """Name the file in CURRENT, durably."""
    path = f"{shard_dir(file.generation, file.shard)}/{CURRENT_FILE}"
    disk.write(path, 0, [hint(file)])
    disk.sync_data(path)


def make_shard_dir(disk: Disk, generation: int, shard: int) -> None:
    """A log directory and its parents, durably; what a crash left half-made in it is removed."""
    directory = shard_dir(generation, shard)
    disk.make_dir(directory)
    for parent in (f"wal/gen-{generation}", "wal", ""):
        disk.sync_dir(parent)
    disk.unlink(f"{directory}/{NEXT_FILE}")
    if disk.size(f"{directory}/{CURRENT_FILE}") != CURRENT_SIZE:
        disk.create(f"{directory}/{CURRENT_FILE}", CURRENT_SIZE)
