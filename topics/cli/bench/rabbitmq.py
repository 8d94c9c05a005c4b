"""A quorum queue of RabbitMQ over AMQP 0-9-1: published with confirms, consumed with a prefetch, acked up to a tag.

Only what that takes of the protocol. An ack of a job has no answer in it, so it counts as done when it is sent.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

from topics.cli.bench.connection import Unexpected, Wire

_METHOD, _HEADER, _BODY = 1, 2, 3
_FRAME: Final = struct.Struct(">BHI")  # type, channel, size; a byte 0xCE behind the payload
_END: Final = b"\xce"
_CONFIRM: Final = struct.Struct(">HHQB")  # class, method, delivery tag, multiple
_PERSISTENT: Final = struct.pack(">HB", 0x1000, 2)  # the one property: delivery mode
_CHANNEL_MAX, _FRAME_BYTES_MAX = 1, 131_072

START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = ((10, number) for number in (10, 11, 30, 31, 40, 41))
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
PUBLISH, DELIVER, ACK = (60, 40), (60, 60), (60, 80)
SELECT, SELECT_OK = (85, 10), (85, 11)


class RabbitMQ(Wire):
    """One channel. `unconfirmed`: the tags of what was published and not confirmed."""

    def __init__(self, connected: socket.socket, queue: str, payloads: Sequence[bytes]) -> None:
        super().__init__(connected, payloads)
        self._queue = _short(queue)
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._is_consuming = False
        self._tag = 0  # of the last job that was delivered
        self._claimed = 0
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._method(START)
        login = _long(b"\x00guest\x00guest")
        self._call(START_OK, _long(b"") + _short("PLAIN") + login + _short("en_US"), TUNE, channel=0)
        tuned = struct.pack(">HIH", _CHANNEL_MAX, _FRAME_BYTES_MAX, 0)  # no heartbeat
        self._socket.sendall(_method(TUNE_OK, tuned, channel=0))
        self._call(OPEN, _short("/") + _short("") + b"\x00", OPEN_OK, channel=0)
        self._call(CHANNEL_OPEN, _short(""), CHANNEL_OPEN_OK)
        kind = _short("x-queue-type") + b"S" + _long(b"quorum")
        self._call(DECLARE, b"\x00\x00" + self._queue + b"\x02" + _long(kind), DECLARE_OK)  # durable
        self._call(SELECT, b"\x00", SELECT_OK)

    def put(self, count: int) -> None:
        self._unconfirmed.update(range(self._published + 1, self._published + count + 1))
        self._published += count
        super().put(count)

    def claim(self, count: int) -> None:
        """What is consumed is sent without being asked for, as far as the prefetch goes."""
        self._consume(prefetch=count)
        self._finish = lambda: self._were_delivered(count)

    def ack(self) -> None:
        """All up to the last."""
        count = self._claimed
        self._ask(_method(ACK, struct.pack(">QB", self._tag, 1)), lambda: count)

    def watch(self) -> None:
        self._consume(prefetch=0, no_ack=True)
        self._finish = lambda: self._were_delivered(1)

    def _consume(self, *, prefetch: int, no_ack: bool = False) -> None:
        if self._is_consuming:
            return
        self._is_consuming = True
        self._call(QOS, struct.pack(">IHB", 0, prefetch, 0), QOS_OK)
        how = bytes([no_ack << 1]) + _long(b"")
        self._call(CONSUME, b"\x00\x00" + self._queue + _short("c") + how, CONSUME_OK)

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        publish = _method(PUBLISH, b"\x00\x00" + _short("") + self._queue + b"\x00")
        return b"".join(
            publish
            + _frame(_HEADER, struct.pack(">HHQ", 60, 0, len(payload)) + _PERSISTENT)
            + _frame(_BODY, payload)
            for payload in payloads
        )

    def _was_put(self, count: int) -> int:
        while self._unconfirmed:
            confirmed = self._method(ACK)
            _, _, tag, multiple = _CONFIRM.unpack(confirmed)
            if multiple:
                self._unconfirmed = {one for one in self._unconfirmed if one > tag}
            else:
                self._unconfirmed.discard(tag)
        return count

    def _were_delivered(self, count: int) -> int:
        for _ in range(count):
            delivered = self._method(DELIVER)
            self._tag = int.from_bytes(delivered[5 + delivered[4] :][:8], "big")  # behind the consumer's name
            _, header = self._one()
            left = int.from_bytes(header[4:12], "big")
            while left > 0:
                left -= len(self._one()[1])
        self._claimed = count
        return count

    def _call(
        self, method: tuple[int, int], arguments: bytes, answer: tuple[int, int], channel: int = 1
    ) -> None:
        self._socket.sendall(_method(method, arguments, channel=channel))
        self._method(answer)

    def _method(self, expected: tuple[int, int]) -> bytes:
        kind, payload = self._one()
        if kind != _METHOD or struct.unpack_from(">HH", payload) != expected:
            raise Unexpected(f"rabbitmq: {payload!r:.200} in place of {expected}")
        return payload

    def _one(self) -> tuple[int, bytes]:
        """A frame: its type and its payload."""
        received = self._received
        while (
            len(received) < _FRAME.size or len(received) < _FRAME.size + _FRAME.unpack_from(received)[2] + 1
        ):
            received += self._receive()
        kind, _, size = _FRAME.unpack_from(received)
        stop = _FRAME.size + size
        self._received = received[stop + 1 :]
        return kind, received[_FRAME.size : stop]


def _frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _method(method: tuple[int, int], arguments: bytes, channel: int = 1) -> bytes:
    return _frame(_METHOD, struct.pack(">HH", *method) + arguments, channel)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
