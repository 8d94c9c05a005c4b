"""What `why` has found, in words: the only place that makes them, for the command line and for the dashboard.

`when` writes a moment. Names are given as they are: who prints them makes them safe for a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from topics.codec.why import Event, LogTold, Part, Sentence, Wait, Why, WhyRange
from topics.log.floors import Reason
from topics.log.jobs.rows import EXPIRED

When = Callable[[int], str]
_MARK: Final = (
    "\ud800"  # before and behind a moment in a sentence: half a pair, which no UTF-8 of the log can be
)
_GONE: Final = frozenset({"acked", "moved", "purged", "deleted", "expired", "lost"})
_OF_JOBS: Final = {"in_flight": "in flight", "ready": "ready", "delayed": "delayed", "moving": "on its way"}
_OF_LEASES: Final = frozenset({"claimed", "extended", "lease_ended", "released", "released_all"})
_LOST: Final = {
    "cap": "evicted by the topic's cap",
    "ttl": "older than the topic's ttl",
    "mixed": "to more than one thing",
    "crash": "the machine went down before the disk had it, or it was never written",
    "corrupt": "its bytes in the log were damaged",
    "restart": "it was in memory only, and went with its process",
    "source_trim": (
        "the router's source had lost it before it was forwarded, or had it larger than this topic's max_record_bytes"
    ),
}


def why_lines(found: Why | WhyRange, when: When) -> Sequence[str]:
    """Lines. Of one seq an event each, in the log's order, and how it stands; of a reader's range one for each part."""
    if isinstance(found, Why):
        told = [f"{when(event.ts)}  {_event(event, found.seq, when)}" for event in found.events]
        return told + _standing(found, when)
    asks_on = found.next_from_seq is not None
    return [
        *(f"{_seqs(part.first, part.last)}  {_part(part, when)}" for part in found.parts),
        *_of_range(found, when),
        *([f"that is not all: ask on with --reader {found.next_from_seq}"] if asks_on else []),
    ]


def with_words(found: Why | WhyRange) -> Why | WhyRange:
    """The same, and its words in it."""
    if isinstance(found, Why):
        events = [
            msgspec.structs.replace(event, words=_sentence(_event(event, found.seq, _marked)))
            for event in found.events
        ]
        return msgspec.structs.replace(
            found, events=events, words=[_sentence(text) for text in _standing(found, _marked)]
        )
    parts = [msgspec.structs.replace(part, words=_sentence(_because(part))) for part in found.parts]
    return msgspec.structs.replace(
        found, parts=parts, words=[_sentence(text) for text in _of_range(found, _marked)]
    )


def _marked(ms: int) -> str:
    return f"{_MARK}{ms}{_MARK}"


def _sentence(text: str) -> Sentence:
    return [int(piece) if at % 2 else piece for at, piece in enumerate(text.split(_MARK)) if piece]


def _standing(found: Why, when: When) -> list[str]:
    """How it stands, what it waits for, what a reader is told, and what was not looked at."""
    noun = "job" if found.type == "queue" else "record"
    return [
        f"{noun} {found.seq} {_stands(found, when)}",
        *(_wait(wait, when) for wait in found.now.waits),
        *_restored(found, when), *_repeats(found, when), *_durable(found), *_reader(found), *_limits(found, when),
    ]  # fmt: skip


def _of_range(found: WhyRange, when: When) -> Iterator[str]:
    """What is said of a reader's range beside its parts."""
    yield from _restored(found, when)
    if not found.parts:
        yield f"there is nothing above {found.from_seq}: the head is {found.head_seq}"
    if found.reason == Reason.RECREATED.value:
        yield (
            f"a read from {found.from_seq} is taken for one of an earlier topic of this name: it is told"
            f" [{found.reason}], and begins anew"
        )
    elif found.gap_to is not None:
        yield f"a read from {found.from_seq} begins with a tombstone up to {found.gap_to} [{found.reason}]"
    if found.log.folded_from != "creation" and any(
        part.state in _GONE and part.since is None for part in found.parts
    ):
        yield _removed(found.log, when)


def _event(event: Event, seq: int, when: When) -> str:
    because = f": {event.reason}" if event.reason else ""
    match event.event:
        case "put":
            return _put(event, when)
        case "again":
            return f"named again by a write with idempotency key {event.idempotency_key!r}: its dedup id was known"
        case "copied":
            return f"copied to {_topic(event.dest)} as {event.dest_seq} by {_router(event.router)}"
        case "left_out":
            return _left_out(event)
        case "synced":
            return "synced: the log says that the disk had it by then"
        case "stored":
            return "copied into a segment by a checkpoint"
        case "evicted":
            return _evicted(event, seq)
        case "expired":
            return "expired by its own ttl" + _untold(event)
        case "lost":
            whole = event.first_seq is not None and event.first_seq != event.last_seq
            seqs = f", as all of seqs {event.first_seq} to {event.last_seq}" if whole else ""
            return f"lost{seqs}: {_LOST.get(event.reason or '', event.reason)}"
        case "passed":
            return f"the floor went over it [{event.reason}]: readers are told from here on that it is lost"
    return _job_event(event, because, when)


def _job_event(event: Event, because: str, when: When) -> str:
    node = event.node or ""
    match event.event:
        case "claimed":
            return f"leased by {node} until {when(event.deadline or 0)}"
        case "extended":
            return f"extended by {node} until {when(event.deadline or 0)}"
        case "lease_ended":
            return "the lease ran out"
        case "released" if event.node is None:
            return "given back: it was not sent to anybody, and that counts as no delivery"
        case "released":
            rests = event.ready_at is not None and event.ready_at > event.ts
            again = f", to be ready at {when(event.ready_at or 0)}" if rests else ""
            return f"given back by {node}{because}{again}"
        case "released_all":
            return f"the lease ended, as all of the queue did{because}"
        case "acked":
            return f"acked by {node}: done, and deleted"
        case "named":
            return f"a delete named it{because}; it may have been gone by then"
        case "purged":
            return "deleted by a purge of the queue"
        case "dead_lettered":
            return f"on its way to {_topic(event.dest)}{because}"
        case "moved":
            return "arrived there, and deleted here"
    return f"{event.event}{because}"


def _untold(event: Event) -> str:
    return " (by time alone: the next write or read has a frame say so)" if event.file is None else ""


def _put(event: Event, when: When) -> str:
    said = "put"
    comes_from = event.source_seq is not None
    if comes_from:
        how = f"copied here by {_router(event.router)}" if event.dedup_id is None else "moved here"
        where = event.source or "another topic, seq"
        said += f", {how} from {where} {event.source_seq}"
    if event.first_seq is not None and event.first_seq != event.last_seq:
        said += f" in a write of seqs {event.first_seq} to {event.last_seq}"
    named = (
        ("by node", event.node), ("with idempotency key", event.idempotency_key),
        ("dedup id", None if comes_from else event.dedup_id), ("tag", event.tag), ("key", event.key),
    )  # fmt: skip
    said += "".join(f", {label} {value!r}" for label, value in named if value is not None)
    said += "" if event.priority is None else f", priority {event.priority}"
    said += "" if event.not_before is None else f", not before {when(event.not_before)}"
    return said + ("" if event.expires_at is None else f", to expire at {when(event.expires_at)}")


def _left_out(event: Event) -> str:
    dest = _topic(event.dest)
    said = f"not copied to {dest} by {_router(event.router)}"
    if event.reason is None:
        return f"{said}: its filter left it out, its hops had ended, or it was gone by then"
    larger = f"is larger than max_record_bytes of {dest}"
    return f"{said}, and told there as lost: it was gone or damaged by then, or {larger}"


def _evicted(event: Event, seq: int) -> str:
    if event.reason == "ttl":
        return "older than the topic's ttl, and gone" + _untold(event)
    if event.first_seq is None:
        return "evicted by the topic's cap"
    is_one = event.first_seq == event.last_seq
    seqs = f"seq {event.first_seq}" if is_one else f"seqs {event.first_seq} to {event.last_seq}"
    if seq >= event.first_seq:
        return f"evicted by the topic's cap at once: its own write, {seqs}, is more than that holds"
    return f"evicted by the topic's cap, to make room for {seqs}"


def _stands(found: Why, when: When) -> str:
    now = found.now
    said = _state(found, when)
    if now.deliveries:
        said += f", delivered {now.deliveries} time{'' if now.deliveries == 1 else 's'}"
    if now.reason and now.state in ("ready", "delayed", "in_flight"):
        said += f"; the last failure: {now.reason}"
    return said


def _state(found: Why, when: When) -> str:
    now = found.now
    match now.state:
        case "live":
            expires = "" if now.expires_at is None else f", and expires at {when(now.expires_at)}"
            return f"is there{expires}"
        case "ready":
            return "is ready"
        case "in_flight":
            return f"is in flight: leased by {now.node} until {when(now.deadline or 0)}"
        case "delayed":
            return f"is delayed until {when(now.ready_at or 0)}"
        case "moving":
            return f"is on its way to {_topic(now.dest)}"
        case "acked":
            return f"was acked by {now.node}" if now.node else "was acked"
        case "moved":
            where = "" if now.dest is None and now.dest_seq is None else f" to {_topic(now.dest)}"
            where += "" if now.dest_seq is None else f" as {now.dest_seq}"
            return f"was moved{where}{_death(found)}"
        case "purged":
            return "was deleted by a purge"
        case "deleted" if now.reason is None and found.type == "queue":
            return "is gone: acked, moved, purged or deleted"
        case "deleted":
            return f"was deleted: {now.reason}" if now.reason else "was deleted"
        case "expired":
            return "expired by its own ttl"
        case "lost":
            return f"is lost: {_LOST.get(now.reason or '', now.reason)}"
    if now.state == "unknown":
        return (
            "may be there: the topic is ephemeral, so its records are in no file; ask the server that has it"
        )
    absent = "was never put: no such seq" if found.restored is None else "is not here: no such seq yet"
    return f"{absent}, the head is {found.head_seq}" + _earlier(found, when)


def _death(found: Why) -> str:
    """Why a job went to the dead letters: what its worker said, or that its last lease ran out."""
    reason, before = found.now.reason, None
    for event in found.events:
        if event.event == "dead_lettered":
            break
        if event.event in _OF_LEASES:
            before = event.event
    if reason == EXPIRED.decode() and before == "lease_ended":
        return f": its last lease ran out [{reason}]"
    return f": {reason}" if reason else ""


def _earlier(found: Why, when: When) -> str:
    before = found.before
    if before is None:
        return ""
    until = "" if before.deleted_ts is None else f", deleted at {when(before.deleted_ts)}"
    return f"; the topic is of epoch {found.epoch}, and what epoch {before.epoch} had went with it{until}"


def _wait(wait: Wait, when: When) -> str:
    match wait.on:
        case "delay":
            return f"it waits for its delay to pass, at {when(wait.until or 0)}"
        case "retry":
            return f"it rests behind a failed delivery until {when(wait.until or 0)}"
        case "lease":
            return f"it waits for its worker, until {when(wait.until or 0)}"
        case "move":
            return "it waits to be written where it is going"
        case "paused":
            return "it waits: the queue is paused"
        case "key":
            return f"it waits: other jobs of key {wait.key!r} are in flight or rest"
        case "max_in_flight":
            return "it waits: max_in_flight jobs of the queue are in flight"
        case "rate_limit":
            return f"it waits for the rate limit, until {when(wait.until or 0)}"
        case "turn":
            jobs = "1 ready job comes" if wait.ahead == 1 else f"{wait.ahead} ready jobs come"
            return f"it waits for its turn: {jobs} first"
    return "it waits for a worker to claim it"


def _restored(found: Why | WhyRange, when: When) -> Iterator[str]:
    restored = found.restored
    if restored is None:
        return
    gone = (
        f"whatever had seq {found.seq}"
        if isinstance(found, Why)
        else f"whatever was above {restored.head_seq}"
    )
    yield (
        f"this directory was restored at {when(restored.ts)} to how it was at {when(restored.as_of)}, when the head was"
        f" {restored.head_seq}: {gone} before is gone"
    )


def _repeats(found: Why, when: When) -> Iterator[str]:
    if found.now.repeats_until is not None:
        yield f"a repeat of its write is answered with it until {when(found.now.repeats_until)}, and appends nothing"


def _durable(found: Why) -> Iterator[str]:
    """Of what is there and was put in the log: whether a power cut now would leave it."""
    events = {event.event for event in found.events}
    if found.now.state in _GONE or "put" not in events or found.durability == "fsync":
        return
    if found.log.folded_from == "creation" and not events & {"synced", "stored"}:
        yield "the log does not say yet that the disk has it: a power cut now may take it"


def _reader(found: Why) -> Iterator[str]:
    reader = found.reader
    if reader is None or reader.as_ == "delivered":
        return
    if reader.as_ == "lost":
        gap = f"seqs {reader.gap_from} to {reader.gap_to} are"
        if reader.gap_from == reader.gap_to:
            gap = f"seq {reader.gap_from} is"
        yield f"a reader who comes from {found.seq - 1} is told: {gap} lost [{reader.reason}]"
    elif found.type != "queue":
        yield f"a reader who comes from {found.seq - 1} is told nothing of it, and counts it as {reader.as_}"


def _limits(found: Why, when: When) -> Iterator[str]:
    """What the log that was looked at does not say, and why."""
    log = found.log
    if log.bytes_left:
        yield f"{log.bytes_left} bytes of older log were not looked at; topics why on the directory reads all of it"
    shows_put = any(event.event == "put" for event in found.events)
    shows_end = any(event.event in ("evicted", *_GONE) for event in found.events)
    if log.is_whole or found.now.state in ("unborn", "unknown"):
        return
    if log.bytes_left:
        return
    if found.now.state in _GONE and not shows_end:
        yield _removed(log, when)
    elif found.cold is not None:
        yield f"it lies in the cold tier ({found.cold}), which was not read: topics why --cold-dir names its place"
    elif not shows_put:
        yield "the log of when it was put has been removed (wal_archive keeps what checkpoints have absorbed)"


def _removed(log: LogTold, when: When) -> str:
    by = "" if log.since_ts is None else f": it had ended by {when(log.since_ts)}"
    return f"the log of that time has been removed{by} (wal_archive keeps what checkpoints have absorbed)"


def _part(part: Part, when: When) -> str:
    why = _because(part)
    said = f"{part.as_}: {why}" if why else part.as_
    if part.since is None or part.state not in _GONE:
        return said
    until = "" if part.since == part.until else f" to {when(part.until or 0)}"
    return f"{said}, {when(part.since)}{until}"


def _because(part: Part) -> str:
    if part.as_ == "own_node":
        return "the reader's own"
    if part.as_ == "filtered":
        return "not what the reader asked for"
    if part.state == "lost":
        return _LOST.get(part.reason or "", part.reason or "")
    if part.as_ == "delivered" and part.state in _OF_JOBS:
        return _OF_JOBS[part.state]
    if part.as_ in (part.state, "delivered"):
        return part.reason or ""
    return part.state + (f": {part.reason}" if part.reason else "")


def _seqs(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


# A name that the key of who asks does not see is not in the answer.


def _topic(name: str | None) -> str:
    return "another topic" if name is None else name


def _router(name: str | None) -> str:
    return "a router" if name is None else f"router {name}"
