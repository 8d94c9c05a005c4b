"""A page of records, waited for if asked (http-api 5)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import attrs
import msgspec
import trio

from topics.calls.consumers import READERS_MAX, too_many_readers
from topics.calls.intake import take_nodes
from topics.calls.page import tombstone_fields
from topics.codec.json_text import spliced_page
from topics.embed.aio.fetch import Form
from topics.embed.aio.hub import Subscribers
from topics.engine.commands import CommitConsumer
from topics.engine.consumers import consumer_state
from topics.engine.replies import ConsumerCommitted
from topics.kernel.checks import clamped, seq_number, whole_number
from topics.kernel.errors import Code, invalid
from topics.kernel.ids import check_consumer_name
from topics.kernel.limits import READ_LIMIT_DEFAULT, WAIT_MS_MAX, Limits
from topics.log.floors import Reason
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.waiting import news_since, passed_since, start_of, waits_on
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import ABSENT, OpenForm
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.resources.records import ignored_json, match_of
from topics.server.api.routes import WRITE_ERRORS, Body, Route
from topics.server.auth.scopes import needed


class ReaderIn(msgspec.Struct, kw_only=True, gc=False):
    """What a diff and a watch ask alike: which records, and what of each."""

    node: Annotated[
        str | list[str] | None,
        s.said(
            "The reader's own names: records with one of them are left out",
            minLength=1,
            items={"type": "string", "minLength": 1},
            maxItems=64,
        ),
    ] = None
    match: Annotated[msgspec.Raw, s.said(**s.ref("MatchOrNull"))] = ABSENT
    include_tags: Annotated[bool | None, s.said("Give `$tag`", default=False)] = None
    include_meta: Annotated[bool | None, s.said("Give `meta`", default=True)] = None
    include_data: Annotated[bool | None, s.said("Give `data`", default=True)] = None


class DiffIn(ReaderIn, kw_only=True, gc=False):
    """A diff as a client asks it."""

    from_seq: Annotated[int | None, s.unsigned("Records above this seq", default=0)] = None
    from_ts: Annotated[int | None, s.unsigned("Records from this time on, in ms")] = None
    consumer: Annotated[str | None, s.said("Records that this durable consumer has not read")] = None
    epoch: Annotated[
        int | None,
        s.unsigned("The instance that the seq is of; another one gives the tombstone `recreated`"),
    ] = None
    limit: Annotated[
        int | None,
        s.unsigned("Records at most, 1000 at most; 0 is the default", default=READ_LIMIT_DEFAULT),
    ] = None
    max_batch_bytes: Annotated[
        int | None,
        s.unsigned("Of the page, 8 MiB at most, 0 is the default; one record fits", default=1 << 20),
    ] = None
    wait_ms: Annotated[
        int | None, s.unsigned("Wait so long for something to say, 30 000 at most", default=0)
    ] = None
    account: Annotated[bool | None, s.said("Say what became of every seq that was passed", default=False)] = (
        None
    )
    auto_commit: Annotated[
        bool | None,
        s.said(
            "Of `consumer`: it has read the page, which is logged before the answer; takes the scope write, too",
            default=False,
        ),
    ] = None


_diff: Final = OpenForm(DiffIn)
_COMMITS: Final = needed("write")


async def diff_records(call: HandlerCall) -> Answer:
    """One page, waited for if asked."""
    name = call.topic()
    reading = await call.decoded(partial(decode_reading, name, call.body, call.site.options.limits))
    await call.runtime.mover.catch_up(name)
    if reading.consumer is None:
        return page_answer(call, reading, *await _page(call, reading))
    if reading.auto_commit:
        call.key.check_scopes(_COMMITS, "auto_commit")
    return page_answer(call, reading, *await _page_of_consumer(call, reading, reading.consumer))


async def _page(call: HandlerCall, reading: DiffRequest) -> tuple[DiffPlan, bytes]:
    plan, records, told = await call.runtime.pages.read(reading.query, reading.form, call.peer.room)
    if reading.wait_ms and waits_on(plan):
        plan, records = await _long_poll(call, reading, plan, records, told)
        if plan.seqs:
            call.runtime.deliveries.made(plan)
    return plan, records


async def _page_of_consumer(call: HandlerCall, reading: DiffRequest, consumer: str) -> tuple[DiffPlan, bytes]:
    """From where the consumer stands. What is committed is given to one: who has read a page that another reader has
    committed meanwhile, reads the next one.
    """
    runtime, held = call.runtime, call.peer.room.size
    deadline = trio.current_time() + reading.wait_ms / 1000
    meant = reading.query.epoch if reading.auto_commit else None
    for _ in range(READERS_MAX):
        at = consumer_state(runtime.engine.catalog, reading.query.topic, consumer, meant)
        epoch = at.epoch if reading.query.epoch is None else reading.query.epoch
        left_ms = max(int((deadline - trio.current_time()) * 1000), 0)
        query = msgspec.structs.replace(reading.query, from_seq=at.from_seq, epoch=epoch)
        plan, records = await _page(call, attrs.evolve(reading, query=query, wait_ms=left_ms))
        if not reading.auto_commit or plan.next_from_seq <= at.from_seq:
            return plan, records
        commit = CommitConsumer(
            topic=plan.topic,
            consumer=consumer,
            seq=plan.next_from_seq,
            epoch=plan.epoch,
            expected=at.from_seq,
        )
        reply = await runtime.submit(commit)
        assert isinstance(reply, ConsumerCommitted)
        if reply.moved:
            return plan, records
        call.peer.room.settle(held)
    raise too_many_readers(consumer)


async def _long_poll(
    call: HandlerCall, reading: DiffRequest, plan: DiffPlan, records: bytes, told: int
) -> tuple[DiffPlan, bytes]:
    """Until there is something to say or the time is over. Seqs passed meanwhile stay in the account.

    `told`: how often there had been news before the page that waits was planned, by whomever it was.
    """
    runtime, query, first = call.runtime, reading.query, plan
    deadline = trio.current_time() + reading.wait_ms / 1000
    passed = plan.account
    # Earlier answers may have to be sent first. That goes to its end: how much of a send that is cut off has arrived,
    # nobody knows, so nothing could be sent behind it.
    async with call.waiting():
        with trio.move_on_at(deadline):
            while waits_on(plan) and not (call.site.draining or runtime.closing):
                if query.from_ts is None:  # which seq a time stands for may still change
                    query = msgspec.structs.replace(query, from_seq=plan.next_from_seq, epoch=plan.epoch)
                subscribers: Subscribers | None = None
                if runtime.hub.told == told or not _has_news(call, plan):
                    subscribers = await runtime.hub.wait(query.topic)
                plan, records, told = await runtime.pages.read(
                    query, reading.form, call.peer.room, subscribers
                )
                if query.from_ts is None:
                    passed = passed_since(passed, first, plan)
                else:
                    first, passed = plan, plan.account
    ended = call.site.draining or runtime.closing
    # A page that was found as the time ran out, or as the peer ended its side, is still one.
    if waits_on(plan) and not ended:
        last = msgspec.structs.replace(
            query, from_ts=None, from_seq=plan.next_from_seq, epoch=plan.epoch, limit=0
        )
        plan, records = runtime.engine.plan_diff(last), b"[]"
        passed = passed_since(passed, first, plan)
    return msgspec.structs.replace(plan, from_seq=start_of(first, plan), account=passed), records


def _has_news(call: HandlerCall, plan: DiffPlan) -> bool:
    """True if something happened to the topic since the plan was made, which nobody will tell again."""
    return not waits_on(call.runtime.engine.plan_diff(news_since(plan)))


def page_answer(call: HandlerCall, reading: DiffRequest, plan: DiffPlan, records: bytes) -> Answer:
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
    body = body[:-1] + ignored_json(reading.ignored) if reading.ignored else body[:-1]
    total_ms = (time.perf_counter() - call.started) * 1000
    scanned = plan.next_from_seq - plan.from_seq
    return Answer(
        200,
        b'%b,"performance":{"server_total_ms":%.3f,"records_scanned":%d}}' % (body, total_ms, scanned),
    )


@attrs.frozen(kw_only=True)
class DiffRequest:
    """A diff as asked, every field checked. With a `consumer` it begins where that one stands.

    `ignored`: names in the body that nobody knows.
    """

    query: DiffQuery
    consumer: str | None
    auto_commit: bool
    wait_ms: int
    account: bool
    form: Form
    ignored: Sequence[str]


def decode_reading(topic: str, body: bytes, limits: Limits) -> DiffRequest:
    """A diff's body. Unknown fields are ignored; a field that is null is absent.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    asked, ignored = _diff.decode(body)
    _check_start(asked)
    page_bytes = whole_number("max_batch_bytes", asked.max_batch_bytes or 0) or limits.page_bytes_default
    query = DiffQuery(
        topic=topic,
        from_seq=seq_number("from_seq", asked.from_seq or 0),
        from_ts=None if asked.from_ts is None else seq_number("from_ts", asked.from_ts),
        epoch=None if asked.epoch is None else whole_number("epoch", asked.epoch),
        limit=min(whole_number("limit", asked.limit or 0) or READ_LIMIT_DEFAULT, limits.read_limit),
        nodes=take_nodes(asked.node, limits),
        match=match_of(asked.match, limits),
        bytes_max=min(page_bytes, limits.page_bytes),
    )
    return DiffRequest(
        query=query,
        consumer=None if asked.consumer is None else check_consumer_name(asked.consumer),
        auto_commit=asked.auto_commit or False,
        wait_ms=clamped("wait_ms", asked.wait_ms or 0, low=0, high=WAIT_MS_MAX),
        account=asked.account or False,
        form=shown_form(asked),
        ignored=ignored,
    )


def shown_form(asked: ReaderIn) -> Form:
    """What of each record."""
    return Form(
        include_tags=asked.include_tags or False,
        include_meta=asked.include_meta is not False,
        include_data=asked.include_data is not False,
    )


def _check_start(asked: DiffIn) -> None:
    starts = [name for name in ("from_seq", "from_ts", "consumer") if getattr(asked, name) is not None]
    if len(starts) > 1:
        raise invalid(starts[1], f"give one of from_seq, from_ts and consumer, not also {starts[0]}")
    if asked.auto_commit and asked.consumer is None:
        raise invalid("auto_commit", "goes with a consumer")


# How it is described.


SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Diff": {**s.form_of("A read, from one of `from_seq`, `from_ts` and `consumer`", DiffIn), "allOf": [
        s.not_both("from_seq", "from_ts"), s.not_both("from_seq", "consumer"), s.not_both("from_ts", "consumer"),
        {"anyOf": [{"properties": {"auto_commit": {"not": {"const": True}}}}, s.given("consumer")]},
    ]},
    "Record": {
        **s.object_of(
            "A record. What it has not is left out", "$seq $ts",
            **{"$seq": s.SEQ, "$ts": s.TS, "$node": s.text("Who wrote it"), "$tag": s.text("Its tag, if asked for"),
               "$key": s.text("Its key"), "$content_type": s.text("Of bytes, which are `{\"$bytes\": BASE64}`")},
            data={"description": "Any JSON value, stored and returned byte for byte"}, meta=s.META,
        ),
    },
    "Tombstone": s.object_of(
        "Records in this range are lost, not deleted", "*",
        gap_from=s.SEQ, gap_to=s.SEQ,
        reason=s.text("Why", enum=[reason.value for reason in Reason]),
        missed_estimate=s.count("How many at most"), earliest_seq=s.EARLIEST, head_seq=s.HEAD,
    ),
    "Account": s.object_of(
        "Every seq from `from_seq` (exclusive) to `next_from_seq` is one of these", "*",
        delivered=s.count("In `records`"), lost=s.count("Told by a tombstone"), deleted=s.count("On purpose"),
        expired=s.count("By their own TTL"), own_node=s.count("The reader's own"), filtered=s.count("By `match`"),
    ),
    "Page": s.answer_of(
        "A page of records. Go on from `next_from_seq`; only `caught_up` says that there is no more",
        "account", "ignored",
        topic=s.TOPIC, epoch=s.EPOCH, from_seq=s.count("Where it begins, exclusive"),
        records=s.list_of(s.ref("Record"), "May be empty and not the last"), next_from_seq=s.SEQ, head_seq=s.HEAD,
        durable_seq=s.DURABLE, earliest_seq=s.EARLIEST, caught_up=s.flag("`next_from_seq` is the head"),
        tombstone=s.or_null(s.ref("Tombstone")), lag=s.count("`head_seq` - `next_from_seq`"), account=s.ref("Account"),
        ignored=s.IGNORED,
    ),
}  # fmt: skip

ROUTES: Final = (
    Route(
        name="diff_records", method=b"POST", path="/v0/topics/{topic}/diff", handler=diff_records, scope="read",
        summary="The records above a seq or from a time on, and what became of the others",
        text="Lost records are told by `tombstone`, never by an error. With `wait_ms` it waits for a record, a"
        " tombstone or the end of the topic. From a `consumer` it is read as from its `from_seq`; with `auto_commit` a"
        " page goes to one of those who read so at the same time, at most once: it counts as read before it is sent.",
        body=Body.OPTIONAL, request="Diff", answers={200: ("A page", "Page")},
        errors=(Code.TOPIC_NOT_FOUND, Code.CONSUMER_NOT_FOUND, *WRITE_ERRORS),
    ),
)  # fmt: skip
