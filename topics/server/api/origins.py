"""Which web pages may call, and under which name the server answers (http-api 2).

A browser sends `Origin` with whatever a page does across sites. Served are pages of the request's own host and of
listed origins; `Sec-Fetch-Site: cross-site` without a listed origin is refused too, but for a link that leads to the
dashboard's page (decision 109). With auth off a `Host` that is
neither a loopback name, nor the bind address, nor listed is 421: a page of another name that resolves to this machine
(DNS rebinding) gets nothing.

What a page of a listed origin is answered, good or bad, its browser lets it read: the answer names the origin (CORS,
decision 89). Before a request that a form could not send a browser asks whether it may, without a key: `asks_first`.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.kernel.errors import Code, Rejected
from topics.server.api.message import Head

HEADERS_ASKED: Final = (
    b"authorization, content-type, idempotency-key, last-event-id, x-request-id"  # that a page may set
)
_HEADERS_READ: Final = (
    b"retry-after, www-authenticate, x-request-id"  # and read, beside those that any page may
)
_ASKED_FOR_S: Final = 600  # that a browser may keep what it was told of a path
_VARY: Final = (b"vary", b"origin")
_LOOPBACK: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


@attrs.frozen(kw_only=True)
class Origins:
    """`allowed`: origins such as `https://example.org`. `hosts`: names beside loopback ones, without ports, lower case.

    `check_host`: auth is off.
    """

    allowed: frozenset[bytes] = frozenset()
    hosts: frozenset[bytes] = frozenset()
    check_host: bool = True

    def check(self, head: Head, *, is_page: bool = False) -> None:
        """`is_page`: a page without data, to which links of other sites may lead.

        Raises:
            Rejected: misdirected_request or forbidden.
        """
        headers = head.headers
        if self.check_host:
            self._check_host(head.host)
        origin = headers.get(b"origin")
        if origin is not None:
            own = (b"https://" if head.secure else b"http://") + head.host
            if origin.lower() != own.lower() and origin not in self.allowed:
                raise Rejected(
                    Code.FORBIDDEN,
                    f"origin: pages of {origin[:200].decode('latin-1')!r} may not call this server; list them in"
                    " TOPICS_ALLOWED_ORIGINS",
                )
        elif headers.get(b"sec-fetch-site", b"").lower() == b"cross-site" and not (
            is_page and _is_followed(head)
        ):
            raise Rejected(Code.FORBIDDEN, "sec-fetch-site: pages of other sites may not call this server")

    def asks_first(self, head: Head) -> bool:
        """Whether a browser asks for a page of a listed origin what it may send to this path."""
        return (
            head.method == b"OPTIONS"
            and b"access-control-request-method" in head.headers
            and head.headers.get(b"origin") in self.allowed
        )

    def told_first(self, allow: str) -> tuple[tuple[bytes, bytes], ...]:
        """What it is told, beside `shared`. `allow`: the methods of the path."""
        return (
            (b"access-control-allow-methods", allow.encode()),
            (b"access-control-allow-headers", HEADERS_ASKED),
            (b"access-control-max-age", b"%d" % _ASKED_FOR_S),
        )

    def shared(self, head: Head) -> tuple[tuple[bytes, bytes], ...]:
        """By which a page of a listed origin may read an answer, and a cache knows that it is for that one."""
        if not self.allowed:
            return ()
        origin = head.headers.get(b"origin")
        if origin not in self.allowed:
            return (_VARY,)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _HEADERS_READ),
            _VARY,
        )

    def _check_host(self, host: bytes) -> None:
        name = host_name(host).lower()
        if name in _LOOPBACK or name in self.hosts or _is_loopback_v4(name):
            return
        raise Rejected(
            Code.MISDIRECTED_REQUEST,
            f"host: {host[:200].decode('latin-1')!r} is not a name of this server; list it in"
            " TOPICS_ALLOWED_ORIGINS",
        )


def host_name(host: bytes) -> bytes:
    """The host without its port."""
    if host.startswith(b"["):
        return host[: host.find(b"]") + 1]
    return host.partition(b":")[0]


def _is_followed(head: Head) -> bool:
    """Whether a link was followed: what comes is shown in a window of its own, and no page of elsewhere can read it."""
    headers = head.headers
    return (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == (b"navigate", b"document")


def _is_loopback_v4(name: bytes) -> bool:
    parts = name.split(b".")
    return len(parts) == 4 and parts[0] == b"127" and all(p.isdigit() and len(p) <= 3 for p in parts)
