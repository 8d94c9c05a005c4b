"""Messages of a WebSocket put together out of their frames (RFC 6455 5.4)."""

from __future__ import annotations

from io import BytesIO

from websockets.frames import Frame, Opcode


class Fragments:
    """What has come of a message whose last frame has not. `is_text`: the last message that began is text."""

    __slots__ = ("_body", "is_text")

    def __init__(self) -> None:
        self._body: BytesIO | None = None  # not a list: fragments of a byte would cost fifty each
        self.is_text = True

    def __bool__(self) -> bool:
        return self._body is not None

    @property
    def size(self) -> int:
        return 0 if self._body is None else self._body.tell()

    def whole(self, frame: Frame) -> bytes | None:
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
