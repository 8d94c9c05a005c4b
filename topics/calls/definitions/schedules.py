"""The calls on schedules: put, look, list, delete; and a schedule as JSON and as a value (http-api 1, queues 4)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import msgspec

from topics.calls import messages
from topics.calls.call import Call
from topics.calls.intake import encode_json, take_records
from topics.calls.page import value_of_json
from topics.calls.records import OF_A_RECORD
from topics.calls.retry import Line, Talk, ask_all
from topics.codec.log.schedules import Schedule as Definition
from topics.engine.commands import PutSchedule
from topics.engine.replies import Reply, SchedulePut, ScheduleState
from topics.engine.schedules.definitions import definition_of
from topics.kernel.checks import clamped, json_kind
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ids import check_schedule_name, check_topic_name
from topics.kernel.limits import COMING_MAX, Limits

if TYPE_CHECKING:
    from topics.engine.engine import Engine  # which clients do not need

T = TypeVar("T")

_TEXTS: Final = ("tag", "node", "key")
_NUMBERS: Final = ("ttl_ms", "priority", "delay_ms")
_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class Schedule:
    """A schedule as it is. `record`: the fields of what it appends. Instants are ms since 1970; `last_fired` is None if
    there was none yet, `next_fire` if none comes; `coming`: as many as were asked for. `raw`: the text of its data, or
    its bytes.
    """

    schedule: str
    topic: str
    cron: str | None
    every_ms: int | None
    timezone: str
    jitter_ms: int
    catch_up: str
    record: Mapping[str, Any]
    last_fired: int | None
    next_fire: int | None
    coming: Sequence[int] = ()
    raw: bytes = b""


def schedule_json(state: ScheduleState, **more: object) -> bytes:
    """As the wire has it, the payload byte for byte; an object that is left open."""
    definition = state.definition
    fields: dict[str, object] = {
        "schedule": definition.name, "topic": state.topic, "cron": definition.cron or None,
        "every_ms": definition.every_ms or None, "timezone": definition.timezone, "jitter_ms": definition.jitter_ms,
        "catch_up": definition.catch_up, "last_fired": state.last_fired, "next_fire": state.next_fire, **more,
    }  # fmt: skip
    return _encode(fields)[:-1] + b',"record":' + _record_json(definition)


def _record_json(definition: Definition) -> bytes:
    fields: dict[str, object] = {"data": msgspec.Raw(definition.data)}
    if definition.content_type:
        fields["data"] = {"$bytes": base64.b64encode(definition.data).decode()}
        fields["content_type"] = definition.content_type.decode()
    for name in _TEXTS:
        if text := getattr(definition, name):
            fields[name] = text.decode()
    if definition.meta:
        fields["meta"] = msgspec.Raw(definition.meta)
    return _encode(fields | {name: n for name in _NUMBERS if (n := getattr(definition, name)) >= 0})


@attrs.frozen(kw_only=True)
class _Sent(Schedule):
    """As it is sent: the numbers of its payload are perhaps none that a decoder takes."""

    record: Mapping[str, msgspec.Raw]


class _ScheduleList(msgspec.Struct):
    schedules: list[_Sent]
    next_cursor: str | None = None


_sent: Final = msgspec.json.Decoder(_Sent).decode
_list: Final = msgspec.json.Decoder(_ScheduleList).decode


def read_schedule(body: bytes) -> Schedule:
    return _with_values(_sent(body))


def _read_list(body: bytes) -> tuple[Sequence[Schedule], str | None]:
    page = _list(body)
    return [_with_values(sent) for sent in page.schedules], page.next_cursor


def value_of(state: ScheduleState) -> Schedule:
    """What every store answers: a server's answer read."""
    return read_schedule(schedule_json(state, coming=state.coming) + b"}")


def _with_values(sent: _Sent) -> Schedule:
    record = {name: value_of_json(bytes(text)) for name, text in sent.record.items()}
    raw = bytes(sent.record["data"])
    if "content_type" in record:
        raw = record["data"] = base64.b64decode(record["data"]["$bytes"], validate=True)
    return Schedule(**attrs.asdict(sent, recurse=False) | {"record": record, "raw": raw})


class _OfSchedule(Call[Schedule], frozen=True, eq=False):
    name: str

    def path(self) -> str:
        return f"/v0/schedules/{check_schedule_name(self.name)}"


class _TopicAndDataArgs(_OfSchedule, frozen=True, eq=False):
    topic: str
    data: Any


class PutScheduleCall(_TopicAndDataArgs, frozen=True, eq=False, kw_only=True):
    """Append `data` to `topic` at every instant of `cron` (five fields or a word as `@daily`, in `timezone`), or every
    `every_ms` since 1970: make the schedule, or change it. Each instant is one record, once, whatever stops the store;
    its meta says which.

    `catch_up`: of instants that were missed by more than a minute, fire the `last`, `all` (the newest 1000), or `none`.
    `jitter_ms`: fire up to so much later, by an instant always as much, and before the next one. The other fields are
    the record's.

    Raises:
        Rejected: invalid_request; topic_not_found; topic_exists_incompatible, if it is there and fires into another
            topic.
    """

    cron: str | None = None
    every_ms: int | None = None
    timezone: str = "UTC"
    jitter_ms: int = 0
    catch_up: str = "last"
    tag: str | None = None
    node: str | None = None
    key: str | None = None
    meta: Mapping[str, str] | None = None
    ttl_ms: int | None = None
    content_type: str | None = None
    priority: int | None = None
    delay_ms: int | None = None

    def command(self, limits: Limits) -> PutSchedule:
        topic = check_topic_name(self.topic)
        given = {name: value for name in OF_A_RECORD if (value := getattr(self, name, None)) is not None}
        record = with_own_names(
            lambda: take_records([{"data": self.data, **given}], node=None, limits=limits)
        )
        definition = definition_of(
            self.name, cron=self.cron, every_ms=self.every_ms, timezone=self.timezone, jitter_ms=self.jitter_ms,
            catch_up=self.catch_up, record=record,
        )  # fmt: skip
        return PutSchedule(topic=topic, schedule=definition)

    def answer(self, reply: Reply) -> Schedule:
        assert isinstance(reply, SchedulePut)
        return value_of(reply.schedule)

    def exchange(self, line: Line) -> Talk[Schedule]:
        definition = self.command(messages.FORMAT_LIMITS).schedule
        if definition.content_type:
            raise invalid(
                "data",
                "bytes have no form in JSON, so only an embedded store takes them; encode them as text",
            )
        fields: dict[str, object] = {
            "topic": self.topic, "cron": self.cron, "every_ms": self.every_ms, "timezone": self.timezone,
            "jitter_ms": self.jitter_ms, "catch_up": self.catch_up,
            "record": msgspec.Raw(_record_json(definition)),
        }  # fmt: skip
        body = encode_json("body", {name: one for name, one in fields.items() if one is not None})
        return line.ask("PUT", self.path(), read_schedule, body=body, repeatable=True, writes=True)


def with_own_names(take: Callable[[], T]) -> T:
    """What `take` gives; what it refuses of `records[0]` is of `record`, for there is one."""
    try:
        return take()
    except Rejected as refused:
        detail = {
            name: value.replace("records[0]", "record") if isinstance(value, str) else value
            for name, value in refused.detail.items()
        }
        raise Rejected(refused.code, refused.message.replace("records[0]", "record"), **detail) from None


class GetScheduleCall(_OfSchedule, frozen=True, eq=False, kw_only=True):
    """A schedule as it is. `coming`: how many of its next instants to tell, 100 at most.

    Raises:
        Rejected: schedule_not_found.
    """

    coming: int = 0

    def check(self) -> None:
        check_schedule_name(self.name)
        clamped("coming", self.coming, low=0, high=COMING_MAX)

    def look(self, engine: Engine) -> Schedule:
        return value_of(engine.schedules.state(self.name, coming=self.coming))

    def exchange(self, line: Line) -> Talk[Schedule]:
        query = {"coming": str(self.coming)} if self.coming else {}
        return line.ask("GET", self.path(), read_schedule, query=query, repeatable=True)


class DeleteScheduleCall(Call[bool], frozen=True, eq=False):
    """End a schedule: behind this nothing of it is appended. False if there was none.

    Raises:
        Unreachable: if it was sent, it may have been carried out; it is not repeated.
    """

    name: str

    def check(self) -> None:
        check_schedule_name(self.name)

    def exchange(self, line: Line) -> Talk[bool]:
        path = f"/v0/schedules/{self.name}"
        return (yield from line.ask("DELETE", path, messages.read_deleted, writes=True)).deleted


class ListSchedulesCall(Call[Sequence[Schedule]], frozen=True, eq=False):
    """Every schedule whose name starts so, ascending by name."""

    prefix: str = ""

    def check(self) -> None:
        if not isinstance(self.prefix, str):
            raise invalid("prefix", f"must be a string, not {json_kind(self.prefix)}")

    def look(self, engine: Engine) -> Sequence[Schedule]:
        return [value_of(engine.schedules.state(name)) for name in engine.schedules.names(self.prefix)]

    def exchange(self, line: Line) -> Talk[Sequence[Schedule]]:
        return ask_all(line, "/v0/schedules", _read_list, "schedules", {"prefix": self.prefix})
