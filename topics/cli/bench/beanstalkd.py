"""A tube of beanstalkd. It knows no batch, so the commands of one go out together."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from topics.cli.bench.connection import Unexpected, Wire


class Beanstalkd(Wire):
    """What it watched last is deleted before it watches again or ends, else it would come once more."""

    def __init__(self, connected: socket.socket, tube: str, payloads: Sequence[bytes]) -> None:
        super().__init__(connected, payloads)
        self._jobs: list[bytes] = []
        self._socket.sendall(b"use %b\r\nwatch %b\r\nignore default\r\n" % (tube.encode(), tube.encode()))
        self._lines(3)

    def claim(self, count: int) -> None:
        self._ask(b"reserve-with-timeout 0\r\n" * count, lambda: self._were_reserved(count))

    def ack(self) -> None:
        self._ask(b"".join(b"delete %b\r\n" % job for job in self._jobs), self._were_deleted)

    def watch(self) -> None:
        self._delete()
        self._ask(b"reserve\r\n", lambda: self._were_reserved(1))

    def close(self) -> None:
        self._delete()
        super().close()

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        return b"".join(b"put 1 0 60 %d\r\n%b\r\n" % (len(payload), payload) for payload in payloads)

    def _was_put(self, count: int) -> int:
        for line in self._lines(count):
            if not line.startswith(b"INSERTED"):
                raise Unexpected(f"beanstalkd: {line!r}")
        return count

    def _were_reserved(self, count: int) -> int:
        """RESERVED, the id and the size on a line, the body on the next."""
        lines = self._lines(2 * count)
        if not all(line.startswith(b"RESERVED ") for line in lines[::2]):
            raise Unexpected(f"beanstalkd: {lines[0]!r}")
        self._jobs = [line.split()[1] for line in lines[::2]]
        return count

    def _were_deleted(self) -> int:
        if set(self._lines(len(self._jobs))) != {b"DELETED"}:
            raise Unexpected("beanstalkd: a job was not deleted")
        count, self._jobs = len(self._jobs), []
        return count

    def _delete(self) -> None:
        if self._jobs:
            self.ack()
            self.answer()
