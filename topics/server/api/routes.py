"""The route table and how a request finds its row. Each row is served by both planes and stands in the OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

import attrs

from topics.kernel.errors import Code, Rejected
from topics.server.api.call import Call
from topics.server.api.message import Answer

Handler = Callable[[Call], Awaitable[Answer]]
_FOUND_MAX: Final = 4096
_FOUND_BYTES_MAX: Final = 1024  # a path: all that are remembered take a few MiB


class Body(Enum):
    """NONE: whatever comes is read and left. OPTIONAL: every field has a default, so an empty body is `{}`."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@attrs.frozen(kw_only=True)
class Route:
    """A row. `path` names its parameters in braces; `query` its query parameters; `early`: answered before recovery."""

    name: str
    method: bytes
    path: str
    handler: Handler
    scope: str | None
    summary: str
    body: Body = Body.NONE
    query: tuple[str, ...] = ()
    early: bool = False


@attrs.frozen
class Place:
    """What a path leads to: its routes by method, and the parameters in it."""

    routes: Mapping[bytes, Route]
    params: tuple[bytes, ...]

    @property
    def allow(self) -> str:
        return ", ".join(
            sorted({m.decode() for m in self.routes} | ({"HEAD"} if b"GET" in self.routes else set()))
        )


class RouteTable:
    """Rows by path. A path that was found once is found again by one dict on its raw bytes (performance 4)."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._by_shape: dict[tuple[bytes | None, ...], dict[bytes, Route]] = {}
        for route in routes:
            methods = self._by_shape.setdefault(_shape(route.path), {})
            assert route.method not in methods, (route.path, route.method)
            methods[route.method] = route
        self._found: dict[bytes, Place] = {}

    def place(self, path: bytes) -> Place | None:
        """What the raw path leads to; None if nowhere. `%2F` never separates; a segment is decoded once."""
        place = self._found.get(path)
        if place is None:
            place = self._look(path)
            if place is not None and len(path) <= _FOUND_BYTES_MAX:
                if len(self._found) >= _FOUND_MAX:
                    self._found.clear()
                self._found[path] = place
        return place

    def route(self, place: Place, method: bytes) -> Route:
        """The row of the method; HEAD is a GET whose body is left out.

        Raises:
            Rejected: method_not_allowed.
        """
        route = place.routes.get(b"GET" if method == b"HEAD" else method)
        if route is None:
            raise Rejected(
                Code.METHOD_NOT_ALLOWED,
                f"this path takes {place.allow}, not {method[:20].decode('latin-1')}",
                allow=place.allow,
            )
        return route

    def _look(self, path: bytes) -> Place | None:
        if not path.startswith(b"/"):
            return None
        parts = path[1:].split(b"/")
        for shape, methods in self._by_shape.items():
            if len(shape) == len(parts) and all(
                s is None or s == p for s, p in zip(shape, parts, strict=True)
            ):
                params = tuple(unquote_to_bytes(p) for s, p in zip(shape, parts, strict=True) if s is None)
                return Place(methods, params)
        return None


def _shape(path: str) -> tuple[bytes | None, ...]:
    return tuple(None if part.startswith("{") else part.encode() for part in path[1:].split("/"))
