"""Who asks, and whether he may: a head against the row it leads to (http-api 2, decision 73).

A key comes in `Authorization: Bearer KEY`. Where a browser cannot send that, it comes otherwise: to a stream of events
as `?token=`, to a WebSocket as the subprotocol `topics.key.<base64url of the key>`. A header rules over both.

What a head says is decided by it alone: the scopes of its row, and the names in its path. A bad name is outside any
prefix. Names in bodies are checked by whoever reads the body, and what is told by whoever tells it: they have the key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from topics.kernel.errors import Code, Rejected
from topics.server.api.call import parse_query
from topics.server.api.message import Head
from topics.server.api.routes import Route
from topics.server.auth.keys import Key, Keys
from topics.server.auth.scopes import PROBE, Names

_BEARER: Final = b"bearer"
_SUBPROTOCOL: Final = b"topics.key."


def authorise(keys: Keys, head: Head, route: Route, params: tuple[bytes, ...], *, probe_auth: bool) -> Key:
    """Who asks. `params`: the names in the path, decoded.

    Raises:
        Rejected: unauthorized, forbidden.
    """
    if not keys.is_on:
        return keys.anybody
    token = _token(head, route)
    key = None if token is None else keys.find(token)
    if route.scope == PROBE and not probe_auth:
        return key or keys.stranger
    if key is None:
        raise unauthorized(given=token is not None)
    what = f"{route.method.decode()} {route.path}"
    key.check_scopes(route.needs, what)
    if route.names is Names.SERVER:
        key.check_unlimited(what)
    elif route.names is Names.TOPIC:
        key.check_name(params[0].decode("latin-1"))  # what else is in such a path is of that topic
    return key


def unauthorized(*, given: bool) -> Rejected:
    """Which of the two it is tells nothing that whoever asks did not know. `given`: a key came, and is none of ours."""
    if given:
        return Rejected(Code.UNAUTHORIZED, "authorization: this is none of the server's keys", invalid=True)
    return Rejected(
        Code.UNAUTHORIZED, "authorization: this server asks for a key, as in `Authorization: Bearer KEY`"
    )


def _token(head: Head, route: Route) -> bytes | None:
    """The key as it was given, None if none was."""
    header = head.headers.get(b"authorization")
    if header is not None:
        kind, _, token = header.partition(b" ")
        return token.strip() if kind.lower() == _BEARER else b""
    if route.is_stream and head.query:
        return parse_query(head.query).get(b"token")
    if route.upgrade is not None:
        return _of_subprotocol(head.headers.get(b"sec-websocket-protocol", b""))
    return None


def _of_subprotocol(offered: bytes) -> bytes | None:
    found = [part for one in offered.split(b",") if (part := one.strip()).startswith(_SUBPROTOCOL)]
    if not found:
        return None
    text = found[0].removeprefix(_SUBPROTOCOL)
    try:
        plain = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
    return b"" if b"+" in text or b"/" in text else plain  # of the other alphabet, which Python takes as well
