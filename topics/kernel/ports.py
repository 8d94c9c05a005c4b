"""What the core and its drivers ask of the world. `host` binds the operating system, `testing` a simulated one.

Every disk path is relative to the data directory and written with `/`; no name a user gave ever becomes one
(storage 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Clock(Protocol):
    """Wall time. The engine reads it at most once a call (style 10)."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch. May step back; the engine clamps."""
        ...


class Calendar(Protocol):
    """What people mean by a time of day: expressions, zones, summer time. A pure function: the engine may ask whenever
    it likes, and asks nothing of it while it folds the log.
    """

    def instants(self, cron: str, timezone: str, after_ms: int) -> Iterator[int]:
        """The instants of the expression, in that zone, that are later than `after_ms`, ascending.

        Raises:
            Rejected: invalid_request, naming `cron` or `timezone`: at the first of them at the latest.
        """
        ...


class Entropy(Protocol):
    """The only source of randomness."""

    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes."""
        ...


class Disk(Protocol):
    """One data directory. Calls block; each either does all it says or raises `OSError`.

    Durability is as POSIX gives it: bytes by `sync_data` of their file, names by `sync_dir` of their directory.
    """

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size) of the file, shorter only at its end."""
        ...

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        """All of the bytes if they are at hand in memory, else None. Waits for no disk."""
        ...

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        """Write the chunks one after another at `offset`. A short write raises (storage 3)."""
        ...

    def sync_data(self, path: str) -> None:
        """Fdatasync."""
        ...

    def sync_dir(self, path: str) -> None:
        """Fsync of a directory: makes its names durable. `""` is the data directory."""
        ...

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """`sync_data` of each file, then `sync_dir` of each directory; those of a kind in any order, or at once."""
        ...

    def create(self, path: str, size: int) -> None:
        """Make (or empty) a file of `size` real zero bytes: space is taken, not promised."""
        ...

    def extend(self, path: str, size: int) -> None:
        """Grow the file to `size` with real zero bytes; a file already that long is left alone."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic replace within the data directory. EXDEV if the two are on file systems of their own."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; an absent one is fine."""
        ...

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; an existing one is fine. Names become durable by `sync_dir` of parents."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory; an absent one is fine, one that is not empty raises."""
        ...

    def links(self, path: str) -> int:
        """How many names the file has: more than one if something outside shares its bytes. 0 if there is none."""
        ...

    def names(self, path: str) -> list[str]:
        """Names in a directory, ascending; an absent directory has none."""
        ...

    def size(self, path: str) -> int | None:
        """Size of the file, or None if there is none."""
        ...

    def free_bytes(self, path: str = "") -> int:
        """Free space for this process on the file system that has the directory, or will have it once it is made."""
        ...


def check_path(path: str) -> None:
    """What every disk demands of a path below its root: the program makes them (storage 1), so a bad one is a bug.

    A path from a file or a stranger is checked where it comes in. This is the last guard, so `python -O` leaves it.
    """
    if not is_below(path):
        raise AssertionError(f"outside the data directory: {path!r}")


def is_below(path: str) -> bool:
    """Whether a path names something below the directory that it is taken from, and in the one way there is."""
    return "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


class Journal(Protocol):
    """A durable sequence of byte strings, appended to and read from its beginning. A replicated store keeps one."""

    def append(self, items: Sequence[bytes]) -> None:
        """Add the items, all or none; they are on stable storage when the call returns.

        Raises:
            Rejected: nothing was written.
            Fatal: the write failed; whether the items are there is known after the next opening.
        """
        ...

    def read(self) -> Iterator[bytes]:
        """Every item in the order of its appending."""
        ...
