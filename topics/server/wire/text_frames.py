"""Text messages that are one frame: nearly all of them, read and made without the protocol's machinery (RFC 6455 5.2).

`websockets` knows the protocol (decision 49). What it makes of any frame is what these make of theirs, which a test
holds; whatever is not plainly such a frame is left to it.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from types import GeneratorType
from typing import Final

import trio
from websockets.frames import Frame, Opcode, apply_mask  # type: ignore[attr-defined]  # the quick one, where it was built
from websockets.protocol import Protocol
from websockets.streams import StreamReader

from topics.kernel.errors import Rejected
from topics.server.api.bodies.pieces import check_utf8
from topics.server.api.resources.state import DECODED_INLINE_BYTES_MAX

_FINAL_TEXT: Final = 0x81  # FIN, no extension's bits, opcode 1
_MASKED: Final = 0x80
_U16_FOLLOWS: Final = 126
_U64_FOLLOWS: Final = 127
_SHORT: Final = Struct("!BB")
_MEDIUM: Final = Struct("!BBH")
_LONG: Final = Struct("!BBQ")
PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
_PONG: Final = Frame(Opcode.PONG, b"").serialize(mask=True)
_FIRST_BYTE: Final = StreamReader.at_eof.__code__  # the wait for the next frame, or for the end


def lone_text(data: bytes, bytes_max: int) -> bytes | None:
    """The message, if the bytes are one whole masked text frame and nothing else; None: ask the protocol."""
    if len(data) < _MEDIUM.size:
        return None
    first, size, following = _MEDIUM.unpack_from(data)
    size, start = size - _MASKED, _SHORT.size
    if size >= _U16_FOLLOWS:
        if size != _U16_FOLLOWS:
            return None
        size, start = following, _MEDIUM.size
    text = start + 4
    if first != _FINAL_TEXT or len(data) != text + size or not 0 <= size <= bytes_max:  # below 0: no mask
        return None
    return apply_mask(data[text:], data[start:text])


def is_lone_pong(data: bytes) -> bool:
    """True if the bytes are what answers our ping, and nothing else."""
    return len(data) == len(_PONG) and data[: _SHORT.size] == _PONG[: _SHORT.size]


def is_between_frames(protocol: Protocol) -> bool:
    """True if what has come ends with a whole frame.

    The protocol's buffer does not say so, for each part of a frame's head is taken out of there. What its parser
    waits for does: generators that wait for one another.
    """
    waits: object = protocol.parser
    while isinstance(waits, GeneratorType) and waits.gi_yieldfrom is not None:
        waits = waits.gi_yieldfrom
    assert isinstance(waits, GeneratorType)
    return waits.gi_code is _FIRST_BYTE


def text_frame(message: bytes) -> bytes:
    """The frame of a server's message."""
    size = len(message)
    if size < _U16_FOLLOWS:
        return _SHORT.pack(_FINAL_TEXT, size) + message
    if size < 1 << 16:
        return _MEDIUM.pack(_FINAL_TEXT, _U16_FOLLOWS, size) + message
    return _LONG.pack(_FINAL_TEXT, _U64_FOLLOWS, size) + message


async def is_utf8(text: bytes) -> bool:
    """Of a large one it is found out in a thread."""
    check = partial(check_utf8, text, field="message")
    try:
        if len(text) <= DECODED_INLINE_BYTES_MAX:
            check()
        else:
            await trio.to_thread.run_sync(check)
    except Rejected:
        return False
    return True
