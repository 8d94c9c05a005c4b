"""Routers: put, look, list, delete (http-api 8). A definition refuses unknown fields, as a config does.

A router speaks of three names, its own and those of its topics, and a key has to know them all. What stands in the way
of a new one may have others: then the refusal does not say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Final

import msgspec

from topics.calls.definitions.routers import router_json
from topics.codec.log.routers import AT_LEAST_ONCE, GUARANTEES
from topics.engine.commands import DeleteRouter, PutRouter
from topics.engine.replies import RouterDeleted, RouterPut
from topics.engine.routers.definitions import check_definition
from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import ROUTER_NAME, check_router_name, check_topic_name
from topics.kernel.limits import Limits
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import ABSENT, decode_form
from topics.server.api.call import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, HandlerCall, text_of
from topics.server.api.message import Answer
from topics.server.api.resources.records import match_of
from topics.server.api.resources.topics import decode_cursor, encode_cursor
from topics.server.api.routes import WRITE_ERRORS, Body, Route
from topics.server.auth.keys import Key
from topics.server.auth.scopes import Names


class RouterIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A router as a client asks it."""

    source: Annotated[str, s.said("Where its records come from", pattern=s.NAME_PATTERN)]
    dest: Annotated[str, s.said("Where their copies go", pattern=s.NAME_PATTERN)]
    preserve_node: Annotated[bool, s.said("Copies have the record's node")] = True
    preserve_tag: Annotated[bool, s.said("Copies have the record's tag")] = True
    create_dest: Annotated[bool, s.said("A dest that is missing is made, else it is 404")] = True
    filter: Annotated[msgspec.Raw, s.said(**s.ref("MatchOrNull"))] = ABSENT
    allow_cycle: Annotated[bool, s.said("Records may come round, up to 8 times; else a cycle is 409")] = False
    guarantee: Annotated[
        str,
        s.said("With `exactly_once` a copy's meta has the key `_topics_router`", enum=[*GUARANTEES]),
    ] = AT_LEAST_ONCE


_form: Final = msgspec.json.Decoder(RouterIn)


def decode_router(name: str, body: bytes, limits: Limits) -> PutRouter:
    """The command of a definition's body.

    Raises:
        Rejected: naming the field.
    """
    asked = decode_form(_form, body)
    command = PutRouter(
        router=name, source=asked.source, dest=asked.dest, preserve_node=asked.preserve_node,
        preserve_tag=asked.preserve_tag, create_dest=asked.create_dest,
        filter=match_of(asked.filter, limits, field="filter"), allow_cycle=asked.allow_cycle,
        guarantee=asked.guarantee,
    )  # fmt: skip
    check_definition(command)
    return command


async def put_router(call: HandlerCall) -> Answer:
    """Make a router, or change it."""
    name = _name(call)
    command = await call.decoded(partial(decode_router, name, call.body, call.site.options.limits))
    call.key.check_name(command.source, field="source")
    call.key.check_name(command.dest, field="dest")
    _check_standing(call, name)
    try:
        put = await call.runtime.submit(command)
    except Rejected as refused:
        raise _as_seen(refused, call.key) from None
    assert isinstance(put, RouterPut)
    told = router_json(put.router, created=put.created)
    return Answer(201 if put.created else 200, told + call.performance() + b"}")


async def get_router(call: HandlerCall) -> Answer:
    """A router as it is."""
    name = _name(call)
    _check_standing(call, name)
    ends = call.runtime.engine.routers.topics_of(name)
    if ends is not None:
        await call.runtime.mover.catch_up(ends[1])
    return Answer(200, router_json(call.runtime.engine.routers.state(name)) + call.performance() + b"}")


async def list_routers(call: HandlerCall) -> Answer:
    """One page of the routers, ascending by name."""
    prefix, after = call.text("prefix"), decode_cursor(call.query.get(b"cursor"))
    size = call.number("page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    desk, source, dest = call.runtime.engine.routers, _side(call, "source"), _side(call, "dest")
    names = desk.names(prefix, after, size + 1, source=source, dest=dest, sees=call.key.sees)
    listed = b",".join([router_json(desk.state(name)) + b"}" for name in names[:size]])
    cursor = b',"next_cursor":"%b"' % encode_cursor(names[size - 1]).encode() if len(names) > size else b""
    return Answer(200, b'{"routers":[%b]%b%b}' % (listed, cursor, call.performance()))


def _side(call: HandlerCall, field: str) -> str | None:
    name = call.text(field)
    return check_topic_name(name, field=field) if name else None


async def delete_router(call: HandlerCall) -> Answer:
    """End a router; an absent one is fine."""
    name = _name(call)
    _check_standing(call, name)
    gone = await call.runtime.submit(DeleteRouter(router=name))
    assert isinstance(gone, RouterDeleted)
    return call.ok({"router": name, "deleted": gone.deleted})


def _name(call: HandlerCall) -> str:
    """Of the path. Raises `Rejected(invalid_request)` for a bad one."""
    return check_router_name(text_of("router", call.params[0]))


def _check_standing(call: HandlerCall, name: str) -> None:
    """Else an answer would tell a name that the key may not see. Raises `Rejected(forbidden)`."""
    standing = call.runtime.engine.routers.topics_of(name)
    for field, topic in zip(("source", "dest"), standing or (), strict=False):
        call.key.check_name(topic, field=field)


def _as_seen(refused: Rejected, key: Key) -> Rejected:
    """What a key may be told of a refusal: all of it, or not by which names."""
    names = [refused.detail.get(field) for field in ("router", "topic", "source", "dest")]
    cycle = refused.detail.get("cycle", ())
    names += cycle if isinstance(cycle, Iterable) else ()
    if all(key.sees(name) for name in names if isinstance(name, str)):
        return refused
    detail = {name: refused.detail[name] for name in ("reason",) if name in refused.detail}
    what = "of names that this key does not see, something is in the router's way"
    return Rejected(refused.code, what, **detail)


_FIELDS: Final[Mapping[str, s.Schema]] = {
    "router": s.text("Its name", pattern=f"^{ROUTER_NAME.pattern}$"),
    "source": s.TOPIC,
    "dest": s.TOPIC,
    "preserve_node": s.flag("Copies have the record's node"),
    "preserve_tag": s.flag("Copies have the record's tag"),
    "filter": s.or_null(s.list_of(s.text(""), "A match, written in full; null: every record is copied")),
    "allow_cycle": s.flag("Records may come round"),
    "guarantee": s.text("`at_least_once` or `exactly_once`"),
    "cursor": s.count("The last seq of the source that it has dealt with"),
    "lag": s.count("Seqs of the source above that"),
    "forwarded_total": s.count("Copies that it has made"),
}
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Router": {**s.form_of("Two topics, and what passes between them", RouterIn), "additionalProperties": False},
    "RouterState": s.answer_of("A router as it is", **_FIELDS),
    "RouterPut": s.answer_of("", **_FIELDS, created=s.flag("False: it was there")),
    "ListedRouter": s.object_of("A router in a list", "*", **_FIELDS),
    "RouterList": s.answer_of(
        "Routers, ascending by name", "next_cursor",
        routers=s.list_of(s.ref("ListedRouter"), "One page"),
        next_cursor=s.text("Give it as `cursor` for the next page"),
    ),
    "RouterDeleted": s.answer_of("", router=_FIELDS["router"], deleted=s.flag("False: there was none")),
}  # fmt: skip

_PATH: Final = "/v0/routers/{router}"
ROUTES: Final = (
    Route(
        name="put_router", method=b"PUT", path=_PATH, handler=put_router, scope="admin", tag="routers",
        names=Names.TOPIC, body_names=("source", "dest"),
        summary="Make a router, or change it",
        text="What comes into `source` behind this is copied into `dest`. Topics that are missing are made, `dest` in"
        " the class of `source`. A dest has one source, and neither is `ephemeral`; a router keeps its topics, and goes"
        " with either.",
        body=Body.REQUIRED, request="Router",
        answers={200: ("It was there and is so now", "RouterPut"), 201: ("Made", "RouterPut")},
        errors=(Code.TOPIC_NOT_FOUND, Code.TOPIC_EXISTS_INCOMPATIBLE, Code.ROUTER_CYCLE, *WRITE_ERRORS),
    ),
    Route(
        name="get_router", method=b"GET", path=_PATH, handler=get_router, scope="read", tag="routers",
        names=Names.TOPIC, summary="A router, and how far it has come",
        answers={200: ("As it is", "RouterState")}, errors=(Code.ROUTER_NOT_FOUND,),
    ),
    Route(
        name="list_routers", method=b"GET", path="/v0/routers", handler=list_routers, scope="read",
        names=Names.SEEN, tag="routers", summary="The routers, by name",
        query={
            "prefix": s.text("Names that begin so"),
            "source": s.text("Only those from this topic"),
            "dest": s.text("Only those into this topic"),
            "page_size": s.count("1000 at most; 0 is the default", default=PAGE_SIZE_DEFAULT),
            "cursor": s.text("`next_cursor` of the page before", minLength=1),
        },
        answers={200: ("One page", "RouterList")},
    ),
    Route(
        name="delete_router", method=b"DELETE", path=_PATH, handler=delete_router, scope="delete", tag="routers",
        names=Names.TOPIC, summary="End a router",
        text="Behind the answer nothing of it is copied; what it has copied stays.",
        answers={200: ("Ended, or absent before", "RouterDeleted")}, errors=WRITE_ERRORS,
    ),
)  # fmt: skip
