"""Records written and deleted (http-api 4 and 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import attrs
import msgspec

from topics.calls.intake import key_bytes
from topics.embed.aio.runtime import Runtime
from topics.engine.commands import Append, DeleteRecords
from topics.engine.replies import Appended, RecordsDeleted, Reply
from topics.engine.tickets import Ticket
from topics.kernel.checks import seq_number
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code
from topics.kernel.limits import Limits
from topics.log.reads.match import Match, parse_match
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import ABSENT, OpenForm, plain_value
from topics.server.api.bodies.forms import BODY, MESSAGE, RecordIn, WriteForms, WriteIn
from topics.server.api.bodies.writes import WriteWish, decode_write
from topics.server.api.call import HandlerCall, text_of
from topics.server.api.message import Answer
from topics.server.api.ops import Op, OpCall
from topics.server.api.resources.state import DECODED_INLINE_BYTES_MAX, ServerState
from topics.server.api.routes import WRITE_ERRORS, Body, Ended, Route
from topics.server.auth.keys import Key
from topics.server.auth.scopes import Scope
from topics.store.writer import BatchTiming

_PERFORMANCE: Final = b',"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
_SEQS_AT_ONCE_MAX: Final = 16  # an answer with more may be worth compressing, which is not done at once;
_BYTES_AT_ONCE_MAX: Final = 4096  # so what is likely to have more is not decoded for nothing
_ADMIN: Final = frozenset({Scope.ADMIN})
_BOOL: Final = (b"false", b"true")


async def write_records(call: HandlerCall) -> Answer:
    """Append records, all or nothing."""
    name = call.topic()
    with_seqs = call.flag("return_seqs", default=True)
    runtime = call.runtime
    wish = await decoded_write(call.site, runtime, name, call.body, BODY, call.key)
    call.body = b""  # it is decoded: nobody holds it while the write waits
    reply, took = await runtime.append(_command(call, wish))
    return _written(call, wish, reply, took, with_seqs=with_seqs)


def begin_write(call: HandlerCall, ended: Ended) -> bool:
    """`write_records`, for what its topic takes at once."""
    name, body = call.topic(), call.body
    with_seqs = call.flag("return_seqs", default=True)
    runtime = call.runtime
    bytes_max = _BYTES_AT_ONCE_MAX if with_seqs else DECODED_INLINE_BYTES_MAX
    if len(body) > bytes_max or not runtime.appends_at_once(name):
        return False
    wish = _checked(runtime, name, _decoder(call.site, name, body, BODY)(), call.key)
    call.body = b""  # as above
    if wish.ignored or (with_seqs and len(wish.command.records) > _SEQS_AT_ONCE_MAX):
        return False

    def told(ticket: Ticket, took: BatchTiming) -> None:
        def answer() -> Answer:
            reply = ticket.result()
            assert isinstance(reply, Appended)
            return _written(call, wish, reply, took, with_seqs=with_seqs)

        ended(answer)

    return runtime.begin_now(_command(call, wish), told)


def _command(call: HandlerCall, wish: WriteWish) -> Append:
    """With the idempotency key of the head, if the body has none."""
    command = wish.command
    header = call.head.headers.get(b"idempotency-key")
    if header is not None and command.idempotency_key is None:
        key = key_bytes(text_of("idempotency-key", header), call.site.options.limits)
        return msgspec.structs.replace(command, idempotency_key=key)
    return command


def _written(
    call: HandlerCall, wish: WriteWish, reply: Appended, took: BatchTiming, *, with_seqs: bool
) -> Answer:
    body = written_json(wish, reply, took, call.started, with_seqs=with_seqs and wish.return_seqs)
    return Answer(201 if reply.created else 200, body)


async def publish(call: OpCall) -> None:
    """Append records, all or nothing, over a WebSocket."""
    runtime = call.runtime
    wish = await decoded_write(call.site, runtime, call.topic(), call.text, MESSAGE, call.session.key)
    call.text = b""  # as above
    fields = partial(_published, call, wish)
    await call.submit(await runtime.compressed(wish.command), fields)


def begin_publish(call: OpCall) -> bool:
    """`publish`, for what its topic takes at once."""
    name, runtime = call.topic(), call.runtime
    if not runtime.appends_at_once(name):
        return False
    wish = _checked(runtime, name, _decoder(call.site, name, call.text, MESSAGE)(), call.session.key)
    call.text = b""  # as above
    return call.submit_now(wish.command, partial(_published, call, wish))


def _published(call: OpCall, wish: WriteWish, reply: Reply, took: BatchTiming) -> bytes:
    assert isinstance(reply, Appended)
    return written_json(wish, reply, took, call.started, with_seqs=wish.return_seqs)


async def decoded_write(
    site: ServerState, runtime: Runtime, topic: str, text: bytes, forms: WriteForms, key: Key
) -> WriteWish:
    """A write as it is asked for, decoded in a thread if it is large, that `key` may ask for, and there is room for.

    Raises:
        Rejected: what is wrong with it; forbidden; throttled, and it was not proposed.
    """
    decode = _decoder(site, topic, text, forms)
    size = len(text)
    wish = decode() if size <= DECODED_INLINE_BYTES_MAX else await site.decoded(size, decode)
    return _checked(runtime, topic, wish, key)


def _decoder(site: ServerState, topic: str, text: bytes, forms: WriteForms) -> Callable[[], WriteWish]:
    options = site.options
    return partial(
        decode_write,
        topic,
        text,
        options.limits,
        auto_create=options.auto_create,
        known=site.labels,
        forms=forms,
    )


def _checked(runtime: Runtime, topic: str, wish: WriteWish, key: Key) -> WriteWish:
    """That `key` may ask for, and there is room for."""
    if wish.gives_config:
        key.check_scopes(_ADMIN, "a config in a write")
        check_dead_letter(key, wish.command.config, field="config.dead_letter")
    if wish.skips_pressure:
        key.check_scopes(_ADMIN, "disable_backpressure")
    else:
        runtime.check_pressure(topic)
    return wish


def check_dead_letter(key: Key, config: TopicConfig, *, field: str) -> None:
    """A config names a topic of its own. Raises `Rejected(forbidden)`."""
    if config.dead_letter is not None:
        key.check_name(config.dead_letter, field=field)


def written_json(
    wish: WriteWish, reply: Appended, took: BatchTiming, started: float, *, with_seqs: bool
) -> bytes:
    """The answer to a write. `started`: when it came, by `time.perf_counter`."""
    fields = appended_json(wish.command.topic, reply, with_seqs=with_seqs)
    if wish.ignored:
        fields += ignored_json(wish.ignored)
    return fields + _PERFORMANCE % ((time.perf_counter() - started) * 1000, *took)


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


class DeleteIn(msgspec.Struct, gc=False):
    """A delete as a client asks it."""

    before_seq: Annotated[
        int | None, s.unsigned("Every record below this seq, of those published by now")
    ] = None
    match: Annotated[msgspec.Raw, s.said(**s.ref("MatchOrNull"))] = ABSENT


_delete: Final = OpenForm(DeleteIn)


async def delete_records(call: HandlerCall) -> Answer:
    """Delete records for good, by seq, by tag, or both."""
    name = call.topic()
    command, ignored = await call.decoded(partial(decode_delete, name, call.body, call.site.options.limits))
    runtime = call.runtime
    await runtime.let_time_pass(name)
    reply = await runtime.submit(command)
    assert isinstance(reply, RecordsDeleted)
    return call.ok(attrs.asdict(reply) | ({"ignored": ignored} if ignored else {}))


def decode_delete(topic: str, body: bytes, limits: Limits) -> tuple[DeleteRecords, Sequence[str]]:
    """A delete's body, and the names in it that are ignored because nobody knows them. A field that is null is absent.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    asked, ignored = _delete.decode(body)
    command = DeleteRecords(
        topic=topic,
        before_seq=None if asked.before_seq is None else seq_number("before_seq", asked.before_seq),
        match=match_of(asked.match, limits),
    )
    return command, ignored


def match_of(raw: msgspec.Raw, limits: Limits, *, field: str = "match") -> Match | None:
    """A filter, of a read or a delete. Raises `Rejected(invalid_request)`."""
    asked = None if raw is ABSENT else plain_value(field, raw)
    return None if asked is None else parse_match(asked, tag_bytes_max=limits.tag_bytes, field=field)


def ignored_json(names: Sequence[str]) -> bytes:
    """The member `ignored`, with its leading comma."""
    return b',"ignored":' + msgspec.json.encode(names)


# How it is described.


def _triple(operator: str, of: dict[str, Any]) -> s.Schema:
    items = [{"const": "tag"}, {"const": operator}, of]
    return {"type": "array", "prefixItems": items, "minItems": 3, "maxItems": 3}


SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "NewRecord": s.form_of("A record to write", RecordIn),
    "Write": s.form_of(
        "A write: all of its records or none", WriteIn,
        records=s.list_of(s.ref("NewRecord"), "10 000 at most", minItems=1),
    ),
    "Match": {
        "description": 'A tag, `["tag", "Eq", TAG]`, or `["tag", "Glob", "prefix*"]`',
        "oneOf": [
                {"type": "string", "minLength": 1},
                _triple("Eq", {"type": "string", "minLength": 1}),
                _triple("Glob", {"type": "string", "pattern": "^[^*]*[*]$"}),
        ],
    },
    "MatchOrNull": s.or_null(s.ref("Match")),
    "DeleteRecords": {
        **s.form_of("At least one of the two; both together select what each does", DeleteIn),
        "anyOf": [s.given("before_seq"), s.given("match")],
    },
    "Written": s.answer_of(
        "A write that is as safe as the topic's class says", "seqs", "duplicates", "same_body", "ignored",
        topic=s.TOPIC, first_seq=s.or_null(s.count("Of the appended records; null if all were duplicates")),
        last_seq=s.or_null(s.count("Likewise")), seqs=s.list_of(s.SEQ, "Of each record given, in order"),
        head_seq=s.HEAD, durable_seq=s.DURABLE, count=s.count("Records of this write"),
        duplicates=s.count("Records dropped by their `dedup_id`"), created=s.flag("It created the topic"),
        deduped=s.flag("An earlier write with the same idempotency key answers"),
        same_body=s.flag(
            "Whether that one had the same records. False: these are others, and are not stored"
        ),
        ignored=s.IGNORED,
    ),
    "RecordsDeleted": s.answer_of(
        "", "ignored",
        topic=s.TOPIC, deleted=s.count("How many"), earliest_seq=s.EARLIEST, head_seq=s.HEAD, count=s.LIVE,
        bytes=s.BYTES, ignored=s.IGNORED,
    ),
}  # fmt: skip

OPS: Final = (
    Op(
        name="publish",
        answer="ack",
        scope="write",
        take=publish,
        begin=begin_publish,
        body_names=("config.dead_letter",),
    ),
)
_PATH: Final = "/v0/topics/{topic}"
ROUTES: Final = (
    Route(
        name="write_records", method=b"POST", path=_PATH, handler=write_records, begin=begin_write, scope="write",
        body_names=("config.dead_letter",),
        summary="Append records, all or nothing",
        text="Answered when the topic's class says: `fsync` after the sync that covers it, `disk` and `memory` when the"
        " operating system has it. A retry with the same `idempotency_key` (in the body, or in the header"
        " `Idempotency-Key`) writes nothing.",
        query={"return_seqs": s.flag_asked("Give `seqs`; false here or in the body: no", default=True)},
        headers={"Idempotency-Key": s.text("Used if the body has no `idempotency_key`", minLength=1)},
        body=Body.REQUIRED, request="Write",
        answers={200: ("Written", "Written"), 201: ("Written, and the topic created", "Written")},
        errors=(
            Code.BATCH_TOO_LARGE, Code.RECORD_TOO_LARGE, Code.TOPIC_NOT_FOUND, Code.SEQ_MISMATCH, Code.TOPIC_FULL,
            *WRITE_ERRORS,
        ),
    ),
    Route(
        name="delete_records", method=b"POST", path=f"{_PATH}/delete", handler=delete_records, scope="delete",
        summary="Delete records by seq, by tag, or both",
        text="Of the records published by now; readers pass them silently.",
        body=Body.REQUIRED, request="DeleteRecords", answers={200: ("Deleted for good", "RecordsDeleted")},
        errors=(Code.TOPIC_NOT_FOUND, *WRITE_ERRORS),
    ),
)  # fmt: skip
