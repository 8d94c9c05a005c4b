"""Schedules: put, look, list, delete (queues 4). A definition refuses unknown fields, as a config does.

A schedule speaks of two names, its own and its topic's, and a key has to know both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import trio

from topics.calls.definitions.schedules import schedule_json, with_own_names
from topics.codec.log.schedules import CATCH_UPS
from topics.engine.commands import DeleteSchedule, PutSchedule
from topics.engine.replies import ScheduleDeleted, SchedulePut
from topics.engine.schedules.definitions import definition_of
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_schedule_name, check_topic_name
from topics.kernel.limits import COMING_MAX, Limits
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import decode_form
from topics.server.api.bodies.forms import RecordIn
from topics.server.api.bodies.pieces import value_bytes_max
from topics.server.api.bodies.writes import decode_write
from topics.server.api.call import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, HandlerCall, text_of
from topics.server.api.message import Answer
from topics.server.api.resources.topics import decode_cursor, encode_cursor
from topics.server.api.routes import WRITE_ERRORS, Body, Route
from topics.server.auth.scopes import Names

_SLICE: Final = 50  # schedules of a list between two checkpoints


class ScheduleIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A schedule as a client asks it."""

    topic: Annotated[str, s.said("Where its records go", pattern=s.NAME_PATTERN)]
    record: Annotated[msgspec.Raw, s.said("What it appends, as of a write")]
    cron: Annotated[
        str | None,
        s.nonempty_text(
            "Minute, hour, day of month, month, day of week, or a word as `@daily`; this or `every_ms`"
        ),
    ] = None
    every_ms: Annotated[int | None, s.unsigned("At multiples of it since 1970; 1000 at least")] = None
    timezone: Annotated[str | None, s.nonempty_text("Of the IANA list; where `cron` is local time")] = None
    jitter_ms: Annotated[
        int | None,
        s.unsigned("Up to so much later, and before the next instant; a day at most", default=0),
    ] = None
    catch_up: Annotated[
        str | None,
        s.said("What of missed instants is fired", enum=[*CATCH_UPS, None], default="last"),
    ] = None


_form: Final = msgspec.json.Decoder(ScheduleIn)


def decode_schedule(name: str, body: bytes, limits: Limits) -> PutSchedule:
    """The command of a definition's body.

    Raises:
        Rejected: naming the field.
    """
    asked = decode_form(_form, body, large="record", value_bytes_max=value_bytes_max(limits))
    wrapped = b'{"records":[%b]}' % bytes(asked.record)
    wish = with_own_names(partial(decode_write, asked.topic, wrapped, limits, auto_create=False))
    if wish.ignored:
        raise invalid(
            wish.ignored[0].replace("records[0]", "record"), "a schedule's record has no such field"
        )
    definition = definition_of(
        name, cron=asked.cron, every_ms=asked.every_ms, jitter_ms=asked.jitter_ms or 0,
        timezone="UTC" if asked.timezone is None else asked.timezone,
        catch_up="last" if asked.catch_up is None else asked.catch_up, record=wish.command.records,
    )  # fmt: skip
    return PutSchedule(topic=check_topic_name(asked.topic), schedule=definition)


async def put_schedule(call: HandlerCall) -> Answer:
    """Make a schedule, or change it."""
    name = _name(call)
    command = await call.decoded(partial(decode_schedule, name, call.body, call.site.options.limits))
    call.key.check_name(command.topic)
    if (standing := call.runtime.engine.schedules.topic_of(name)) is not None:
        call.key.check_name(standing)  # else the refusal would tell a name that the key may not see
    put = await call.runtime.submit(command)
    assert isinstance(put, SchedulePut)
    told = schedule_json(put.schedule, created=put.created)
    return Answer(201 if put.created else 200, told + call.performance() + b"}")


async def get_schedule(call: HandlerCall) -> Answer:
    """A schedule as it is, and its next instants."""
    coming = call.number("coming", default=0, most=COMING_MAX)
    state = call.runtime.engine.schedules.state(_name(call), coming=coming)
    call.key.check_name(state.topic)
    told = schedule_json(state, **({"coming": state.coming} if coming else {}))
    return Answer(200, told + call.performance() + b"}")


async def list_schedules(call: HandlerCall) -> Answer:
    """One page of the schedules, ascending by name. Their records are told, too, so it ends where it gets large."""
    prefix, after = call.text("prefix"), decode_cursor(call.query.get(b"cursor"))
    size = call.number("page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    desk, limits = call.runtime.engine.schedules, call.site.options.limits
    names = desk.names(prefix, after, size + 1, call.key.sees)
    listed, told, length = [], 0, 0
    for name in names[:size]:
        told += 1
        if told % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        try:
            listed.append(schedule_json(desk.state(name)) + b"}")
        except Rejected:
            continue  # it was deleted meanwhile
        length += len(listed[-1])
        if length >= limits.page_bytes_default:
            break
    cursor = b',"next_cursor":"%b"' % encode_cursor(names[told - 1]).encode() if len(names) > told else b""
    return Answer(200, b'{"schedules":[%b]%b%b}' % (b",".join(listed), cursor, call.performance()))


async def delete_schedule(call: HandlerCall) -> Answer:
    """End a schedule; an absent one is fine."""
    name, deleted = _name(call), False
    topic = call.runtime.engine.schedules.topic_of(name)
    if topic is not None:
        call.key.check_name(topic)
        gone = await call.runtime.submit(DeleteSchedule(topic=topic, schedule=name))
        assert isinstance(gone, ScheduleDeleted)
        deleted = gone.deleted
    return call.ok({"schedule": name, "deleted": deleted})


def _name(call: HandlerCall) -> str:
    """Of the path. Raises `Rejected(invalid_request)` for a bad one."""
    return check_schedule_name(text_of("schedule", call.params[0]))


def _without_id(record: dict[str, Any]) -> s.Schema:
    """A schedule gives its records ids of its own."""
    del record["properties"]["dedup_id"]
    return {**record, "additionalProperties": False}


_FIELDS: Final[Mapping[str, s.Schema]] = {
    "schedule": s.text("Its name", pattern=s.NAME_PATTERN),
    "topic": s.TOPIC,
    "cron": s.or_null(s.text("Null if it goes by `every_ms`")),
    "every_ms": s.or_null(s.count("Null if it goes by `cron`")),
    "timezone": s.text("Where `cron` is local time"),
    "jitter_ms": s.count("Up to so much later"),
    "catch_up": s.text("`last`, `all` or `none`"),
    "last_fired": s.or_null(s.count("The latest instant that was fired, ms since 1970")),
    "next_fire": s.or_null(s.count("The next one, before jitter; null if none comes")),
    "record": s.ref("ScheduledRecord"),
}
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Schedule": {
        **s.form_of("One of `cron` and `every_ms` is needed", ScheduleIn, record=s.ref("RecordToCome")),
        "additionalProperties": False, "oneOf": [s.given("cron"), s.given("every_ms")],
    },
    "RecordToCome": _without_id(s.form_of("A record as of a write, without an id", RecordIn)),
    "ScheduledRecord": s.object_of(
        "What is appended; `meta` gets `$schedule` and `$schedule_instant` beside what is here, and"
        " `$schedule_skipped_from` and `$schedule_skipped_to` if instants before it were passed over", "data",
        data={"description": "Any JSON value; bytes of an embedded store as `{\"$bytes\": base64}`"},
        content_type=s.text("Of bytes"), tag=s.text(""), node=s.text(""), key=s.text(""), meta=s.META,
        ttl_ms=s.count(""), priority=s.count(""), delay_ms=s.count(""),
    ),
    "ScheduleState": s.answer_of(
        "A schedule as it is", "coming",
        **_FIELDS, coming=s.list_of(s.count(""), "Its next instants, as many as were asked for"),
    ),
    "SchedulePut": s.answer_of("", **_FIELDS, created=s.flag("False: it was there")),
    "ListedSchedule": s.object_of("A schedule in a list", "*", **_FIELDS),
    "ScheduleList": s.answer_of(
        "Schedules, ascending by name", "next_cursor",
        schedules=s.list_of(s.ref("ListedSchedule"), "One page"),
        next_cursor=s.text("Give it as `cursor` for the next page"),
    ),
    "ScheduleDeleted": s.answer_of("", schedule=_FIELDS["schedule"], deleted=s.flag("False: there was none")),
}  # fmt: skip

_PATH: Final = "/v0/schedules/{schedule}"
ROUTES: Final = (
    Route(
        name="put_schedule", method=b"PUT", path=_PATH, handler=put_schedule, scope="admin", tag="schedules",
        names=Names.TOPIC, body_names=("topic",),
        summary="Make a schedule, or change it",
        text="Each instant of it is one record in `topic`, once, whatever stops the server. An instant that is looked"
        " at within a minute is on time; `catch_up` says which of older ones are fired. The topic is there before, is"
        " not `ephemeral`, and stays the same; with it the schedule goes.",
        body=Body.REQUIRED, request="Schedule",
        answers={200: ("It was there and is so now", "SchedulePut"), 201: ("Made", "SchedulePut")},
        errors=(
            Code.TOPIC_NOT_FOUND, Code.TOPIC_EXISTS_INCOMPATIBLE, Code.RECORD_TOO_LARGE, *WRITE_ERRORS,
        ),
    ),
    Route(
        name="get_schedule", method=b"GET", path=_PATH, handler=get_schedule, scope="read", tag="schedules",
        names=Names.TOPIC, summary="A schedule, what it has fired and what comes",
        query={"coming": s.count("How many of its next instants to tell; 100 at most", default=0)},
        answers={200: ("As it is", "ScheduleState")}, errors=(Code.SCHEDULE_NOT_FOUND,),
    ),
    Route(
        name="list_schedules", method=b"GET", path="/v0/schedules", handler=list_schedules, scope="read",
        names=Names.SEEN, tag="schedules", summary="The schedules, by name",
        query={
            "prefix": s.text("Names that begin so"),
            "page_size": s.count("1000 at most; 0 is the default", default=PAGE_SIZE_DEFAULT),
            "cursor": s.text("`next_cursor` of the page before", minLength=1),
        },
        answers={200: ("One page", "ScheduleList")},
    ),
    Route(
        name="delete_schedule", method=b"DELETE", path=_PATH, handler=delete_schedule, scope="delete", tag="schedules",
        names=Names.TOPIC, summary="End a schedule", text="Behind the answer nothing of it is appended.",
        answers={200: ("Ended, or absent before", "ScheduleDeleted")}, errors=WRITE_ERRORS,
    ),
)  # fmt: skip
