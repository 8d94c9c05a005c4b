"""What became of a record, a job, or what a reader has not got: by the log, which a thread reads (decision 102).

The engine is asked first, for it alone knows an ephemeral topic's records. What the log tells is then looked for in the
files, as `topics why` does beside a server: one request at a time, so much of the log and so long at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from topics.audit.why.kept_log import Budget
from topics.audit.why.standing import Reader
from topics.audit.why.words import with_words
from topics.codec.why import AfterRestore, Before, Event, LogTold, Part, Standing, Told, Wait, Why, WhyRange
from topics.embed.why import of_range, of_seq, reader_of
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import U64_MAX, WHY_MS_MAX, WHY_WAITING_MAX
from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.auth.keys import Key

T = TypeVar("T")


async def why(call: HandlerCall) -> Answer:
    """Of one seq, or of a reader's range; with `words`, in sentences too."""
    in_words = call.flag("words", default=False)
    name, opened = call.topic(), call.runtime.opened
    if (b"seq" in call.query) == (b"from_seq" in call.query):
        raise invalid("seq", "give seq, of one record or job, or from_seq, of a reader")
    found: Why | WhyRange
    budget = partial(_budget, call.site.options.why_log_bytes_max)
    if b"seq" in call.query:
        seq = call.number("seq", default=0, most=U64_MAX)
        found = _seen(await _off_the_loop(call, of_seq(opened, name, seq, budget)), call.key)
    else:
        from_seq = call.number("from_seq", default=0, most=U64_MAX)
        to_seq = call.number("to_seq", default=0, most=U64_MAX) or None
        found = await _off_the_loop(call, of_range(opened, name, from_seq, to_seq, _reader(call), budget))
    return call.ok(msgspec.to_builtins(with_words(found) if in_words else found))


def _budget(bytes_max: int) -> Budget:
    until = time.monotonic() + WHY_MS_MAX / 1000
    return Budget(bytes_max, lambda: time.monotonic() > until)


def _reader(call: HandlerCall) -> Reader:
    """Who reads: `node`, and `match` as a tag or as the JSON of a match."""
    node, match = call.text("node"), call.text("match")
    asked: object = match
    if match.startswith("["):
        try:
            asked = msgspec.json.decode(match)
        except (msgspec.DecodeError, RecursionError):
            raise invalid("match", "is neither a tag nor the JSON of a match") from None
    return reader_of(node.encode(), asked if match else None)


async def _off_the_loop(call: HandlerCall, ask: Callable[[], T]) -> T:
    """In a thread, one at a time.

    Raises:
        Rejected: throttled: too many wait.
        Corrupt: the files cannot be read now.
    """
    limiter = call.site.looking_back
    if limiter.statistics().tasks_waiting >= WHY_WAITING_MAX:
        raise Rejected(
            Code.THROTTLED, "one question of why is answered at a time, and too many wait; ask again later"
        )
    async with limiter:
        return await call.runtime.threads.run(ask)


def _seen(found: Why, key: Key) -> Why:
    """Without the names of other topics that the key does not see, and without the ids of leases: who holds one may
    settle the job, and who only reads is not given it (nor by peek).
    """

    def without(told: Event | Standing) -> dict[str, None]:
        hidden = ("dest", "source", "router") if isinstance(told, Event) else ("dest",)
        names = ((field, getattr(told, field)) for field in hidden)
        return {field: None for field, name in names if name is not None and not key.sees(name)}

    events = [msgspec.structs.replace(event, lease_id=None, **without(event)) for event in found.events]
    return msgspec.structs.replace(
        found, events=events, now=msgspec.structs.replace(found.now, **without(found.now))
    )


# How it is described.


def _object(text: str, kind: type[msgspec.Struct], **own: s.Schema) -> dict[str, s.Schema]:
    """A value's fields as they are encoded, each by its type. `own`: what its type does not say."""
    names = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
    own = {"words": _SENTENCE} | own
    required = " ".join(one.encode_name for one in msgspec.structs.fields(kind) if one.required)
    fields = {name: own.get(name) or _plain(type_) for name, type_ in names.items()}
    return s.object_of(text, required, **fields)


def _plain(kind: object) -> s.Schema:
    if kind is bool:
        return {"type": "boolean"}
    return {"type": "integer", "minimum": 0} if kind in (int, int | None) else {"type": "string"}


def _answer(text: str, kind: type[msgspec.Struct], **own: s.Schema) -> dict[str, s.Schema]:
    made = _object(text, kind, **own)
    made["properties"] = {**made["properties"], "performance": s.ref("Performance")}
    return made


_SENTENCE: Final = s.list_of(
    {"type": ["string", "integer"]}, "Asked for by `words`: a sentence, in pieces of text and moments in ms"
)
_SENTENCES: Final = s.list_of(
    {"type": "array", "items": {"type": ["string", "integer"]}}, "As `words` of an event"
)
_AS: Final = s.text("As the account of a read has it", enum=["delivered", "lost", "deleted", "expired"])
SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "WhyEvent": _object("Something that happened to it; docs/why.md lists them", Event),
    "WhyWait": _object("What a job waits for", Wait),
    "WhyStanding": _object("How it stands", Standing, waits=s.list_of(s.ref("WhyWait"), "Of a job")),
    "WhyTold": _object("What a reader is told whose cursor is right before it", Told, **{"as": _AS}),
    "WhyLog": _object("What the answer stands on", LogTold, since_ts=s.or_null(s.TS)),
    "WhyBefore": _object("The instance of the name before this one", Before),
    "WhyAfterRestore": _object("The directory was made of a backup, with this head", AfterRestore),
    "WhyPart": _object("Neighbours that ended alike", Part),
    "Why": _answer(
        "What became of one seq", Why, now=s.ref("WhyStanding"), reader=s.ref("WhyTold"), log=s.ref("WhyLog"),
        events=s.list_of(s.ref("WhyEvent"), "In the order of the log"), before=s.ref("WhyBefore"),
        restored=s.ref("WhyAfterRestore"),
        words=_SENTENCES,
    ),
    "WhyRange": _answer(
        "What became of what a reader has not got", WhyRange, log=s.ref("WhyLog"), words=_SENTENCES,
        parts=s.list_of(s.ref("WhyPart"), "Each seq is in one of them, ascending"),
        restored=s.ref("WhyAfterRestore"),
    ),
    "WhyAnswer": {"anyOf": [s.ref("Why"), s.ref("WhyRange")]},
}  # fmt: skip

ROUTES: Final = (
    Route(
        name="why", method=b"GET", path="/v0/topics/{topic}/why", handler=why, scope="read", tag="operations",
        summary="What became of a record or a job, or of what a reader has not got",
        text="With `seq` of one, with `from_seq` of each above it. By the log: 64 MiB of it are looked at, the newest"
        " first, and for two seconds; what was not looked at is said.",
        query={
            "seq": s.count("Of this one", minimum=1),
            "from_seq": s.count("Of each above this one: a reader's cursor"),
            "to_seq": s.count("Up to this one; 0: the head, or so many as a read looks at"),
            "node": s.text("Who reads: the reader's own records are told apart"),
            "match": s.text("What the reader asks for: a tag, or the JSON of a match"),
            "words": s.flag_asked("Say it in sentences, too"),
        },
        answers={200: ("What became of it", "WhyAnswer")},
        errors=(Code.TOPIC_NOT_FOUND, Code.THROTTLED),
    ),
)  # fmt: skip
