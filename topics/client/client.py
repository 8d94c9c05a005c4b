"""`Client`: a server's topics, under the names the embedded store has for its own. Usable by many threads.

A call is repeated where that is safe, and ends in bounded time: see `calls.retry`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from topics.calls import topics
from topics.calls.blocking import TopicStore, of_store
from topics.calls.call import Steps, drive, over_http
from topics.calls.methods import with_call_names
from topics.calls.patience import Pace, Patience
from topics.calls.retry import HttpAnswer, Line, Request, Send, Sleep
from topics.client.address import parse_address
from topics.client.key import check_key, read_api_key
from topics.client.session_feed import SessionFeed
from topics.client.transport import Transport
from topics.codec.manifest import Written
from topics.kernel.checks import flag
from topics.kernel.limits import Limits

if TYPE_CHECKING:
    from topics.calls.queues.values import Claimant
    from topics.calls.watching.rules import Asked
    from topics.calls.watching.watch import Feed
    from topics.calls.workers.desk import Supply

R = TypeVar("R")

BACKUP_WAIT_MS: Final = 600_000  # for a checkpoint that is under way


@with_call_names
class Client(TopicStore):
    """A server at a URL. Use it as a context manager, or call `close`.

    `cafile`: PEM certificates to trust instead of the usual ones. `limits`: what the server is taken to allow in a page
    or a batch; the server itself decides.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_file: str | os.PathLike[str] | None = None,
        cafile: str | os.PathLike[str] | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._begin(
            url,
            read_api_key(api_key_file),
            cafile=None if cafile is None else os.fspath(cafile),
            patience=patience,
            limits=limits,
            pace=pace,
        )

    @classmethod
    def with_key(
        cls, url: str, key: str, *, cafile: str | None = None, patience: Patience | None = None
    ) -> Self:
        """For a program that was handed the key together with its work, as an executor of Spark is.

        Whoever writes a key down has it in a file or in the environment, and leaves it there.

        Raises:
            Rejected: what cannot stand in a header.
        """
        client = cls.__new__(cls)
        client._begin(url, check_key(key, "the token"), cafile=cafile, patience=patience)  # noqa: SLF001 -- its own class
        return client

    def _begin(
        self,
        url: str,
        key: str | None,
        *,
        cafile: str | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
    ) -> None:
        address = parse_address(url)
        self.where = address.url
        self.limits = limits or Limits()
        self.is_remote = True
        self._line = Line(address.url, patience or Patience(), pace or Pace())
        self._transport = Transport(address, api_key=key, cafile=cafile)

    health = of_store(topics.HealthCall)
    ready = of_store(topics.ReadyCall)
    pressure = of_store(topics.PressureCall)
    keys = of_store(topics.KeysCall)

    def supply(self, queue: Claimant, *, until_empty: bool) -> Supply[Any]:
        if until_empty:
            return super().supply(queue, until_empty=True)
        from topics.client.pushes import Pushes  # with all that tasks need
        from topics.client.websocket import Way

        return Pushes(Way(self.where, self._transport.headers, self._transport.trust), queue)

    def feed(self, asked: Asked) -> Feed:
        return SessionFeed(asked, self._line, self._transport)

    def do(self, steps: Steps[R]) -> R:
        return drive(over_http(iter(steps), self._line), self._answer)

    def close(self) -> None:
        self._transport.close()

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        from topics.host.backup.unpacking import (
            receive_backup,
        )  # it checks a store, and who asks a server needs none

        def take(pieces: Iterator[bytes], size: int | None) -> Written:
            return receive_backup(
                pieces, dest, lambda done: None if tell is None else tell(done, size or done)
            )

        asking = self._line.retry(backup_request(with_cold=with_cold))
        written: Written = drive(asking, partial(self._answer, take=take))
        return written

    def _answer(
        self, asked: Send | Sleep, take: Callable[[Iterator[bytes], int | None], Any] | None = None
    ) -> HttpAnswer | None:
        """What a conversation asks for."""
        if isinstance(asked, Send):
            return self._transport.send(asked.request, take)
        self._line.pace.sleep(asked.seconds)
        return None


def backup_request(*, with_cold: bool) -> Request:
    query = {"with_cold": "true"} if flag("with_cold", with_cold) else {}
    return Request("POST", "/v0/admin/backup", query, wait_ms=BACKUP_WAIT_MS)
