"""The hand-over: what the data plane does not serve goes to Quart on Hypercorn, with every byte it has not consumed.

A connection that speaks HTTP/2 stays for good. One of HTTP/1.1 comes with one request, for a page or an unknown path,
and its answer carries `Connection: close`: a client's pool then opens the next one on the data plane, which is ten
times as fast (architecture 5). So there are two of Hypercorn's Configs, with every limit and timeout set.
"""

from __future__ import annotations

from typing import Any, Final

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.trio.worker_context import WorkerContext

from topics.server.api.edge import Edge
from topics.server.api.site import Site
from topics.server.app.connection import Http2Connection
from topics.server.app.pages import make_app
from topics.server.app.tasks import Requests
from topics.server.runtime.log import log

KEEP_ALIVE_S: Final = 75
READ_S: Final = 60
STREAMS_MAX: Final = 256
REQUESTS_MAX: Final = 10_000
HEAD_BYTES_MAX: Final = 32 * 1024


class Http2HandOver:
    """Takes connections over. One for a server; `drain` ends what it has taken.

    `streams_max`: requests under way in one HTTP/2 connection, which it is told; `requests_max`: in all of them.
    """

    def __init__(
        self,
        site: Site,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        streams_max: int = STREAMS_MAX,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._app = ASGIWrapper(make_app(site))
        self._context = WorkerContext(None)
        self._requests = Requests(requests_max)
        self._http2 = http2_config(site.options.head_bytes_max, streams_max)
        self._http1 = http1_config(site.options.head_bytes_max)
        self._http1.keep_alive_timeout = self._http2.keep_alive_timeout = keep_alive_s
        self._live: set[Http2Connection] = set()

    async def __call__(self, edge: Edge, unread: bytes, *, http2: bool, secure: bool = False) -> None:
        """Serve the connection to its end, and close it. `secure`: it came over TLS."""
        config = self._http2 if http2 else self._http1
        requests = self._requests if http2 else Requests(1)
        connection = Http2Connection(
            self._app, config, self._context, requests, edge, http2=http2, secure=secure
        )
        self._live.add(connection)
        try:
            await connection.run(unread)
        finally:
            self._live.discard(connection)

    @property
    def connections(self) -> int:
        return len(self._live)

    @property
    def requests(self) -> int:
        """HTTP/2 requests under way."""
        return self._requests.running

    async def drain(self) -> None:
        """No new requests: connections at rest end now, others behind their last answer. Returns at once."""
        await self._context.terminated.set()
        for connection in list(self._live):
            connection.end_at_rest()


def http2_config(head_bytes_max: int = HEAD_BYTES_MAX, streams_max: int = STREAMS_MAX) -> Config:
    """HTTP/2. Flow-control windows are h2's: 64 KiB a stream and a connection, given back as the body is read."""
    config = _config()
    config.h2_max_concurrent_streams = streams_max
    config.h2_max_header_list_size = head_bytes_max
    config.h2_max_inbound_frame_size = 1 << 14
    return config


def http1_config(head_bytes_max: int = HEAD_BYTES_MAX) -> Config:
    """HTTP/1.1: one request a connection."""
    config = _config()
    config.keep_alive_max_requests = 1
    config.h11_max_incomplete_size = head_bytes_max + 4
    return config


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.logger_class = HypercornLog
    config.include_server_header = False
    config.include_date_header = True
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.read_timeout = READ_S  # longer than the longest wait of a read
    config.max_app_queue_size = 16
    config.websocket_max_message_size = 0
    return config


class HypercornLog(Logger):
    """What Hypercorn has to say goes to the server's log."""

    async def critical(self, message: str, *args: Any, **kwargs: Any) -> None:
        await self.error(message, *args, **kwargs)

    async def error(self, message: str, *args: Any, **_: Any) -> None:
        log.error("hypercorn.said", message=message % args if args else message)

    async def warning(self, message: str, *args: Any, **_: Any) -> None:
        log.warning("hypercorn.said", message=message % args if args else message)

    async def exception(self, message: str, *args: Any, **_: Any) -> None:
        log.exception("hypercorn.said", message=message % args if args else message, exc_info=True)
