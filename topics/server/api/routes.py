"""The route table and how a request finds its row. Each row is served by both planes and stands in the OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

import attrs
import msgspec

from topics.kernel.errors import Code, Rejected, invalid
from topics.server.api import events
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.ops import Op
from topics.server.api.schemas import Schema
from topics.server.auth.scopes import Names, Scopes, needed

Handler = Callable[[HandlerCall], Awaitable[Answer]]
Ended = Callable[[Callable[[], Answer]], None]
Begin = Callable[[HandlerCall, Ended], bool]
JSON: Final = "application/json"
WRITE_ERRORS: Final = (Code.STORAGE_READ_ONLY, Code.DISK_LOW, Code.THROTTLED)
_SHOWN_MAX: Final = 40  # of a parameter's name
_ANY: Final = None  # a segment that is a parameter


class Body(Enum):
    """NONE: whatever comes is read and left. OPTIONAL: every field has a default, so an empty body is `{}`."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@attrs.frozen(kw_only=True)
class Route:
    """A row, and what the API's description says of it.

    `path` names its parameters in braces; `early`: answered before recovery. `query`, `headers`: name -> schema.
    `request`: the schema of its body. `answers`: status -> what it means and the schema of its body, which is of the
    first of `media`. `errors`: the codes that its handler may give. `upgrade`: what a connection of HTTP/1.1 goes on
    with if that is asked for. `begin`: as `handler`, for what can be begun without waiting: if it is, it is True, and
    whoever ends it gives what makes the answer, which is small; else nothing was done, whatever it raises.

    `scope` and `names` say who may ask (`topics.server.auth.scopes`); a topic in the path is a name unless `names` says
    otherwise, and any other row says it. `body_names`: fields of the body that are names too, which the handler checks.
    """

    name: str
    method: bytes
    path: str
    handler: Handler
    scope: str
    summary: str
    text: str = ""
    tag: str = "records"
    query: Mapping[str, Schema] = attrs.field(factory=dict)
    headers: Mapping[str, Schema] = attrs.field(factory=dict)
    body: Body = Body.NONE
    request: str | None = None
    answers: Mapping[int, tuple[str, str]] = attrs.field(factory=dict)
    media: tuple[str, ...] = (JSON,)
    errors: tuple[Code, ...] = ()
    early: bool = False
    upgrade: bytes | None = None
    begin: Begin | None = None
    names: Names = attrs.field()
    body_names: tuple[str, ...] = ()
    needs: Scopes = attrs.field(init=False)

    @names.default
    def _of_path(self) -> Names:
        assert "{topic}" in self.path, f"{self.name}: its row does not say which names it speaks of"
        return Names.TOPIC

    @needs.default
    def _needed(self) -> Scopes:
        return needed(self.scope)

    def check_query(self, names: Collection[bytes]) -> None:
        """Refuse what no parameter is called: it would change nothing, and who asks means something by it. What answers
        before recovery takes any: monitors, and proxies on their way, have parameters of their own.

        Raises:
            Rejected: invalid_request, naming the first of them.
        """
        for name in names:
            text = name.decode("utf-8", "backslashreplace")
            if text not in self.query and not self.early and not (self.is_stream and text == "token"):
                known = f"it has {', '.join(sorted(self.query))}" if self.query else "it has none"
                body = "; fields of the body are no parameters" if self.body is not Body.NONE else ""
                raise invalid(
                    text[:_SHOWN_MAX] or "query",
                    f"is no parameter of {self.method.decode()} {self.path}: {known}{body}",
                )

    @property
    def is_stream(self) -> bool:
        """Whether its answer is a stream of events."""
        return self.media[0] == events.MEDIA_TYPE


class RoutedPath(msgspec.Struct, frozen=True, gc=False):
    """What a path leads to: its routes by method, and the parameters in it."""

    routes: Mapping[bytes, Route]
    params: tuple[bytes, ...]

    @property
    def allow(self) -> str:
        return ", ".join(
            sorted({m.decode() for m in self.routes} | ({"HEAD"} if b"GET" in self.routes else set()))
        )


class RouteTable:
    """Rows by path, and the schemas that they name; `ops`: what messages of a WebSocket ask, by name. A path walks down
    a tree of its segments: what that costs is the path's length, not the table's.
    """

    def __init__(
        self, routes: Sequence[Route], schemas: Mapping[str, Schema], ops: Sequence[Op] = ()
    ) -> None:
        self.routes = tuple(routes)
        self.schemas = schemas
        self.ops = {op.name: op for op in ops}
        assert len(self.ops) == len(ops)
        self._root = _PathSegment()
        for route in routes:
            segment = self._root
            for part in route.path[1:].split("/"):
                segment = segment.below.setdefault(
                    _ANY if part.startswith("{") else part.encode(), _PathSegment()
                )
            assert route.method not in segment.routes, (route.path, route.method)
            segment.routes[route.method] = route

    def place(self, path: bytes) -> RoutedPath | None:
        """What the raw path leads to; None if nowhere. `%2F` never separates; a segment is decoded once.

        A segment that a row spells out is that one, and no parameter, whatever comes behind it.
        """
        root, *parts = path.split(b"/")
        if root:
            return None
        below, params = self._root.below, []
        segment: _PathSegment | None = None
        for part in parts:
            segment = below.get(part)
            if segment is None:
                segment = below.get(_ANY)
                if segment is None:
                    return None
                params.append(unquote_to_bytes(part) if b"%" in part else part)
            below = segment.below
        if segment is None or not segment.routes:
            return None
        return RoutedPath(segment.routes, tuple(params))

    def route(self, place: RoutedPath, method: bytes) -> Route:
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


class _PathSegment:
    """A segment of paths: the rows that end here, and the segments below, `_ANY` for a parameter."""

    __slots__ = ("below", "routes")

    def __init__(self) -> None:
        self.routes: dict[bytes, Route] = {}
        self.below: dict[bytes | None, _PathSegment] = {}
