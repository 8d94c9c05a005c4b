"""A body in chunks (RFC 9112 7.1), strict: a hex size, CR LF, exactly so many bytes, CR LF. Sans-IO.

Extensions and trailers are read and left. Every line is bounded.
"""

from __future__ import annotations

import re
from enum import Enum
from io import BytesIO
from typing import Final

from topics.kernel.errors import invalid
from topics.server.api.site import too_large

TRAILER_BYTES_MAX: Final = 8 * 1024
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


class _ChunkStage(Enum):
    SIZE = "size"
    DATA = "data"
    DATA_END = "data end"
    TRAILER = "trailer"
    DONE = "done"


class ChunkReader:
    """Takes the bytes of a body off the front of a buffer. `body_max`: a chunk that would pass it is not read."""

    def __init__(self, body_max: int) -> None:
        self._body_max = body_max
        # Not a list: chunks of a byte would cost fifty each. It gives all away without a copy.
        self._body = BytesIO()
        self._state = _ChunkStage.SIZE
        self._left = 0
        self._trailer_bytes = 0

    @property
    def size(self) -> int:
        return self._body.tell()

    @property
    def body(self) -> bytes:
        return self._body.getvalue()

    @property
    def done(self) -> bool:
        return self._state is _ChunkStage.DONE

    def take(self, buffer: bytearray) -> None:
        """Read as far as the buffer goes; what is read is removed from it.

        Raises:
            Rejected: invalid_request, payload_too_large; nothing behind can be trusted.
        """
        while self._state is not _ChunkStage.DONE:
            if self._state is _ChunkStage.DATA:
                if not buffer:
                    return
                count = min(self._left, len(buffer))
                with memoryview(buffer) as view:
                    self._body.write(view[:count])
                del buffer[:count]
                self._left -= count
                if self._left == 0:
                    self._state = _ChunkStage.DATA_END
            elif self._state is _ChunkStage.DATA_END:
                if len(buffer) < 2:
                    if buffer and buffer[0] != 13:
                        raise invalid("body", "a chunk is longer than its size says")
                    return
                if buffer[:2] != b"\r\n":
                    raise invalid("body", "a chunk is longer than its size says")
                del buffer[:2]
                self._state = _ChunkStage.SIZE
            else:
                line = _line(buffer)
                if line is None:
                    return
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if self._state is _ChunkStage.SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise invalid("body", "the size of a chunk is a hex number of at most 8 digits")
            self._left = int(size[1], 16)
            if self.size + self._left > self._body_max:
                raise too_large(self._body_max)
            self._state = _ChunkStage.DATA if self._left else _ChunkStage.TRAILER
            return
        assert self._state is _ChunkStage.TRAILER
        self._trailer_bytes += len(line)
        if not line:
            self._state = _ChunkStage.DONE
        elif _TRAILER.fullmatch(line) is None or self._trailer_bytes > TRAILER_BYTES_MAX:
            raise invalid("body", f"a trailer is NAME: VALUE, and all are at most {TRAILER_BYTES_MAX} bytes")


def _line(buffer: bytearray) -> bytes | None:
    end = buffer.find(b"\r\n", 0, TRAILER_BYTES_MAX + 2)
    if end < 0:
        bare = buffer.find(b"\n")
        if bare >= 0 or len(buffer) > TRAILER_BYTES_MAX:
            raise invalid(
                "body", f"a line between chunks ends with CR LF and is at most {TRAILER_BYTES_MAX} bytes"
            )
        return None
    line = bytes(buffer[:end])
    del buffer[: end + 2]
    return line
