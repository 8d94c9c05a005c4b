"""Records: write, diff, delete (http-api 4 to 6)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import msgspec
import trio

from topics.codec.wire import spliced_page
from topics.embed.intake import key_bytes
from topics.embed.page import tombstone_fields
from topics.engine.replies import Appended, RecordsDeleted
from topics.kernel.errors import Code, Rejected
from topics.log.diff import DiffPlan
from topics.log.waiting import news_since, passed_since, start_of, waits_on
from topics.server.api.bodies import decode_write
from topics.server.api.call import DECODED_INLINE_BYTES_MAX, Call, text_of
from topics.server.api.message import Answer
from topics.server.api.queries import Reading, decode_delete, decode_reading

_PERFORMANCE: Final = b',"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
_BOOL: Final = (b"false", b"true")


async def write_records(call: Call) -> Answer:
    """Append records, all or nothing."""
    name = call.topic()
    return_seqs = call.flag("return_seqs", default=True)
    options = call.site.options
    decode = partial(
        decode_write, name, call.body, options.limits, auto_create=options.auto_create, known=call.site.labels
    )
    wish = decode() if len(call.body) <= DECODED_INLINE_BYTES_MAX else await call.decoded(decode)
    call.body = b""  # it is decoded: nobody holds it while the write waits
    del decode
    command = wish.command
    header = call.head.headers.get(b"idempotency-key")
    if header is not None and command.idempotency_key is None:
        key = key_bytes(text_of("idempotency-key", header), options.limits)
        command = msgspec.structs.replace(command, idempotency_key=key)
    runtime = call.runtime
    reply, (write_ms, sync_ms) = await runtime.append(command)
    body = appended_json(name, reply, with_seqs=return_seqs and wish.return_seqs)
    if wish.ignored:
        body += _ignored_json(wish.ignored)
    total_ms = (time.perf_counter() - call.started) * 1000
    took = _PERFORMANCE % (total_ms, write_ms, sync_ms)
    return Answer(201 if reply.created else 200, body + took)


def _ignored_json(names: Sequence[str]) -> bytes:
    """The member `ignored`, with its leading comma."""
    return b',"ignored":' + msgspec.json.encode(names)


def appended_json(topic: str, reply: Appended, *, with_seqs: bool) -> bytes:
    """The answer to a write, but for its end: a format string, because it is made once a write."""
    same = reply.same_body
    return (
        b'{"topic":"%b","first_seq":%b,"last_seq":%b%b,"head_seq":%d,"durable_seq":%d,"count":%d%b,"created":%b,"deduped":%b%b'
        % (
            topic.encode(),  # a checked name has nothing to escape
            b"null" if reply.first_seq is None else b"%d" % reply.first_seq,
            b"null" if reply.last_seq is None else b"%d" % reply.last_seq,
            b',"seqs":[%b]' % ",".join(map(str, reply.seqs)).encode() if with_seqs else b"",
            reply.head_seq,
            reply.durable_seq,
            reply.count,
            b',"duplicates":%d' % reply.duplicates if reply.duplicates else b"",
            _BOOL[reply.created],
            _BOOL[reply.deduped],
            b"" if same is None else b',"same_body":' + _BOOL[same],
        )
    )


async def diff_records(call: Call) -> Answer:
    """One page, waited for if asked."""
    name = call.topic()
    reading = await call.decoded(partial(decode_reading, name, call.body, call.site.options.limits))
    if reading.consumer is not None:
        call.runtime.engine.topic_state(name)  # 404 topic_not_found first
        raise Rejected(
            Code.CONSUMER_NOT_FOUND, f"topic {name!r} has no consumer {reading.consumer!r:.80}", topic=name
        )
    plan, records = await call.runtime.read(reading.query, reading.form, call.peer.room)
    if reading.wait_ms and waits_on(plan):
        plan, records = await _long_poll(call, reading, plan, records)
        if plan.seqs:
            _observe_delivery(call, name)
    return page_answer(call, reading, plan, records)


async def _long_poll(call: Call, reading: Reading, plan: DiffPlan, records: bytes) -> tuple[DiffPlan, bytes]:
    """Until there is something to say or the time is over. Seqs passed meanwhile stay in the account."""
    runtime, query, first = call.runtime, reading.query, plan
    deadline = trio.current_time() + reading.wait_ms / 1000
    passed = plan.account
    with trio.CancelScope() as patience:
        async with call.peer.watch():
            # Earlier answers are sent by now: no deadline of this one may break off in the middle of them.
            patience.deadline = deadline
            while waits_on(plan) and not (call.site.draining or runtime.closing):
                if not _has_news(call, plan):
                    await runtime.hub.wait(query.topic)
                if query.from_ts is None:
                    query = attrs.evolve(query, from_seq=plan.next_from_seq, epoch=plan.epoch)
                    plan, records = await runtime.read(query, reading.form, call.peer.room)
                    passed = passed_since(passed, first, plan)
                else:  # which seq a time stands for may still change
                    plan, records = await runtime.read(query, reading.form, call.peer.room)
                    first, passed = plan, plan.account
    ended = call.site.draining or runtime.closing
    # A page that was found as the time ran out, or as the peer ended its side, is still one.
    if waits_on(plan) and not ended:
        last = attrs.evolve(query, from_ts=None, from_seq=plan.next_from_seq, epoch=plan.epoch, limit=0)
        plan, records = runtime.engine.plan_diff(last), b"[]"
        passed = passed_since(passed, first, plan)
    return attrs.evolve(plan, from_seq=start_of(first, plan), account=passed), records


def _has_news(call: Call, plan: DiffPlan) -> bool:
    """True if something happened to the topic since the plan was made, which nobody will tell again."""
    return not waits_on(call.runtime.engine.plan_diff(news_since(plan)))


def _observe_delivery(call: Call, topic: str) -> None:
    """How long what was waited for took from its write to here."""
    engine = call.runtime.engine
    with suppress(Rejected):  # it may be gone since
        last_write_ts = engine.topic_state(topic).last_write_ts
        if last_write_ts is not None:
            call.site.metrics.observe_delivery((engine.now_ms() - last_write_ts) / 1000)


def page_answer(call: Call, reading: Reading, plan: DiffPlan, records: bytes) -> Answer:
    body = spliced_page(
        records,
        topic=plan.topic,
        epoch=plan.epoch,
        from_seq=plan.from_seq,
        next_from_seq=plan.next_from_seq,
        head_seq=plan.head_seq,
        durable_seq=plan.durable_seq,
        earliest_seq=plan.earliest_seq,
        tombstone=None if plan.gap is None else tombstone_fields(plan.gap),
        account=attrs.asdict(plan.account) if reading.account else None,
    )
    body = body[:-1] + _ignored_json(reading.ignored) if reading.ignored else body[:-1]
    total_ms = (time.perf_counter() - call.started) * 1000
    scanned = plan.next_from_seq - plan.from_seq
    return Answer(
        200,
        b'%b,"performance":{"server_total_ms":%.3f,"records_scanned":%d}}' % (body, total_ms, scanned),
    )


async def delete_records(call: Call) -> Answer:
    """Delete records for good, by seq, by tag, or both."""
    name = call.topic()
    command, ignored = await call.decoded(partial(decode_delete, name, call.body, call.site.options.limits))
    runtime = call.runtime
    await runtime.let_time_pass(name)
    reply = await runtime.submit(command)
    assert isinstance(reply, RecordsDeleted)
    return call.ok(attrs.asdict(reply) | ({"ignored": ignored} if ignored else {}))
