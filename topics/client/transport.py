"""HTTP by httpx, blocking: connections that are kept, time bounds, and what a failure of theirs means.

Redirects are not followed, certificates are verified, and nothing is taken from the environment (proxies, .netrc): a
request goes to the URL that was given and nowhere else. What is repeated, and when, is in `calls.retry`.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakSet

import httpx

from topics.calls.retry import HttpAnswer, Request
from topics.calls.trouble import WORDS, Trouble, Unreachable, not_topics, shortened
from topics.client.address import Address
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import MIB
from topics.kernel.version import __version__

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0  # without a byte; a write may wait for a slow disk, or behind others
CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 30.0  # less than the server keeps a connection without requests
ANSWER_BYTES_MAX: Final = 64 * MIB
EVENTS: Final = "text/event-stream"


class OpenStream(Protocol):
    """An answer without an end, on a connection of its own."""

    def cut(self) -> None: ...


class Transport:
    """Connections to one server, usable by many threads. `connect`: another one; `streams`: what ends with it."""

    def __init__(self, address: Address, *, api_key: str | None, cafile: str | None) -> None:
        self.url = address.url
        given = settings(address, api_key=api_key, cafile=cafile, connections_max=CONNECTIONS_MAX)
        self.headers, self.trust = given["headers"], given["verify"]
        self.connect = partial(httpx.Client, **given)
        self.streams: WeakSet[OpenStream] = WeakSet()
        self._pool = (os.getpid(), self.connect())

    @property
    def is_closed(self) -> bool:
        return self._http().is_closed

    def close(self) -> None:
        self._http().close()
        for stream in list(self.streams):
            stream.cut()

    def _http(self) -> httpx.Client:
        """This process's connections. A forked child begins with none: on its parent's each would get the other's
        answers. They are let go of as they are, neither closed in HTTP or TLS nor locked: the parent goes on with them.
        """
        pid, http = self._pool
        if pid != os.getpid() and not http.is_closed:
            http = self.connect()
            self._pool = (os.getpid(), http)
        return http

    def send(
        self, request: Request, take: Callable[[Iterator[bytes], int | None], Any] | None = None
    ) -> HttpAnswer:
        """One request and its answer. `take`: makes something of the body of a good one, which it is given as it comes,
        with its length if that is known.

        Raises:
            Unreachable: no answer, or one that cannot be read, or that was broken off.
            Rejected: the client is closed.
        """
        http = self._http()
        with failures_told(self.url, lambda: http.is_closed):
            found = http.send(build(http, self.url, request), stream=True)
            try:
                check_encoding(found, self.url)
                if take is None or not found.is_success:
                    body: Any = self._body(found)
                else:
                    body = take(found.iter_raw(), size_told(found))
            finally:
                found.close()
        return HttpAnswer(found.status_code, body, found.headers.get("retry-after"))

    def _body(self, answer: httpx.Response) -> bytes:
        body = BodyPieces(self.url)
        for piece in answer.iter_raw():
            body.add(piece)
        return body.whole


# What both transports have in common.


def settings(
    address: Address, *, api_key: str | None, cafile: str | None, connections_max: int
) -> dict[str, Any]:
    """Of an httpx client, blocking or not."""
    headers = {"user-agent": f"topics/{__version__}", "accept": "application/json"}
    headers["accept-encoding"] = "identity"
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    return {
        "headers": headers,
        "verify": _trust(cafile) if address.secure else False,
        "timeout": httpx.Timeout(ANSWER_S, connect=CONNECT_S),
        "limits": httpx.Limits(
            max_connections=connections_max,
            max_keepalive_connections=connections_max,
            keepalive_expiry=IDLE_S,
        ),
        "follow_redirects": False,
        "trust_env": False,
    }


def build(http: httpx.Client | httpx.AsyncClient, url: str, request: Request) -> httpx.Request:
    headers = dict(request.headers)
    if request.body is not None:
        headers["content-type"] = "application/json"
    answer_s = ANSWER_S + request.wait_ms / 1000 if request.silent_s is None else request.silent_s
    return http.build_request(
        request.method,
        url + request.path,
        params=request.query or None,
        content=request.body,
        headers=headers,
        timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
    )


def check_events(found: httpx.Response, url: str) -> None:
    """A stream of events was asked for."""
    check_encoding(found, url)
    kind = found.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != EVENTS:
        raise not_topics(url, f"it answered {kind or 'something'} where {EVENTS} was asked for")


def check_encoding(found: httpx.Response, url: str) -> None:
    """Bodies are read as they come, for that was asked for."""
    encoding = found.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise not_topics(
            url, f"its answer cannot be read (content-encoding {encoding}, which nobody asked for)"
        )


def size_told(found: httpx.Response) -> int | None:
    """How long the body is, if the server has said so."""
    length = found.headers.get("content-length", "")
    return int(length) if length.isdigit() else None


class BodyPieces:
    """Of an answer, piece by piece."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > ANSWER_BYTES_MAX:
            raise not_topics(self._url, f"its answer is longer than {ANSWER_BYTES_MAX} bytes")

    @property
    def whole(self) -> bytes:
        return b"".join(self._pieces)


@contextmanager
def failures_told(url: str, is_closed: Callable[[], bool]) -> Iterator[None]:
    """What httpx raises, as `Unreachable`; as `Rejected` where it is because the client was closed."""
    try:
        yield
    except httpx.TransportError as error:
        raise unreachable(error, url) from error
    except httpx.RequestError as error:
        raise not_topics(url, f"its answer cannot be read ({error})") from error
    except UnicodeError as error:  # of a host name, on its way to the resolver
        raise Unreachable(Trouble.NAME, url, f"is no host name ({error})", sent=False) from error
    except RuntimeError as error:
        if not is_closed():
            raise
        raise closed() from error


def closed() -> Rejected:
    return Rejected(Code.SHUTTING_DOWN, "the client is closed; make another one")


def unreachable(error: httpx.TransportError, url: str) -> Unreachable:
    """A transport's failure, in words."""
    causes = list(_causes(error))
    sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({cause.verify_message}); give --cafile or cafile= for your own CA"
            return Unreachable(Trouble.TLS, url, why, sent=False)
        if isinstance(cause, ssl.SSLError) and not sent:
            why = f"no TLS there ({cause.reason or cause}); try http://"
            return Unreachable(Trouble.TLS, url, why, sent=False)
    reason = Trouble.LOST
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        reason = Trouble.NAME
    elif isinstance(error, httpx.TimeoutException):
        reason = Trouble.TIMEOUT
    elif not sent:
        reason = Trouble.REFUSED
    words = WORDS[reason]
    if reason is Trouble.LOST and url.startswith("http:"):
        words += "; if the server has TLS, its URL begins with https:"
    if reason is Trouble.REFUSED and not any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        words = f"cannot be reached ({shortened(str(error))}); check host and port"
    return Unreachable(reason, url, words, sent=sent)


def _causes(error: BaseException) -> Iterator[BaseException]:
    unseen: list[BaseException | None] = [error]
    seen: set[int] = set()
    while unseen:
        cause = unseen.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        unseen += [cause.__context__, cause.__cause__]
        if isinstance(cause, BaseExceptionGroup):  # of an attempt to connect: one an address of the host
            unseen += cause.exceptions


def _trust(cafile: str | None) -> ssl.SSLContext:
    """Whose certificates are trusted: those of the file, or the usual ones."""
    if cafile is None:
        return httpx.create_ssl_context(trust_env=False)
    if not Path(cafile).is_file():
        raise invalid("cafile", f"{cafile} does not exist; name a file of PEM certificates")
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:  # ssl.SSLError is one
        raise invalid("cafile", f"{cafile} holds no PEM certificate ({error})") from None
