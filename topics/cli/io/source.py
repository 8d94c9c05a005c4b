"""Bytes of a file or of standard input, gzip or not, as numbered lines.

Lines come as soon as they are there: a pipe is read as far as it has something, and `is_waiting` says when the next
line would have to be waited for, so that whoever gathers a batch knows to send it. Gzip is told by its first bytes, not
by its name. A line is bounded; so is what is read whole.
"""

from __future__ import annotations

import os
import select
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from topics.cli.core.failure import Failed, say
from topics.cli.io.terminal import is_terminal
from topics.kernel.limits import KIB, MIB

STDIN: Final = "-"
CHUNK: Final = 256 * KIB
WHOLE_MAX: Final = 256 * MIB
LINE_SLACK: Final = 4 * KIB
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # zlib's word for "with gzip's head and tail"
_BOM: Final = b"\xef\xbb\xbf"


class BadLine(Exception):
    """A line that cannot become a record. `place` is its number."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place = place
        self.why = why


def _is_json(path: Path) -> bool:
    """Whether somebody has typed a record where its file is named."""
    return str(path).startswith(("{", "[", '"'))


class InputSource:
    """An input, read once. `bytes_read` counts what was taken of it, of `bytes_total` if that is known."""

    def __init__(self, name: str) -> None:
        self.name = "standard input" if name == STDIN else name
        self.bytes_read = 0
        self.bytes_total: int | None = None
        self.is_gzip = False
        self._stream = _standard_input() if name == STDIN else self._open(Path(name))
        self._fd = _descriptor(self._stream)
        self._at_edge = False

    def _open(self, path: Path) -> IO[bytes]:
        try:
            stream = path.open("rb", buffering=0)
        except FileNotFoundError:
            hint = "; records are read from a file, or with - from standard input" if _is_json(path) else ""
            raise Failed(f"{path} does not exist{hint}") from None
        except IsADirectoryError:
            raise Failed(f"{path} is a directory; name a file, or - for standard input") from None
        except (OSError, ValueError) as error:
            raise Failed(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if path.is_file():
            self.bytes_total = path.stat().st_size
        return stream

    def close(self) -> None:
        if self._stream is not sys.stdin.buffer:
            self._stream.close()

    @property
    def is_waiting(self) -> bool:
        """True if all that was there is handed out, and the next bytes are not there yet."""
        if not self._at_edge or self._fd is None or self.bytes_total is not None:
            return False
        ready, _, _ = select.select([self._fd], [], [], 0)
        return not ready

    def lines(self, *, line_max: int, with_ends: bool = False) -> Iterator[tuple[int, bytes]]:
        """(number from 1, line without its end, unless asked for with). Raises BadLine for one that is too long."""
        number, rest = 0, bytearray()
        for chunk in self.chunks():
            first, *more = chunk.split(b"\n")
            rest += first
            if more:
                parts = [bytes(rest), *more]
                rest = bytearray(parts.pop())
                last = len(parts) - 1
                for i, line in enumerate(parts):
                    number += 1
                    self._at_edge = i == last
                    if with_ends:
                        yield number, line + b"\n"
                    else:
                        yield number, line[:-1] if line.endswith(b"\r") else line
                self._at_edge = False
            if len(rest) > line_max + LINE_SLACK:
                raise BadLine(number + 1, f"is longer than the {line_max} bytes a record may have")
        if rest:
            yield number + 1, bytes(rest)

    def whole(self) -> bytes:
        """All of it, if that is not too much."""
        pieces, size = [], 0
        for chunk in self.chunks():
            pieces.append(chunk)
            size += len(chunk)
            if size > WHOLE_MAX:
                raise Failed(
                    f"{self.name}: one JSON value of more than {WHOLE_MAX} bytes; write it as JSON lines instead"
                )
        return b"".join(pieces)

    def chunks(self) -> Iterator[bytes]:
        """The bytes, unpacked, without a byte order mark."""
        packed = self._raw()
        first = next(packed, b"")
        while first and _is_begun(first) and (more := next(packed, b"")):
            first += more
        self.is_gzip = first.startswith(_GZIP)
        if self.is_gzip:
            yield from self._unpacked(first, packed)
        elif first:
            yield first.removeprefix(_BOM)
            yield from packed

    def _raw(self) -> Iterator[bytes]:
        read = getattr(self._stream, "read1", self._stream.read)
        try:
            while chunk := read(CHUNK):
                self.bytes_read += len(chunk)
                yield chunk
        except IsADirectoryError:
            raise Failed(f"{self.name} is a directory; name a file") from None
        except OSError as error:
            raise Failed(f"{self.name} cannot be read: {error.strerror}") from error

    def _unpacked(self, first: bytes, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Members of a gzip file, one after another; what unpacks comes in bounded pieces."""
        unpack = zlib.decompressobj(_GZIP_WINDOW)
        chunk = first
        is_start = True
        is_full = False  # the last piece was as long as it may be, so more may lie in the unpacker itself
        try:
            while chunk or is_full:
                plain = unpack.decompress(chunk, CHUNK)
                if plain:
                    yield plain.removeprefix(_BOM) if is_start else plain
                    is_start = False
                is_full = len(plain) == CHUNK and not unpack.eof
                if unpack.eof:
                    chunk = unpack.unused_data.lstrip(b"\0") or next(packed, b"")
                    if chunk:
                        unpack = zlib.decompressobj(_GZIP_WINDOW)
                else:
                    chunk = unpack.unconsumed_tail or (b"" if is_full else next(packed, b""))
        except zlib.error as error:
            raise Failed(f"{self.name} is damaged gzip ({error}); check the file") from None
        if not unpack.eof:
            raise Failed(f"{self.name} is gzip that ends too early; check that the file is complete")


def _is_begun(first: bytes) -> bool:
    """True if these bytes may be the beginning of a mark: only then is it worth waiting for the next."""
    return any(len(first) < len(mark) and mark.startswith(first) for mark in (_GZIP, _BOM))


def _standard_input() -> IO[bytes]:
    if is_terminal(sys.stdin):
        say("reading from the terminal; Ctrl-D on an empty line ends it", "topics: ", colour="cyan")
    return sys.stdin.buffer


def _descriptor(stream: IO[bytes]) -> int | None:
    try:
        fd = stream.fileno()
        os.fstat(fd)
    except (OSError, ValueError):
        return None
    return fd
