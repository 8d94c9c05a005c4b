"""Topics watched over a WebSocket: the frames of a stream as messages, and no session (http-api 10).

A connection is one watch, whose topics come and go. A topic that is watched again is watched anew: behind `subscribed`
and `unsubscribed` nothing of what was before is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from topics.embed.aio.watcher import THROTTLED_S, Pushing, Step, Watched
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import Limits
from topics.log.reads.diff import DiffPlan
from topics.server.api import schemas as s
from topics.server.api.bodies.envelope import enveloped
from topics.server.api.bodies.fields import ABSENT, OpenForm
from topics.server.api.errors import error_fields
from topics.server.api.memory import Share
from topics.server.api.ops import Op, OpCall, message_of
from topics.server.api.resources.watch import (
    StartIn,
    WatchIn,
    WatchRequest,
    check_start,
    decode_starts,
    find_topics,
    started_fields,
    subscription_of,
    watch_request,
)
from topics.server.api.watching.frames import caught_up_fields, deleted_fields, gap_fields, record_fields


class SubscribeIn(WatchIn, kw_only=True, gc=False):
    """A watch: of `topics`, or of one `topic`, which is in the envelope, with its start beside it."""

    from_seq: Annotated[int | None, s.unsigned("Of `topic`: records above this seq", default=0)] = None
    tail: Annotated[bool | None, s.said("Of `topic`: records that come from now on", default=False)] = None
    consumer: Annotated[str | None, s.said("Of `topic`: records that this durable consumer has not read")] = (
        None
    )
    epoch: Annotated[int | None, s.unsigned("Of `topic`: the instance that the seq is of")] = None
    lenient: Annotated[bool | None, s.said("Leave out topics that are not there", default=False)] = None


class UnsubscribeIn(msgspec.Struct, kw_only=True, gc=False):
    """Of `topics`, or of one `topic`, which is in the envelope."""

    topics: list[str] | None = None


_subscribe: Final = OpenForm(enveloped(SubscribeIn))
_unsubscribe: Final = OpenForm(enveloped(UnsubscribeIn))


async def subscribe(call: OpCall) -> None:
    """Watch these, too; one that is watched already, from now on like this."""
    limits, session = call.site.options.limits, call.session
    request, lenient = await call.site.decoded(call.size, partial(_request_of, call, limits))
    for name in request.starts:
        session.key.check_name(name, field="topics")
    await call.runtime.mover.catch_up(*request.starts)
    places = find_topics(call.runtime.engine, request.starts, lenient=lenient)
    watch = session.watch
    if watch is None:
        watch = session.watch = Pushing(
            call.runtime,
            sent_as=_messages,
            start=session.start,
            push=session.push,
            push_nowait=session.push_nowait,
            room=Share(call.site.answers),
        )
    if len(watch.subscriptions.keys() | places.keys()) > limits.watch_topics:
        raise Rejected(
            Code.THROTTLED,
            f"topics: a connection watches {limits.watch_topics} at most; open another connection",
            limit="watch_topics",
            max=limits.watch_topics,
        )
    for topic in places:
        await watch.unsubscribe(topic)
    begun = [subscription_of(request, place, _record_message) for place in places.values()]
    fields: dict[str, Any] = {
        "topics": {one.topic: started_fields(one, places[one.topic].state) for one in begun}
    }
    fields |= {"ignored": list(request.ignored)} if request.ignored else {}
    call.answer(lambda: msgspec.json.encode(fields))
    for one in begun:  # what comes of it comes behind the answer
        watch.subscribe(one)


def _request_of(call: OpCall, limits: Limits) -> tuple[WatchRequest, bool]:
    asked, ignored = _subscribe.decode(call.text)
    if asked.topics is ABSENT:
        start = StartIn(asked.from_seq, asked.tail, asked.consumer, asked.epoch)
        check_start(start)
        starts, unknown = {call.topic(): start}, list[str]()
    elif call.has_topic:
        raise invalid("topics", "give one of topic and topics")
    else:
        starts, unknown = decode_starts(asked.topics, limits)
    return watch_request(asked, starts, limits, [*ignored, *unknown]), asked.lenient or False


async def unsubscribe(call: OpCall) -> None:
    """Watch these no more. The answer names those that were watched."""
    asked, ignored = _unsubscribe.decode(call.text)
    if asked.topics is not None and call.has_topic:
        raise invalid("topics", "give one of topic and topics")
    watch = call.session.watch
    names = [call.topic()] if asked.topics is None else asked.topics
    for name in names:
        call.session.key.check_name(name, field="topics")
    gone = [name for name in names if watch is not None and await watch.unsubscribe(name)]
    fields: dict[str, Any] = {"topics": gone} | ({"ignored": ignored} if ignored else {})
    call.answer(lambda: msgspec.json.encode(fields))


def _messages(one: Watched, step: Step) -> Sequence[bytes]:
    topic, plan = one.topic, step.plan
    if step.error is not None:
        around = b'{"topic":"%b",' % topic.encode()
        if step.is_throttled:
            around += b'"retry_after_ms":%d,' % int(THROTTLED_S * 1000)
        return [message_of("error", None, around + error_fields(step.error)[1:])]
    if plan is None:
        gone = deleted_fields(topic, one.head_seq)
        return [message_of("topic_deleted", None, gone)]
    messages: list[bytes] = []
    if plan.gap is not None:
        messages.append(message_of("tombstone", None, gap_fields(plan, plan.gap)))
    if step.text:
        messages.append(step.text)
    if step.turned:
        messages.append(message_of("caught_up", None, caught_up_fields(plan)))
    return messages


def _record_message(plan: DiffPlan, records: bytes) -> bytes:
    """The same for every watcher: `Shown`."""
    return message_of("record", None, record_fields(plan, records))


OPS: Final = (
    Op(name="subscribe", answer="subscribed", scope="read", take=subscribe, body_names=("topics",)),
    Op(name="unsubscribe", answer="unsubscribed", scope="read", take=unsubscribe, body_names=("topics",)),
)
