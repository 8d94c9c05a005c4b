"""Topics themselves: put, state, list, delete (http-api 3)."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Final

import attrs
import trio

from topics.engine.commands import DeleteTopic, PutMode
from topics.engine.replies import TopicDeleted, TopicPut, TopicState
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.server.api.bodies import decode_put
from topics.server.api.call import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, Call, text_of
from topics.server.api.message import Answer

_SLICE: Final = 50  # topics of a list between two checkpoints: about a millisecond


async def put_topic(call: Call) -> Answer:
    """Create a topic, or replace its whole config; with `replace=false` only create one."""
    name = call.topic()
    replaces = call.flag("replace", default=True)
    return await _put(call, name, PutMode.REPLACE if replaces else PutMode.CREATE)


async def patch_topic(call: Call) -> Answer:
    """Change the fields that are given of a topic's config."""
    return await _put(call, call.topic(), PutMode.MERGE)


async def _put(call: Call, name: str, mode: PutMode) -> Answer:
    command = await call.decoded(partial(decode_put, name, call.body, call.site.options.limits, mode=mode))
    runtime = call.runtime
    await runtime.let_time_pass(name)
    reply = await runtime.submit(command)
    assert isinstance(reply, TopicPut)
    fields = {"topic": name, "created": reply.created, "config": reply.config.echo()}
    return call.ok(fields, status=201 if reply.created else 200)


async def get_topic(call: Call) -> Answer:
    """The state of a topic; never creates it."""
    name, touch = call.topic(), call.flag("touch", default=True)
    runtime = call.runtime
    await runtime.let_time_pass(name)
    return call.ok(state_fields(runtime.engine.topic_state(name, touch=touch)))


def state_fields(state: TopicState) -> dict[str, object]:
    """A topic's state as JSON values."""
    fields: dict[str, object] = attrs.asdict(state, recurse=False)
    fields["config"] = state.config.echo()
    return fields


async def list_topics(call: Call) -> Answer:
    """One page of the topics, ascending by name."""
    prefix = call.text("prefix")
    after = decode_cursor(call.query.get(b"cursor"))
    size = call.number("page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    touch = call.flag("touch", default=False)
    runtime = call.runtime
    names = runtime.engine.names(prefix, after, size + 1)
    listed = []
    for i, name in enumerate(names[:size]):
        if i % _SLICE == _SLICE - 1:
            await trio.lowlevel.checkpoint()
        try:
            state = runtime.engine.topic_state(name, touch=touch)
        except Rejected:
            continue  # its deletion is on its way
        listed.append(
            {
                "topic": name,
                "type": state.type,
                "head_seq": state.head_seq,
                "earliest_seq": state.earliest_seq,
                "count": state.count,
                "bytes": state.bytes,
                "durability": state.config.durability.value,
                "durable": state.config.durable,
            }
        )
    fields: dict[str, object] = {"topics": listed}
    if len(names) > size:
        fields["next_cursor"] = encode_cursor(names[size - 1])
    return call.ok(fields)


async def delete_topic(call: Call) -> Answer:
    """Delete a topic with everything in it; an absent one is fine."""
    name, if_empty = call.topic(), call.flag("if_empty", default=False)
    runtime = call.runtime
    await runtime.let_time_pass(name)  # what has expired makes nobody wait for an empty topic
    reply = await runtime.submit(DeleteTopic(topic=name, if_empty=if_empty))
    assert isinstance(reply, TopicDeleted)
    return call.ok(
        {"topic": name, "deleted": reply.deleted, "routers_removed": [], "routers_removed_count": 0}
    )


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
        text = base64.b64decode(cursor + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if not text.startswith(b"1"):
            raise invalid("cursor", "is not one of this server's; begin again without it")
        return check_topic_name(text_of("cursor", text[1:]))
    except (binascii.Error, Rejected):
        raise invalid("cursor", "is not one of this server's; begin again without it") from None
