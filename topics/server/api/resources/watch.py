"""Topics watched: what a watch asks, and the sessions and streams of server-sent events (http-api 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

import attrs
import msgspec

from topics.calls.intake import take_nodes
from topics.embed.aio.fetch import Form
from topics.embed.aio.pages import Shown
from topics.embed.aio.watcher import Watched, view_of
from topics.engine.consumers import consumer_state
from topics.engine.engine import Engine
from topics.engine.replies import TopicState
from topics.kernel.checks import clamped, seq_number, whole_number
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_consumer_name, check_topic_name
from topics.kernel.limits import (
    HEARTBEAT_MS,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    READ_LIMIT_DEFAULT,
    WATCH_BATCH_BYTES,
    Limits,
)
from topics.log.reads.diff import DiffQuery
from topics.server.api import events
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import ABSENT, IGNORED_MAX, OpenForm, refusal_of
from topics.server.api.call import HandlerCall, text_of
from topics.server.api.memory import Share
from topics.server.api.message import Answer, Unbounded
from topics.server.api.resources.reads import ReaderIn, shown_form
from topics.server.api.resources.records import match_of
from topics.server.api.routes import Body, Route
from topics.server.api.watching.frames import record_event
from topics.server.api.watching.sessions import SESSION_TTL_MS
from topics.server.api.watching.stream import WatchStream
from topics.server.auth.scopes import Names


class StartIn(msgspec.Struct, gc=False):
    """Where a watch of one topic begins: from 0 if nothing says so."""

    from_seq: Annotated[int | None, s.unsigned("Records above this seq", default=0)] = None
    tail: Annotated[bool | None, s.said("Records that come from now on", default=False)] = None
    consumer: Annotated[
        str | None, s.said("Records that this durable consumer has not read; the watch does not move it")
    ] = None
    epoch: Annotated[
        int | None,
        s.unsigned("The instance that the seq is of; another one gives the tombstone `recreated`"),
    ] = None


class WatchIn(ReaderIn, kw_only=True, gc=False):
    """What is asked of all topics of a watch alike."""

    topics: Annotated[msgspec.Raw, s.said()] = ABSENT
    limit: Annotated[
        int | None,
        s.unsigned("Records of an event, 1000 at most; 0 is the default", default=READ_LIMIT_DEFAULT),
    ] = None
    max_batch_bytes: Annotated[
        int | None,
        s.unsigned(
            "Of an event, 8 MiB at most, 0 is the default; one record fits", default=WATCH_BATCH_BYTES
        ),
    ] = None
    heartbeat_ms: Annotated[
        int | None,
        s.unsigned("A sign of life when so long nothing else was sent; 1000 to 60 000", default=HEARTBEAT_MS),
    ] = None
    consistency: Annotated[
        str | None,
        s.said(
            "`eventual`: records as they are written. `strong`: as they are durable",
            enum=["eventual", "strong", None],
            default="eventual",
        ),
    ] = None


_watch: Final = OpenForm(WatchIn)
_start: Final = OpenForm(StartIn)
_topics: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@attrs.frozen
class WatchRequest:
    """A watch as asked, every field checked. `ignored`: names in the body that nobody knows."""

    starts: Mapping[str, StartIn]
    asked: DiffQuery
    form: Form
    heartbeat_ms: int
    ignored: Sequence[str]


def decode_watch(body: bytes, limits: Limits) -> WatchRequest:
    """Raises `Rejected(invalid_request)`, naming the field."""
    asked, ignored = _watch.decode(body)
    starts, unknown = decode_starts(asked.topics, limits)
    return watch_request(asked, starts, limits, [*ignored, *unknown])


def watch_request(
    asked: WatchIn, starts: Mapping[str, StartIn], limits: Limits, ignored: Sequence[str]
) -> WatchRequest:
    """With the starts of its topics. Raises `Rejected(invalid_request)`, naming the field."""
    if asked.consistency not in (None, "eventual", "strong"):
        raise invalid("consistency", f"must be eventual or strong, not {asked.consistency!r:.40}")
    batch_bytes = whole_number("max_batch_bytes", asked.max_batch_bytes or 0) or WATCH_BATCH_BYTES
    heartbeat_ms = HEARTBEAT_MS if asked.heartbeat_ms is None else asked.heartbeat_ms
    return WatchRequest(
        starts=starts,
        asked=DiffQuery(
            topic="",
            limit=min(whole_number("limit", asked.limit or 0) or READ_LIMIT_DEFAULT, limits.read_limit),
            nodes=take_nodes(asked.node, limits),
            match=match_of(asked.match, limits),
            bytes_max=min(batch_bytes, limits.page_bytes),
            durable_only=asked.consistency == "strong",
        ),
        form=shown_form(asked),
        heartbeat_ms=clamped("heartbeat_ms", heartbeat_ms, low=HEARTBEAT_MS_MIN, high=HEARTBEAT_MS_MAX),
        ignored=ignored[:IGNORED_MAX],
    )


def decode_starts(text: msgspec.Raw, limits: Limits) -> tuple[dict[str, StartIn], list[str]]:
    """Where each topic begins, and names that nobody knows."""
    if text is ABSENT:
        raise invalid("topics", 'is missing: name at least one topic, as {"quakes": {"tail": true}}')
    try:
        found = _topics.decode(text)
    except msgspec.DecodeError as error:
        raise refusal_of(error, bytes(text), field="topics") from None
    if not found:
        raise invalid("topics", "name at least one topic")
    if len(found) > limits.watch_topics:
        raise invalid(
            "topics",
            f"{len(found)} are more than the limit of {limits.watch_topics}; make several watches",
            limit=limits.watch_topics,
        )
    starts: dict[str, StartIn] = {}
    ignored: list[str] = []
    for name, start in found.items():
        check_topic_name(name)
        try:
            form, unknown = _start.decode(bytes(start))
            check_start(form)
        except Rejected as refused:
            raise _of_topic(name, refused) from None
        starts[name] = form
        ignored += [f"topics.{name}.{one}" for one in unknown]
    return starts, ignored


def _of_topic(name: str, refused: Rejected) -> Rejected:
    """What was said of a start, or of a field in it, naming the topic that it is of."""
    field = refused.detail["field"]
    place = f"topics.{name}" if field == "body" else f"topics.{name}.{field}"
    what = refused.message.removeprefix(f"{field}: ")
    return Rejected(refused.code, f"{place}: {what}", **{**refused.detail, "field": place})


def check_start(start: StartIn) -> None:
    """Raises `Rejected(invalid_request)`: two starts, a bad name, or a wrong number."""
    values = (("from_seq", start.from_seq), ("tail", start.tail or None), ("consumer", start.consumer))
    given = [name for name, value in values if value is not None]
    if len(given) > 1:
        raise invalid(given[1], f"give one of from_seq, tail and consumer, not also {given[0]}")
    if start.consumer is not None:
        check_consumer_name(start.consumer)
    seq_number("from_seq", start.from_seq or 0)
    whole_number("epoch", start.epoch or 0)


class WatchedPlace(NamedTuple):
    """A topic as it stands, and where its watch begins."""

    state: TopicState
    from_seq: int
    epoch: int


def find_topics(engine: Engine, starts: Mapping[str, StartIn], *, lenient: bool) -> dict[str, WatchedPlace]:
    """The topics that are watched. `lenient`: without those that are not there, if any is.

    Raises:
        Rejected: topic_not_found, consumer_not_found.
    """
    found: dict[str, WatchedPlace] = {}
    missing: Rejected | None = None
    for name, start in starts.items():
        try:
            state = engine.topic_state(name)
        except Rejected as refused:
            if refused.code is not Code.TOPIC_NOT_FOUND or not lenient:
                raise
            missing = refused
            continue
        from_seq = state.head_seq if start.tail else seq_number("from_seq", start.from_seq or 0)
        if start.consumer is not None:
            from_seq = consumer_state(engine.catalog, name, start.consumer).from_seq
        found[name] = WatchedPlace(state, from_seq, state.epoch if start.epoch is None else start.epoch)
    if missing is not None and not found:
        raise missing
    return found


def subscription_of(request: WatchRequest, place: WatchedPlace, shown: Shown) -> Watched:
    """One topic of the watch."""
    return Watched(
        place.state.topic,
        view_of(request.asked, request.form, shown),
        from_seq=place.from_seq,
        epoch=place.epoch,
        head_seq=place.state.head_seq,
    )


def started_fields(one: Watched, state: TopicState) -> dict[str, int]:
    """What is said of a topic when its watch begins."""
    return {
        "from_seq": one.cursor,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "epoch": state.epoch,
    }


async def begin_watch(call: HandlerCall) -> Answer:
    """A session, which waits for its stream."""
    request = await call.decoded(partial(decode_watch, call.body, call.site.options.limits))
    lenient = call.flag("lenient", default=False)
    for name in request.starts:
        call.key.check_name(name, field="topics")
    await call.runtime.mover.catch_up(*request.starts)
    places = find_topics(call.runtime.engine, request.starts, lenient=lenient)
    subscriptions = [subscription_of(request, place, record_event) for place in places.values()]
    session = call.site.watches().begin(call.key, subscriptions, heartbeat_s=request.heartbeat_ms / 1000)
    fields: dict[str, Any] = {
        "wid": session.wid,
        "stream_url": f"/v0/watch/{session.wid}",
        "session_ttl_ms": SESSION_TTL_MS,
        "topics": {one.topic: started_fields(one, places[one.topic].state) for one in subscriptions},
    }
    return call.ok(fields | ({"ignored": list(request.ignored)} if request.ignored else {}))


async def stream_watch(call: HandlerCall) -> Answer:
    """The events of a session."""
    events.check_accepted(call.head)
    site = call.site
    session = site.watches().find(text_of("wid", call.params[0]), call.key)
    await call.runtime.mover.catch_up(*session.subscriptions)
    stream = WatchStream(
        call.runtime,
        session,
        last_id=call.head.headers.get(b"last-event-id", b""),
        room=Share(site.answers),
        bytes_per_s=site.options.bytes_per_s,
        told_slow=site.told_slow,
    )
    return Answer(
        200,
        Unbounded(stream, stream.cut, stream.lent),
        content_type=events.MEDIA_TYPE.encode(),
        headers=events.HEADERS,
    )


# How it is described.

_EVENTS_SAID: Final = (
    "First `retry: 2000`. `record`: `topic`, `records`, `from_seq`, `to_seq`, `head_seq`; its records are those above"
    " `from_seq` up to `to_seq`, without those deleted or left out. `tombstone`: `topic`, `reason`, `gap_from`,"
    " `gap_to`, `earliest_seq`, `head_seq`, `epoch`: these are lost. `caught-up`: `topic`, `head_seq`, `durable_seq`."
    " `topic-deleted`: `topic`, `head_seq`, `reason`. `error`: `code`, `error`, `reason`, perhaps `retry_after_ms` and"
    " `topics`; with `topics` it is of those, and of `code` 429 only a delay, else it is the last event. Comments are"
    " signs of life. `id` says how far the watch has come: give it back as `Last-Event-ID`"
)
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "WatchStart": s.form_of("Where to begin: one of `from_seq`, `tail`, `consumer`; else from 0", StartIn),
    "Watch": {
        **s.form_of(
            "Topics, and what is asked of all of them", WatchIn,
            topics={
                "type": "object", "additionalProperties": s.ref("WatchStart"), "minProperties": 1,
                "description": "Where to begin, by topic; 256 topics at most",
            },
        ),
        "required": ["topics"],
    },
    "WatchBegun": s.answer_of(
        "A watch. Ask for `stream_url` before `session_ttl_ms` are over", "ignored",
        wid=s.text("Its id: whoever knows it can read the stream"), stream_url=s.text("Where its events are"),
        session_ttl_ms=s.count("How long it stays without a stream"),
        topics={
            "type": "object", "description": "By topic",
            "additionalProperties": s.object_of(
                "", "*", from_seq=s.count("Where it begins, exclusive"), head_seq=s.HEAD, earliest_seq=s.EARLIEST,
                epoch=s.EPOCH,
            ),
        },
        ignored=s.IGNORED,
    ),
    "WatchEvents": {"type": "string", "contentMediaType": events.MEDIA_TYPE, "description": _EVENTS_SAID},
}  # fmt: skip
ROUTES: Final = (
    Route(
        name="begin_watch", method=b"POST", path="/v0/watch", handler=begin_watch, scope="read",
        names=Names.NONE, body_names=("topics",),
        summary="Watch topics: a session, whose events are a stream",
        text="The session keeps how far the stream has come in each topic, so a client that is cut off asks for the"
        " stream again and misses nothing.",
        query={"lenient": s.flag_asked("Leave out topics that are not there", default=False)},
        body=Body.REQUIRED, request="Watch", answers={200: ("The session", "WatchBegun")},
        errors=(Code.TOPIC_NOT_FOUND, Code.CONSUMER_NOT_FOUND),
    ),
    Route(
        name="stream_watch", method=b"GET", path="/v0/watch/{wid}", handler=stream_watch, scope="read",
        names=Names.NONE,
        summary="The events of a watch, as server-sent events",
        text="Begins where the last stream of the session ended, or where `Last-Event-ID` says, if that is not further."
        " A second stream of a session ends the first.",
        headers={"Last-Event-ID": s.text("The `id` of the last event that arrived")},
        answers={200: ("Events, one after another", "WatchEvents")}, media=(events.MEDIA_TYPE,),
        errors=(Code.NOT_FOUND, Code.NOT_ACCEPTABLE),
    ),
)  # fmt: skip
