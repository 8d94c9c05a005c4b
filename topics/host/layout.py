"""What a data directory holds beside the log: FORMAT, and where the log and the segments lie (storage 1)."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import attrs
import msgspec

from topics.host.walfile import CURRENT_FILE, CURRENT_SIZE, NEXT_FILE, hint, shard_dir, wal_path
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import U32_MAX, WAL_SHARDS_MAX
from topics.kernel.ports import Disk
from topics.log.regions import Source, WalFileId

FORMAT_VERSION: Final = 1
FORMAT_FILE: Final = "FORMAT"
_FORMAT_TEMPORARY: Final = "FORMAT.tmp"
_FORMAT_SIZE_MAX: Final = 4096
_OWN_NAMES: Final = frozenset({"LOCK", FORMAT_FILE, _FORMAT_TEMPORARY})
_GENERATION: Final = re.compile(r"gen-(0|[1-9][0-9]{0,8})", re.ASCII)
_SHARD: Final = re.compile(r"shard-([0-9]{2})", re.ASCII)
_WAL_NAME: Final = re.compile(r"wal-([0-9]{20})\.log", re.ASCII)

_T = TypeVar("_T")


class _Version(msgspec.Struct, frozen=True):
    """What every FORMAT says, whatever else a newer one may hold."""

    format: int


@attrs.frozen
class Format:
    """The FORMAT file: version, and how many shards the current generation of the WAL has."""

    shards: int
    generation: int

    def encode(self) -> bytes:
        return msgspec.json.encode(
            {"format": FORMAT_VERSION, "shards": self.shards, "generation": self.generation}
        )


def read_format(disk: Disk, where: str) -> Format | None:
    """The directory's FORMAT, None if it is empty and may become a store.

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
        others = sorted(names - _OWN_NAMES)
        if others:
            raise CannotOpen(
                Unusable.FOREIGN,
                f"{where} is no topics directory: it has no FORMAT, but holds {', '.join(others[:3])}; choose another",
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
        or version.format != FORMAT_VERSION
        or form is None
        or not 1 <= form.shards <= WAL_SHARDS_MAX
        or not 0 <= form.generation <= U32_MAX
    ):
        raise CannotOpen(Unusable.FOREIGN, f"{where}/FORMAT is not a FORMAT file of topics", path=where)
    return form


def _decode(data: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def write_format(disk: Disk, form: Format) -> None:
    """Replace FORMAT atomically and durably."""
    data = form.encode()
    disk.create(_FORMAT_TEMPORARY, 0)
    disk.write(_FORMAT_TEMPORARY, 0, [data])
    disk.sync_data(_FORMAT_TEMPORARY)
    disk.rename(_FORMAT_TEMPORARY, FORMAT_FILE)
    disk.sync_dir("")


def topic_dir(topic_id: int) -> str:
    """Directory of a topic's segments: its name is the topic's id, 16 hex digits."""
    return f"topics/{topic_id:016x}"


def segment_path(topic_id: int, first_seq: int, part: str) -> str:
    """Path of one file of a segment; `part` is data, idx or col."""
    assert part in ("data", "idx", "col")
    return f"{topic_dir(topic_id)}/seg-{first_seq:020d}.{part}"


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
                found.append((int(generation[1]), int(shard[1])))
    return sorted(found)


def find_wal_files(disk: Disk, generation: int, shard: int) -> list[WalFileId]:
    """The WAL files of one shard, ascending; temporary files and the hint are not among them."""
    return find_wal_files_in(disk, "wal", generation, shard)


def find_wal_files_in(disk: Disk, root: str, generation: int, shard: int) -> list[WalFileId]:
    """The same of another directory that holds logs."""
    names = disk.names((root + shard_dir(generation, shard).removeprefix("wal")).lstrip("/"))
    numbers = sorted(int(match[1]) for name in names if (match := _WAL_NAME.fullmatch(name)) is not None)
    return [WalFileId(generation, shard, number) for number in numbers]


def read_hint(disk: Disk, generation: int, shard: int) -> WalFileId | None:
    """The file that CURRENT names; None if there is no hint, or it fails its checksum: it is only a hint."""
    path = f"{shard_dir(generation, shard)}/{CURRENT_FILE}"
    if disk.size(path) != CURRENT_SIZE:
        return None
    line = disk.read(path, 0, CURRENT_SIZE)
    match = _WAL_NAME.fullmatch(line[:28].decode("ascii", "replace"))
    if match is None:
        return None
    file = WalFileId(generation, shard, int(match[1]))
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
