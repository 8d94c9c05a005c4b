"""Frames of a WebSocket, and the messages that they are (RFC 6455 5).

`websockets` knows the protocol and does no I/O (decision 49). It is asked where bytes are not plainly one text message,
which is one frame: nearly all are, and are read and made here without its machinery. What it makes of any frame is what
is made of theirs, which a test holds. A connection at rest keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from struct import Struct
from types import GeneratorType
from typing import Final

import trio
from websockets.frames import (  # type: ignore[attr-defined]  # the quick `apply_mask`, where it was built
    CloseCode,
    Frame,
    Opcode,
    apply_mask,
)
from websockets.protocol import Protocol, Side, State
from websockets.streams import StreamReader

from topics.kernel.errors import Rejected
from topics.kernel.limits import KIB
from topics.server.api.bodies.pieces import check_utf8
from topics.server.api.resources.state import DECODED_INLINE_BYTES_MAX

_FED_BYTES: Final = 8 * KIB  # at once: small frames take thirty times their bytes as values
_FINAL_TEXT: Final = 0x81  # FIN, no extension's bits, opcode 1
_MASKED: Final = 0x80
_U16_FOLLOWS: Final = 126
_U64_FOLLOWS: Final = 127
_SHORT: Final = Struct("!BB")
_MEDIUM: Final = Struct("!BBH")
_LONG: Final = Struct("!BBQ")
_LIFE: Final = {0x80 | opcode: opcode for opcode in (Opcode.PING, Opcode.PONG)}  # by the first byte
_EMPTY_BYTES: Final = 6  # of a masked frame without a payload
_FIRST_BYTE: Final = StreamReader.at_eof.__code__  # the wait for the next frame, or for the end


class SocketFrames:
    """`bytes_max`: of a message. `is_text`: the last message that began is text. `said_eof`: nothing is sent behind
    what the protocol has said.
    """

    __slots__ = ("_body", "_bytes_max", "_protocol", "is_text", "said_eof")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._protocol: Protocol | None = None  # while it may know more than that the connection is open
        self._body: BytesIO | None = None  # not a list: fragments of a byte would cost fifty each
        self.is_text = True
        self.said_eof = False

    @property
    def is_open(self) -> bool:
        """False once either side, or the protocol, has closed."""
        return self._protocol is None or self._protocol.state is State.OPEN

    @property
    def is_partial(self) -> bool:
        """True in the midst of a message: something of what it says has come."""
        return self._body is not None or (
            self._protocol is not None and not is_between_frames(self._protocol)
        )

    @property
    def size(self) -> int:
        """Bytes that are kept: of frames, and of a message, that are not whole."""
        body = 0 if self._body is None else self._body.tell()
        return body if self._protocol is None else body + len(self._protocol.reader.buffer)

    def lone(self, data: bytes) -> bytes | None:
        """The message, if these bytes are plainly one of text; None: see `messages`."""
        if self.is_partial or not self.is_open:
            return None
        message = lone_text(data, self._bytes_max)
        if message is not None:
            self.is_text = True
        return message

    def messages(self, data: bytes) -> Iterator[bytes]:
        """Those that these bytes end, as long as nobody closes. Without any, the peer has ended its side."""
        protocol = self._asked()
        if not data:
            protocol.receive_eof()
        for at in range(0, len(data), _FED_BYTES):
            protocol.receive_data(data[at : at + _FED_BYTES])
            for frame in protocol.events_received():
                assert isinstance(frame, Frame)
                message = self._whole(frame)
                if message is not None:
                    yield message
            if not self.is_open:
                return

    def skip(self, data: bytes) -> None:
        """We have closed: what comes until the peer has, too, is nobody's."""
        protocol = self._asked()
        for at in range(0, len(data), _FED_BYTES):
            protocol.receive_data(data[at : at + _FED_BYTES])
            protocol.events_received()

    def said(self) -> bytes:
        """What the protocol has to say."""
        if self._protocol is None:
            return b""
        pieces = self._protocol.data_to_send()
        self.said_eof = self.said_eof or b"" in pieces
        return b"".join(pieces)

    def close(self, code: CloseCode, reason: str) -> None:
        """Say so."""
        self._asked().send_close(code, reason)

    @property
    def is_too_large(self) -> bool:
        """The protocol has closed because of a message over the limit, of which more may come."""
        closed = None if self._protocol is None else self._protocol.close_sent
        return closed is not None and closed.code == CloseCode.MESSAGE_TOO_BIG

    def forget(self) -> None:
        """At rest nothing is kept that need not be."""
        if self.is_open and not self.is_partial:
            self._protocol = None

    def _asked(self) -> Protocol:
        if self._protocol is None:
            self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=self._bytes_max)
        return self._protocol

    def _whole(self, frame: Frame) -> bytes | None:
        """The message that this frame ends, if it does. Control frames are the protocol's, which has answered them."""
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self.is_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                return bytes(frame.data)
            self._body = BytesIO()
            self._body.write(frame.data)
        elif frame.opcode is Opcode.CONT:
            assert self._body is not None
            self._body.write(frame.data)
            if frame.fin:
                message, self._body = self._body.getvalue(), None
                return message
        return None


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


def lone_control(data: bytes) -> tuple[Opcode, bytes] | None:
    """A ping or a pong, and what it says, if the bytes are that and nothing else."""
    if len(data) < _EMPTY_BYTES or data[0] not in _LIFE:
        return None
    if data[1] >= _MASKED + _U16_FOLLOWS or len(data) != _EMPTY_BYTES + data[1] - _MASKED:
        return None
    return _LIFE[data[0]], apply_mask(data[_EMPTY_BYTES:], data[_SHORT.size : _EMPTY_BYTES])


def control_frame(opcode: Opcode, payload: bytes) -> bytes:
    """A ping's, or a pong's."""
    return Frame(opcode, payload).serialize(mask=False)


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
