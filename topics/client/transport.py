"""HTTP by httpx: connections that are kept, time bounds, and what a failure of theirs means.

Redirects are not followed, certificates are verified, and nothing is taken from the environment (proxies, .netrc): a
request goes to the URL that was given and nowhere else. What is repeated, and when, is in `calls.retry`.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from topics.calls.retry import Answer, Request
from topics.calls.trouble import WORDS, Trouble, Unreachable, not_topics, shown
from topics.client.address import Address
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import MIB
from topics.kernel.version import __version__

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0  # without a byte; a write may wait for a slow disk, or behind others
CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 30.0  # less than the server keeps a connection without requests
ANSWER_BYTES_MAX: Final = 64 * MIB


class Transport:
    """Connections to one server, usable by many threads."""

    def __init__(self, address: Address, *, api_key: str | None, cafile: str | None) -> None:
        self.url = address.url
        headers = {"user-agent": f"topics/{__version__}", "accept": "application/json"}
        headers["accept-encoding"] = "identity"
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        self._connect = partial(
            httpx.Client,
            headers=headers,
            verify=_trust(cafile) if address.secure else False,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=IDLE_S,
            ),
            follow_redirects=False,
            trust_env=False,
        )
        self._pool = (os.getpid(), self._connect())

    def close(self) -> None:
        self._http().close()

    def _http(self) -> httpx.Client:
        """This process's connections. A forked child begins with none: on its parent's each would get the other's
        answers. They are let go of as they are, neither closed in HTTP or TLS nor locked: the parent goes on with them.
        """
        pid, http = self._pool
        if pid != os.getpid() and not http.is_closed:
            http = self._connect()
            self._pool = (os.getpid(), http)
        return http

    def send(
        self, request: Request, take: Callable[[Iterator[bytes], int | None], Any] | None = None
    ) -> Answer:
        """One request and its answer. `take`: makes something of the body of a good one, which it is given as it comes,
        with its length if that is known.

        Raises:
            Unreachable: no answer, or one that cannot be read, or that was broken off.
            Rejected: the client is closed.
        """
        headers = {} if request.body is None else {"content-type": "application/json"}
        http = self._http()
        built = http.build_request(
            request.method,
            self.url + request.path,
            params=request.query or None,
            content=request.body,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S + request.wait_ms / 1000, connect=CONNECT_S),
        )
        try:
            found = http.send(built, stream=True)
            try:
                body = self._body(found) if take is None or not found.is_success else take(*_stream(found))
            finally:
                found.close()
        except httpx.TransportError as error:
            raise unreachable(error, self.url) from error
        except httpx.RequestError as error:
            raise not_topics(self.url, f"its answer cannot be read ({error})") from error
        except UnicodeError as error:  # of a host name, on its way to the resolver
            raise Unreachable(Trouble.NAME, self.url, f"is no host name ({error})", sent=False) from error
        except RuntimeError as error:
            if not http.is_closed:
                raise
            raise Rejected(Code.SHUTTING_DOWN, "the client is closed; make another one") from error
        return Answer(found.status_code, body, found.headers.get("retry-after"))

    def _body(self, answer: httpx.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        for piece in answer.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                raise not_topics(self.url, f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
        return b"".join(pieces)


def _stream(found: httpx.Response) -> tuple[Iterator[bytes], int | None]:
    length = found.headers.get("content-length", "")
    return found.iter_bytes(), int(length) if length.isdigit() else None


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
        words = f"cannot be reached ({shown(str(error))}); check host and port"
    return Unreachable(reason, url, words, sent=sent)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _trust(cafile: str | None) -> ssl.SSLContext | bool:
    """Whose certificates are trusted: those of the file, or the usual ones."""
    if cafile is None:
        return True
    if not Path(cafile).is_file():
        raise invalid("cafile", f"{cafile} does not exist; name a file of PEM certificates")
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:  # ssl.SSLError is one
        raise invalid("cafile", f"{cafile} holds no PEM certificate ({error})") from None
