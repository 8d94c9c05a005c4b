"""The calls on routers: put, look, list, delete; and a router as JSON and as a value (http-api 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from topics.calls.call import Call
from topics.calls.intake import encode_json
from topics.calls.messages import FORMAT_LIMITS, read_deleted
from topics.calls.retry import Line, Talk, ask_all
from topics.codec.log.routers import AT_LEAST_ONCE
from topics.engine.commands import DeleteRouter, PutRouter
from topics.engine.replies import Reply, RouterDeleted, RouterPut, RouterState
from topics.engine.routers.definitions import check_definition
from topics.kernel.checks import flag, json_kind
from topics.kernel.errors import invalid
from topics.kernel.ids import check_router_name, check_topic_name
from topics.kernel.limits import Limits
from topics.log.reads.match import parse_match, unambiguous

if TYPE_CHECKING:
    from topics.engine.engine import Engine  # which clients do not need

_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class Router:
    """A router as it is. `cursor`: the last seq of the source that it has dealt with; `lag` seqs are above that.
    `forwarded_total`: the copies that it has made.
    """

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: Sequence[str] | None
    allow_cycle: bool
    guarantee: str
    cursor: int
    lag: int
    forwarded_total: int


def router_json(state: RouterState, **more: object) -> bytes:
    """As the wire has it; an object that is left open."""
    definition = state.definition
    fields: dict[str, object] = {
        "router": definition.name, "source": state.source, "dest": state.dest,
        "preserve_node": definition.preserve_node, "preserve_tag": definition.preserve_tag,
        "filter": definition.filter, "allow_cycle": definition.allow_cycle, "guarantee": definition.guarantee,
        "cursor": state.cursor, "lag": state.lag, "forwarded_total": state.forwarded_total, **more,
    }  # fmt: skip
    return _encode(fields)[:-1]


class _RouterList(msgspec.Struct):
    routers: list[Router]
    next_cursor: str | None = None


read_router: Final = msgspec.json.Decoder(Router).decode
_list: Final = msgspec.json.Decoder(_RouterList).decode


def _read_list(body: bytes) -> tuple[Sequence[Router], str | None]:
    page = _list(body)
    return page.routers, page.next_cursor


def value_of(state: RouterState) -> Router:
    """What every store answers: a server's answer read."""
    return read_router(router_json(state) + b"}")


class _OfRouter(Call[Router], frozen=True, eq=False):
    name: str

    def path(self) -> str:
        return _path(self.name)


class PutRouterCall(_OfRouter, frozen=True, eq=False):
    """Have every record that comes into `source` from now on copied into `dest`, or change how. Topics that are not
    there are made, `dest` in the class of `source`, and only if `create_dest`.

    `filter`: a tag, or `["tag", "Glob", "us*"]`: only records that it accepts. `preserve_node`, `preserve_tag`: whether
    copies keep them. `guarantee`: with `exactly_once` the meta of a copy has a key, `_topics_router`, by which readers
    know it. `allow_cycle`: records may come round, up to 8 times.

    Raises:
        Rejected: invalid_request; topic_not_found, without `create_dest`; topic_exists_incompatible, if `dest` has
            another source, the router other topics, or one of them is ephemeral; router_cycle.
    """

    source: str
    dest: str
    filter: str | Sequence[str] | None = None
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    allow_cycle: bool = False
    guarantee: str = AT_LEAST_ONCE

    def command(self, limits: Limits) -> PutRouter:
        unambiguous(self.filter, field="filter")
        given = self.filter
        command = PutRouter(
            router=self.name, source=self.source, dest=self.dest,
            filter=None if given is None else parse_match(given, tag_bytes_max=limits.tag_bytes, field="filter"),
            **{name: flag(name, getattr(self, name)) for name in _FLAGS}, guarantee=self.guarantee,
        )  # fmt: skip
        check_definition(command)
        return command

    def answer(self, reply: Reply) -> Router:
        assert isinstance(reply, RouterPut)
        return value_of(reply.router)

    def exchange(self, line: Line) -> Talk[Router]:
        self.command(FORMAT_LIMITS)
        fields = {name: getattr(self, name) for name in ("source", "dest", "filter", "guarantee", *_FLAGS)}
        body = encode_json("body", fields)
        return line.ask("PUT", self.path(), read_router, body=body, repeatable=True, writes=True)


_FLAGS: Final = ("preserve_node", "preserve_tag", "create_dest", "allow_cycle")


class GetRouterCall(_OfRouter, frozen=True, eq=False):
    """A router as it is.

    Raises:
        Rejected: router_not_found.
    """

    def check(self) -> None:
        check_router_name(self.name)

    def look(self, engine: Engine) -> Router:
        return value_of(engine.routers.state(self.name))

    def exchange(self, line: Line) -> Talk[Router]:
        return line.ask("GET", self.path(), read_router, repeatable=True)


class DeleteRouterCall(Call[bool], frozen=True, eq=False):
    """End a router: behind this nothing of it is copied. What it has copied stays. False if there was none.

    Raises:
        Unreachable: if it was sent, it may have been carried out; it is not repeated.
    """

    name: str

    def check(self) -> None:
        check_router_name(self.name)

    def command(self, _limits: Limits) -> DeleteRouter:
        return DeleteRouter(router=self.name)

    def answer(self, reply: Reply) -> bool:
        assert isinstance(reply, RouterDeleted)
        return reply.deleted

    def exchange(self, line: Line) -> Talk[bool]:
        return (yield from line.ask("DELETE", _path(self.name), read_deleted, writes=True)).deleted


class ListRoutersCall(Call[Sequence[Router]], frozen=True, eq=False):
    """Every router whose name starts so, ascending by name; from this source and into this dest, where one is given."""

    prefix: str = ""
    source: str | None = None
    dest: str | None = None

    def check(self) -> None:
        if not isinstance(self.prefix, str):
            raise invalid("prefix", f"must be a string, not {json_kind(self.prefix)}")
        for field, name in (("source", self.source), ("dest", self.dest)):
            if name is not None:
                check_topic_name(name, field=field)

    def look(self, engine: Engine) -> Sequence[Router]:
        names = engine.routers.names(self.prefix, source=self.source, dest=self.dest)
        return [value_of(engine.routers.state(name)) for name in names]

    def exchange(self, line: Line) -> Talk[Sequence[Router]]:
        sides = {"source": self.source, "dest": self.dest}
        query = {"prefix": self.prefix, **{side: name for side, name in sides.items() if name is not None}}
        return ask_all(line, "/v0/routers", _read_list, "routers", query)


def _path(name: str) -> str:
    """A name may have a `>`, which no path does."""
    return f"/v0/routers/{check_router_name(name)}".replace(">", "%3E")
