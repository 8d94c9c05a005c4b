"""Memory that peers make us hold, in accounts with a bound each (http-api 1).

Theory. A peer that is slow keeps what is its own in our memory: bytes of a request on their way in, bytes of an answer
on their way out. All connections together may make us hold so much and no more, so every such byte is on an account
while it is there. It is taken on as it comes, not as it is announced: whoever announces a large body and does not send
it holds a step, and room is left for those who send.
"""

from __future__ import annotations

from typing import Final

from topics.kernel.errors import Code, Rejected

STEP_BYTES: Final = 64 * 1024
SMALL_BYTES: Final = 4 * 1024


class MemoryAccount:
    """Bytes held for all peers together. `name`: of the limit; `what`: who holds them, for the message."""

    __slots__ = ("bytes_max", "name", "size", "what")

    def __init__(self, name: str, what: str, bytes_max: int) -> None:
        self.name = name
        self.what = what
        self.bytes_max = bytes_max
        self.size = 0

    def hold(self, size: int) -> None:
        """Take `size` bytes on. Pair with `release`.

        Raises:
            Rejected: throttled; nothing was taken on.
        """
        if self.size + size > self.bytes_max:
            raise Rejected(
                Code.THROTTLED,
                f"{self.what} hold {self.size} bytes of memory; retry",
                limit=self.name,
                max=self.bytes_max,
            )
        self.size += size

    def release(self, size: int) -> None:
        self.size -= size
        assert self.size >= 0


class Share:
    """What one peer holds of an account."""

    __slots__ = ("_account", "size")

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self.size = 0

    def cover(self, size: int, *, most: int) -> None:
        """Hold at least `size` bytes, of `most` that there will ever be: in steps, since they come in pieces.

        Raises:
            Rejected: throttled; what was held before still is.
        """
        before = self.size
        if size > before:
            wanted = before + STEP_BYTES if size - before < STEP_BYTES else size
            if wanted > most:
                wanted = most
            self._account.hold(wanted - before)
            self.size = wanted

    def reserve(self, size: int) -> None:
        """Hold room for so many bytes more, but no more than there is if nobody holds any.

        Raises:
            Rejected: throttled; what was held before still is.
        """
        size = min(size, self._account.bytes_max)
        self._account.hold(size)
        self.size += size

    def keep(self, size: int) -> bool:
        """Hold answers of so many bytes, which wait for their peer. False if there is no memory left for them.

        Small ones are kept in any case: the connection or stream that they wait on costs more.
        """
        if size > SMALL_BYTES:
            try:
                self.cover(size, most=size)
            except Rejected:
                return False
        return True

    def settle(self, size: int) -> None:
        """Hold exactly this: what room was reserved for is there, whatever its size."""
        self._account.size += size - self.size
        self.size = size

    def release(self) -> None:
        """Hold nothing any more."""
        if self.size:
            self._account.release(self.size)
            self.size = 0
