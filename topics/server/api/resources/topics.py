"""Topics themselves: put, state, list, delete (http-api 3). A config alone of all bodies refuses unknown fields."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs
import trio

from topics.engine.commands import DeleteTopic, PutMode
from topics.engine.replies import TopicDeleted, TopicPut, TopicState
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import ROUTERS_REMOVED_MAX
from topics.server.api import schemas as s
from topics.server.api.bodies.writes import decode_put
from topics.server.api.call import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, HandlerCall, text_of
from topics.server.api.message import Answer
from topics.server.api.resources.records import check_dead_letter
from topics.server.api.routes import WRITE_ERRORS, Body, Route
from topics.server.auth.scopes import Names

_SLICE: Final = 50  # topics of a list between two checkpoints: about a millisecond


async def put_topic(call: HandlerCall) -> Answer:
    """Create a topic, or replace its whole config; with `replace=false` only create one."""
    name = call.topic()
    replaces = call.flag("replace", default=True)
    return await _put(call, name, PutMode.REPLACE if replaces else PutMode.CREATE)


async def patch_topic(call: HandlerCall) -> Answer:
    """Change the fields that are given of a topic's config."""
    return await _put(call, call.topic(), PutMode.MERGE)


async def _put(call: HandlerCall, name: str, mode: PutMode) -> Answer:
    command = await call.decoded(partial(decode_put, name, call.body, call.site.options.limits, mode=mode))
    check_dead_letter(call.key, command.config, field="dead_letter")
    runtime = call.runtime
    await runtime.let_time_pass(name)
    reply = await runtime.submit(command)
    assert isinstance(reply, TopicPut)
    fields = {"topic": name, "created": reply.created, "config": reply.config.echo()}
    return call.ok(fields, status=201 if reply.created else 200)


async def get_topic(call: HandlerCall) -> Answer:
    """The state of a topic; never creates it."""
    name, touch = call.topic(), call.flag("touch", default=True)
    runtime = call.runtime
    await runtime.mover.catch_up(name)
    await runtime.let_time_pass(name)
    return call.ok(state_fields(runtime.topic_state(name, touch=touch)))


def state_fields(state: TopicState) -> dict[str, object]:
    """A topic's state as JSON values."""
    fields: dict[str, object] = attrs.asdict(state, recurse=False)
    fields["config"] = state.config.echo()
    if state.queue is None:
        del fields["queue"]
    else:
        fields["queue"] = attrs.asdict(state.queue)
    return fields


async def list_topics(call: HandlerCall) -> Answer:
    """One page of the topics, ascending by name."""
    prefix = call.text("prefix")
    after = decode_cursor(call.query.get(b"cursor"))
    size = call.number("page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    touch = call.flag("touch", default=False)
    runtime = call.runtime
    names: list[str] = []
    for seen in call.key.ranges(prefix):
        names += runtime.engine.names(seen, after, size + 1 - len(names))
    listed = []
    for i, name in enumerate(names[:size]):
        if i % _SLICE == _SLICE - 1:
            await trio.lowlevel.checkpoint()
        try:
            state = runtime.topic_state(name, touch=touch)
        except Rejected:
            continue  # its deletion is on its way
        listed.append(
            {
                "topic": name,
                "type": state.type,
                "head_seq": state.head_seq,
                "earliest_seq": state.earliest_seq,
                "evict_floor": state.evict_floor,
                "count": state.count,
                "bytes": state.bytes,
                "durability": state.config.durability.value,
                "durable": state.config.durable,
                "effective_priority": state.effective_priority,
            }
        )
    fields: dict[str, object] = {"topics": listed}
    if len(names) > size:
        fields["next_cursor"] = encode_cursor(names[size - 1])
    return call.ok(fields)


async def delete_topic(call: HandlerCall) -> Answer:
    """Delete a topic with everything in it; an absent one is fine."""
    name, if_empty = call.topic(), call.flag("if_empty", default=False)
    runtime = call.runtime
    await runtime.let_time_pass(name)  # what has expired makes nobody wait for an empty topic
    await runtime.mover.catch_up(*runtime.engine.routers.dests_behind(name))
    reply = await runtime.submit(DeleteTopic(topic=name, if_empty=if_empty))
    assert isinstance(reply, TopicDeleted)
    sees = call.key.sees
    gone = sorted(router for router, other in reply.routers if sees(router) and sees(other))
    fields: dict[str, object] = {"topic": name, "deleted": reply.deleted}
    fields |= {"routers_removed": gone[:ROUTERS_REMOVED_MAX], "routers_removed_count": len(gone)}
    return call.ok(fields)


def encode_cursor(name: str) -> str:
    """What stands for "after this name", opaque to clients."""
    return base64.urlsafe_b64encode(b"1" + name.encode()).decode().rstrip("=")


def decode_cursor(cursor: bytes | None) -> str:
    """The name a cursor stands behind; `""` for none.

    Raises:
        Rejected: invalid_request.
    """
    if cursor is None:
        return ""
    try:
        plain = base64.b64decode(cursor + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if not plain.startswith(b"1"):
            raise invalid("cursor", "is not one of this server's; begin again without it")
        return check_topic_name(text_of("cursor", plain[1:]))
    except (binascii.Error, Rejected):
        raise invalid("cursor", "is not one of this server's; begin again without it") from None


# How it is described.

_CONFIG: Final[Mapping[str, s.Schema]] = {  # of a topic
    "type": s.choice("`queue`: its records are jobs. Never changes", "log", "queue", default="log"),
    "ttl_ms": s.count("Records older than this are expired; 0: never", default=0),
    "cap_records": s.count("Bound on the live records; 0: none", default=0),
    "cap_bytes": s.count("Bound on their stored bytes; 0: none", default=0),
    "discard": s.choice("What a full topic does: evict the oldest, or refuse", "old", "reject", default="old"),
    "durability": s.choice(
        "What a write waits for", "ephemeral", "memory", "disk", "fsync", default="disk"
    ),
    "durable": s.flag("True means `durability: fsync`, unless that is given", default=False),
    "priority": {
        "type": ["integer", "null"], "default": None, "description": "-1000 to 1000, null for none",
    },
    "auto_priority": s.flag("Without a `priority`: derive it from how lately the topic was read", default=True),
    "auto_create": s.flag("Echoed; what a write creates is its own `create`", default=True),
    "idempotency_window_ms": s.count("How long a write's key is remembered", default=120_000),
    "dedup_window_ms": s.count("How long a `dedup_id` is remembered; the idempotency window if not given"),
    "dedup_max_entries": s.count("How many of them", default=100_000),
    "dedupe_node": s.flag("A reader that names its node does not get its own records", default=True),
    "compression": s.choice("Of stored payloads", "none", "gzip", "zstd", default="none"),
    "compression_min_bytes": s.count("Payloads from this size on", default=1024),
    "max_record_bytes": s.count("Lowers the server's limit of a record", default=1 << 20),
    "replicated": s.flag("Replicated topics are not built yet; true in one that an earlier build made", default=False),
    "lease_ms": s.count("Queues: how long a claim holds", default=30_000),
    "claim_jitter_ms": s.count("Queues: spread of claims", default=0),
    "max_deliveries": s.count("Queues: then a job is dead; 0: never", default=0),
    "dead_letter": s.or_null(s.text("Queues: where dead jobs go, another topic", pattern=s.NAME_PATTERN, default=None)),
    "retry_backoff": s.or_null(s.ref("RetryBackoff")),
    "leases_durable": s.flag("Queues: leases are synced", default=False),
    "starvation_ms": s.count("Queues: a job that was ready for longer is starved", default=30_000),
    "starvation_share": s.count("Queues: so many of a hundred jobs handed out are starved ones; 1 to 100", default=10),
    "max_in_flight": s.count("Queues: bound on claimed jobs; 0: none", default=0),
    "max_in_flight_per_key": s.count("Queues: bound on claimed jobs of one key; 0: none", default=0),
    "rate_limit": s.or_null(s.ref("RateLimit")),
    "require_lease_id": s.flag("Queues: settling a job takes its lease id", default=False),
}  # fmt: skip
_ASKED: Final[Mapping[str, s.Schema]] = {  # of a config that is given
    **_CONFIG,
    "replicated": {
        **s.flag("True is refused: replicated topics are not built yet", default=False),
        "const": False,
    },
}


def _without_defaults(fields: Mapping[str, s.Schema]) -> dict[str, s.Schema]:
    """Of fields that may be left out without a default taking their place."""
    return {
        name: {key: value for key, value in schema.items() if key != "default"}
        for name, schema in fields.items()
    }


_EVICT_FLOOR: Final = s.count("1 + the highest seq lost to a cap or the topic's TTL", minimum=1)
_PRIORITY: Final[s.Schema] = {
    "type": "integer",
    "description": "Whose watchers are told first under load: `priority`, or 500 when it was just read and half of that"
    " every 30 s; while its news waits, 100 more a second",
}
_NUMBER: Final[s.Schema] = {"type": "number", "minimum": 1, "description": "Times this"}
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "TopicConfig": {
        **s.object_of("A topic's config. Fields left out have their defaults", **_ASKED),
        "additionalProperties": False,
    },
    "ConfigChanges": {
        **s.object_of("Fields of a topic's config. Those left out stay as they are", **_without_defaults(_ASKED)),
        "additionalProperties": False,
    },
    "RetryBackoff": s.object_of(
        "Queues: when a failed job comes again", "*",
        base_ms=s.count("The first time"), factor=_NUMBER, max_ms=s.count("At most"),
    ),
    "RateLimit": s.object_of(
        "Queues: so many jobs in so long are handed out", "*",
        count=s.count("Jobs", minimum=1), per_ms=s.count("Milliseconds", minimum=1),
    ),
    "FullConfig": s.object_of("A topic's config, every field", "*", **_CONFIG),
    "TopicPut": s.answer_of("", topic=s.TOPIC, created=s.flag("False: it was there"), config=s.ref("FullConfig")),
    "TopicState": s.answer_of(
        "A topic as published", "queue",
        topic=s.TOPIC, type=s.text("`log` or `queue`"), epoch=s.EPOCH, head_seq=s.HEAD, durable_seq=s.DURABLE,
        earliest_seq=s.EARLIEST,
        evict_floor=_EVICT_FLOOR,
        next_seq=s.count("`head_seq` + 1", minimum=1), count=s.LIVE, bytes=s.BYTES, config=s.ref("FullConfig"),
        effective_priority=_PRIORITY, last_write_ts=s.or_null(s.TS), last_read_ts=s.or_null(s.TS),
        queue=s.ref("QueueState"),
    ),
    "QueueState": s.object_of(
        "Jobs of a queue, as of now", "*",
        ready=s.count("May be claimed"), in_flight=s.count("Are leased"), delayed=s.count("Wait for their time"),
        dead_lettered=s.count("Moved to the dead letters since the queue was made"),
        paused=s.flag("Nothing is leased"),
    ),
    "ListedTopic": s.object_of(
        "A topic in a list", "*",
        topic=s.TOPIC, type=s.text("`log` or `queue`"), head_seq=s.HEAD, earliest_seq=s.EARLIEST,
        evict_floor=_EVICT_FLOOR, count=s.LIVE, bytes=s.BYTES,
        durability=s.text("Its class: `ephemeral`, `memory`, `disk` or `fsync`"),
        durable=s.flag("Its class is `fsync`"), effective_priority=_PRIORITY,
    ),
    "TopicList": s.answer_of(
        "Topics, ascending by name", "next_cursor",
        topics=s.list_of(s.ref("ListedTopic"), "One page"), next_cursor=s.text("Give it as `cursor` for the next page"),
    ),
    "TopicDeleted": s.answer_of(
        "", topic=s.TOPIC, deleted=s.flag("False: there was none"),
        routers_removed=s.list_of(
            s.text("A router's name"), "Routers that touched it and went with it, by name; 1000 at most"
        ),
        routers_removed_count=s.count("How many"),
    ),
}  # fmt: skip

_PATH: Final = "/v0/topics/{topic}"
_TOUCH: Final = s.flag_asked("Count this as a read: `last_read_ts` moves")
ROUTES: Final = (
    Route(
        name="put_topic", method=b"PUT", path=_PATH, handler=put_topic, scope="admin", tag="topics",
        body_names=("dead_letter",),
        summary="Create a topic, or replace its whole config",
        text="Fields left out have their defaults, also in a topic that had other values. A number out of range is"
        " clamped and echoed so. With `replace=false` a topic that is there is never changed: 200 if each field that"
        " is given has that value there, else 409 with `detail.differences`: by field, what is `there` and `asked`.",
        query={"replace": s.flag_asked("False: create, and change nothing that is there", default=True)},
        body=Body.OPTIONAL, request="TopicConfig",
        answers={200: ("It was there and has this config now", "TopicPut"), 201: ("Created", "TopicPut")},
        errors=(Code.TOPIC_EXISTS_INCOMPATIBLE, *WRITE_ERRORS),
    ),
    Route(
        name="patch_topic", method=b"PATCH", path=_PATH, handler=patch_topic, scope="admin", tag="topics",
        body_names=("dead_letter",),
        summary="Change fields of a topic's config", text="Fields left out stay as they are. Never creates.",
        body=Body.OPTIONAL, request="ConfigChanges", answers={200: ("It has this config now", "TopicPut")},
        errors=(Code.TOPIC_NOT_FOUND, Code.TOPIC_EXISTS_INCOMPATIBLE, *WRITE_ERRORS),
    ),
    Route(
        name="get_topic", method=b"GET", path=_PATH, handler=get_topic, scope="read", tag="topics",
        summary="The state of a topic", text="Never creates.", query={"touch": _TOUCH},
        answers={200: ("The state", "TopicState")}, errors=(Code.TOPIC_NOT_FOUND,),
    ),
    Route(
        name="list_topics", method=b"GET", path="/v0/topics", handler=list_topics, scope="read", names=Names.SEEN,
        tag="topics",
        summary="The topics, by name",
        query={
            "prefix": s.text("Names that begin so"),
            "page_size": s.count("1000 at most; 0 is the default", default=PAGE_SIZE_DEFAULT),
            "cursor": s.text("`next_cursor` of the page before", minLength=1),
            "touch": _TOUCH,
        },
        answers={200: ("One page", "TopicList")},
    ),
    Route(
        name="delete_topic", method=b"DELETE", path=_PATH, handler=delete_topic, scope="delete", tag="topics",
        summary="Delete a topic with everything in it",
        query={"if_empty": s.flag_asked("Refuse if there is a live record", default=False)},
        answers={200: ("Deleted, or absent before", "TopicDeleted")}, errors=(Code.TOPIC_NOT_EMPTY, *WRITE_ERRORS),
    ),
)  # fmt: skip
