"""Durable consumers: positions that the server keeps for those who read (http-api 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import msgspec

from topics.engine.commands import CommitConsumer, DeleteConsumer, PutConsumer
from topics.engine.consumers import consumer_state, consumer_states
from topics.engine.replies import ConsumerCommitted, ConsumerDeleted, ConsumerPut, ConsumerState
from topics.kernel.checks import seq_number, whole_number
from topics.kernel.errors import Code
from topics.kernel.ids import check_consumer_name
from topics.kernel.limits import CONSUMERS_PER_TOPIC_MAX
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import OpenForm
from topics.server.api.call import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, HandlerCall, text_of
from topics.server.api.message import Answer
from topics.server.api.resources.topics import decode_cursor, encode_cursor
from topics.server.api.routes import WRITE_ERRORS, Body, Route


class ConsumerIn(msgspec.Struct, gc=False):
    """Where a consumer is to stand."""

    from_seq: Annotated[int | None, s.unsigned("It has read up to this seq, the head at most")] = None
    from_ts: Annotated[int | None, s.unsigned("It reads records from this time on, in ms")] = None
    tail: Annotated[bool | None, s.said("It reads records that come from now on", default=False)] = None
    epoch: Annotated[int | None, s.unsigned("The instance that is meant: of another one it is refused")] = (
        None
    )


class CommitIn(msgspec.Struct, gc=False):
    """How far a consumer has read."""

    seq: Annotated[int, s.unsigned("Up to this seq, the head at most")]
    epoch: Annotated[
        int | None, s.unsigned("The instance that it is of: of another one there is no consumer")
    ] = None


async def list_consumers(call: HandlerCall) -> Answer:
    """One page of a topic's consumers, ascending by name."""
    name = call.topic()
    after = decode_cursor(call.query.get(b"cursor"))
    size = call.number("page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    found = consumer_states(call.runtime.engine.catalog, name, after, size + 1)
    fields: dict[str, object] = {"topic": name, "consumers": found[:size]}
    if len(found) > size:
        fields["next_cursor"] = encode_cursor(found[size - 1].consumer)
    return call.ok(fields)


async def get_consumer(call: HandlerCall) -> Answer:
    """Where a consumer stands."""
    return call.ok(_fields(consumer_state(call.runtime.engine.catalog, call.topic(), _consumer(call))))


async def put_consumer(call: HandlerCall) -> Answer:
    """Create a consumer, or move it."""
    name, consumer = call.topic(), _consumer(call)
    asked, ignored = await call.decoded(partial(_put.decode, call.body))
    reply = await call.runtime.submit(
        PutConsumer(
            topic=name,
            consumer=consumer,
            from_seq=None if asked.from_seq is None else seq_number("from_seq", asked.from_seq),
            from_ts=None if asked.from_ts is None else seq_number("from_ts", asked.from_ts),
            tail=asked.tail or False,
            epoch=None if asked.epoch is None else whole_number("epoch", asked.epoch),
        )
    )
    assert isinstance(reply, ConsumerPut)
    return call.ok(_fields(reply, ignored), status=201 if reply.created else 200)


async def commit_consumer(call: HandlerCall) -> Answer:
    """A consumer has read so far."""
    name, consumer = call.topic(), _consumer(call)
    asked, ignored = await call.decoded(partial(_commit.decode, call.body))
    reply = await call.runtime.submit(
        CommitConsumer(
            topic=name,
            consumer=consumer,
            seq=seq_number("seq", asked.seq),
            epoch=None if asked.epoch is None else whole_number("epoch", asked.epoch),
        )
    )
    assert isinstance(reply, ConsumerCommitted)
    return call.ok(_fields(reply, ignored))


async def delete_consumer(call: HandlerCall) -> Answer:
    """Delete a consumer; an absent one is fine."""
    reply = await call.runtime.submit(DeleteConsumer(topic=call.topic(), consumer=_consumer(call)))
    assert isinstance(reply, ConsumerDeleted)
    return call.ok({"topic": reply.topic, "consumer": reply.consumer, "deleted": reply.deleted})


def _consumer(call: HandlerCall) -> str:
    return check_consumer_name(text_of("consumer", call.params[1]))


def _fields(state: ConsumerState, ignored: Sequence[str] = ()) -> dict[str, object]:
    return msgspec.structs.asdict(state) | ({"ignored": ignored} if ignored else {})


_put: Final = OpenForm(ConsumerIn)
_commit: Final = OpenForm(CommitIn)

# How it is described.

_NAME: Final = {"type": "string", "pattern": s.NAME_PATTERN, "description": "A consumer's name"}
_STATE: Final[Mapping[str, s.Schema]] = {
    "consumer": _NAME,
    "topic": s.TOPIC,
    "epoch": s.EPOCH,
    "from_seq": s.count("It has read up to here"),
    "lag": s.count("`head_seq` - `from_seq`"),
    "updated_ts": s.count("Since when it stands there, in ms"),
}
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Consumer": {
        **s.form_of(
            "Where a consumer is to stand: one of `from_seq`, `from_ts` and `tail`. Without any of them it is made at"
            " the beginning, and one that is there stays",
            ConsumerIn,
        ),
        "allOf": [
            s.not_both("from_seq", "from_ts"),
            {"anyOf": [{"properties": {"tail": {"not": {"const": True}}}}, {"not": {"anyOf": [
                s.given("from_seq"), s.given("from_ts"),
            ]}}]},
        ],
    },
    "Commit": s.form_of("How far a consumer has read", CommitIn),
    "ConsumerState": s.answer_of("A consumer", **_STATE),
    "ConsumerPut": s.answer_of(
        "A consumer", "ignored", created=s.flag("False: it was there"), **_STATE, ignored=s.IGNORED
    ),
    "ConsumerCommitted": s.answer_of(
        "A consumer", "ignored", moved=s.flag("False: it stood there or further on"), **_STATE, ignored=s.IGNORED
    ),
    "ListedConsumer": s.object_of("A consumer in a list", "*", **_STATE),
    "ConsumerList": s.answer_of(
        "Consumers of a topic, ascending by name", "next_cursor",
        topic=s.TOPIC, consumers=s.list_of(s.ref("ListedConsumer"), "One page"),
        next_cursor=s.text("Give it as `cursor` for the next page"),
    ),
    "ConsumerDeleted": s.answer_of("", topic=s.TOPIC, consumer=_NAME, deleted=s.flag("False: there was none")),
}  # fmt: skip

_ALL: Final = "/v0/topics/{topic}/consumers"
_ONE: Final = f"{_ALL}/{{consumer}}"
ROUTES: Final = (
    Route(
        name="list_consumers", method=b"GET", path=_ALL, handler=list_consumers, scope="read", tag="consumers",
        summary="The consumers of a topic, by name",
        query={
            "page_size": s.count("1000 at most; 0 is the default", default=PAGE_SIZE_DEFAULT),
            "cursor": s.text("`next_cursor` of the page before", minLength=1),
        },
        answers={200: ("One page", "ConsumerList")}, errors=(Code.TOPIC_NOT_FOUND,),
    ),
    Route(
        name="get_consumer", method=b"GET", path=_ONE, handler=get_consumer, scope="read", tag="consumers",
        summary="Where a consumer stands", answers={200: ("The consumer", "ConsumerState")},
        errors=(Code.TOPIC_NOT_FOUND, Code.CONSUMER_NOT_FOUND),
    ),
    Route(
        name="put_consumer", method=b"PUT", path=_ONE, handler=put_consumer, scope="write", tag="consumers",
        summary="Create a consumer, or move it in either direction",
        text=f"A topic has {CONSUMERS_PER_TOPIC_MAX} of them at most. They end with it.",
        body=Body.OPTIONAL, request="Consumer",
        answers={200: ("It was there, and stands there now", "ConsumerPut"), 201: ("Created", "ConsumerPut")},
        errors=(Code.TOPIC_NOT_FOUND, *WRITE_ERRORS),
    ),
    Route(
        name="commit_consumer", method=b"POST", path=f"{_ONE}/commit", handler=commit_consumer, scope="write",
        tag="consumers", summary="Move a consumer forward to what it has read",
        text="Never back: a seq that is not beyond where it stands changes nothing. One beyond the head is refused."
        " Answered as a write of the topic's class is.",
        body=Body.REQUIRED, request="Commit", answers={200: ("Where it stands", "ConsumerCommitted")},
        errors=(Code.TOPIC_NOT_FOUND, Code.CONSUMER_NOT_FOUND, *WRITE_ERRORS),
    ),
    Route(
        name="delete_consumer", method=b"DELETE", path=_ONE, handler=delete_consumer, scope="delete",
        tag="consumers", summary="Delete a consumer", answers={200: ("Deleted, or absent before", "ConsumerDeleted")},
        errors=(Code.TOPIC_NOT_FOUND, *WRITE_ERRORS),
    ),
)  # fmt: skip
