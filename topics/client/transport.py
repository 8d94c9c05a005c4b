"""One request and its answer: connections that are kept, time bounds, and repeating what may be repeated.

A request that never left is repeated whatever it asks. One that may have arrived is repeated only if twice is as good
as once: reads, and writes under an idempotency key. Redirects are not followed, certificates are verified, and nothing
is taken from the environment (proxies, .netrc): a request goes to the URL that was given and nowhere else.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs
import httpx

import topics
from topics.client.address import Address
from topics.client.patience import Pace, Patience, retry_after_s
from topics.client.trouble import Trouble, Unreachable, answered, not_topics, unanswered, unreachable
from topics.kernel.errors import Code, Rejected, TopicsError, invalid
from topics.kernel.limits import MIB

T = TypeVar("T")

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0  # without a byte; a write may wait for a slow disk, or behind others
CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 30.0  # less than the server keeps a connection without requests
ANSWER_BYTES_MAX: Final = 64 * MIB
_SAFE: Final = frozenset({Code.NOT_READY, Code.THROTTLED})  # said before anything is begun


@attrs.frozen(kw_only=True)
class Request:
    """`repeatable`: twice is as good as once. `writes`: it changes something. `wait_ms`: it may take that long."""

    method: str
    path: str
    body: bytes | None = None
    query: Mapping[str, str] = attrs.field(factory=dict)
    repeatable: bool = False
    writes: bool = False
    wait_ms: int = 0


class Transport:
    """Connections to one server, usable by many threads."""

    def __init__(
        self,
        address: Address,
        *,
        api_key: str | None,
        cafile: str | None,
        patience: Patience,
        pace: Pace,
    ) -> None:
        self.url = address.url
        self.patience = patience
        self._pace = pace
        self._has_answered = False
        headers = {"user-agent": f"topics/{topics.__version__}", "accept": "application/json"}
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

    def exchange(self, request: Request) -> bytes:
        """The body of a good answer.

        Raises:
            Rejected, Fatal: what the server answered.
            Unreachable: no answer, or none of ours.
        """
        return self._patiently(request, self._body)

    def download(self, request: Request, take: Callable[[Iterator[bytes], int | None], T]) -> T:
        """What `take` makes of the body of a good answer, which it is given as it comes, with its length if that is
        known.

        Raises:
            Rejected, Fatal: what the server answered.
            Unreachable: no answer, or none of ours, or one that was broken off.
        """

        def taken(answer: httpx.Response) -> T:
            length = answer.headers.get("content-length", "")
            return take(answer.iter_bytes(), int(length) if length.isdigit() else None)

        return self._patiently(request, taken)

    def _patiently(self, request: Request, read: Callable[[httpx.Response], T]) -> T:
        pace = self._pace
        started, attempts, is_open = pace.now_s(), 0, False
        while True:
            error: TopicsError
            try:
                return self._once(request, read)
            except Unreachable as failure:
                error, after_s = failure, 0.0
                again = failure.reason not in (Trouble.TLS, Trouble.NOT_TOPICS)
                again = again and (request.repeatable or not failure.sent)
                is_open = failure.sent = failure.sent or is_open
            except _Later as later:
                error, after_s = later.error, later.after_s
                again = request.repeatable or error.code in _SAFE
            attempts += 1
            wait_s = self._wait_s(attempts, started, after_s) if again else None
            if wait_s is None:
                raise unanswered(error, self.url) if is_open and request.writes else error
            pace.sleep(wait_s)

    def _wait_s(self, attempts: int, started: float, after_s: float) -> float | None:
        pace = self._pace
        return self.patience.wait_s(
            attempts,
            elapsed_s=pace.now_s() - started,
            retry_after_s=after_s,
            known=self._has_answered,
            chance=pace.chance(),
        )

    def _once(self, request: Request, read: Callable[[httpx.Response], T]) -> T:
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
            answer = http.send(built, stream=True)
            try:
                if 200 <= answer.status_code < 300:
                    self._has_answered = True
                    return read(answer)
                body = self._body(answer)
            finally:
                answer.close()
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
        refused = answered(answer.status_code, body, url=self.url, writes=request.writes)
        if isinstance(refused, Unreachable):
            raise refused
        self._has_answered = True
        if answer.status_code in (429, 503):
            raise _Later(refused, retry_after_s(answer.headers.get("retry-after")))
        raise refused

    def _body(self, answer: httpx.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        for piece in answer.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                raise not_topics(self.url, f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
        return b"".join(pieces)


class _Later(Exception):
    """The server says: not now."""

    def __init__(self, error: TopicsError, after_s: float) -> None:
        super().__init__(error.message)
        self.error = error
        self.after_s = after_s


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
