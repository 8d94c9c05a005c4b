"""What comes of a WebSocket's frames, as messages (RFC 6455 5).

`websockets` knows the protocol and does no I/O. It is asked where bytes are not plainly one message: most are, and a
connection at rest keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from topics.kernel.limits import KIB
from topics.server.wire.text_frames import is_between_frames, lone_text

_FED_BYTES: Final = 8 * KIB  # at once: small frames take thirty times their bytes as values


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

    def said(self) -> list[bytes]:
        """What the protocol has to say."""
        if self._protocol is None:
            return []
        pieces = self._protocol.data_to_send()
        self.said_eof = self.said_eof or b"" in pieces
        return list(filter(None, pieces))

    def close(self, code: CloseCode, reason: str) -> None:
        """Say so."""
        self._asked().send_close(code, reason)

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
