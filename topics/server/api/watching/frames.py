"""The events of a watch, and the ids by which a client says how far it has come (http-api 9).

An id is base64url of JSON: a map of topics to seqs, or to `[seq, epoch]` where a topic was created anew since the watch
began; for a watch of many topics the number of a checkpoint, as `[number]`. The text of a record event is the same for
every watcher but for its id, which comes last, so that it is made once for all of them.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from topics.calls.page import tombstone_fields
from topics.kernel.errors import TopicsError
from topics.kernel.limits import U64_MAX
from topics.log.floors import Gap, Reason
from topics.log.reads.diff import DiffPlan
from topics.log.reads.watching import after_gap
from topics.server.api.errors import STATUS, shown_code
from topics.server.api.events import event

ID_BYTES_MAX: Final = 32 * 1024  # of an id that a client gives back; a head is no larger
_encode: Final = msgspec.json.Encoder().encode
_places: Final = msgspec.json.Decoder(dict[str, int | tuple[int, int]])
_number: Final = msgspec.json.Decoder(tuple[int])


# What a page says, over any transport.


def record_fields(plan: DiffPlan, records: bytes) -> bytes:
    """`records`: a JSON array."""
    return b'{"topic":"%b","records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        plan.topic.encode(),
        records,
        after_gap(plan),
        plan.next_from_seq,
        plan.head_seq,
    )


def gap_fields(plan: DiffPlan, gap: Gap, *, at_connect: bool = False) -> bytes:
    """A tombstone. `at_connect`: a stream begins with it, so a start below the floor is called that (semantics 4)."""
    told = tombstone_fields(gap)
    fields: dict[str, object] = {"topic": plan.topic, "reason": told["reason"]}
    if at_connect and gap.reason is not Reason.RECREATED and gap.gap_to < gap.earliest_seq:
        fields |= {"reason": "from_seq_too_old", "cause": told["reason"]}
    fields |= {name: told[name] for name in ("gap_from", "gap_to", "earliest_seq", "head_seq")}
    return _encode(fields | {"epoch": plan.epoch})


def caught_up_fields(plan: DiffPlan) -> bytes:
    return b'{"topic":"%b","head_seq":%d,"durable_seq":%d}' % (
        plan.topic.encode(),
        plan.head_seq,
        plan.durable_seq,
    )


def deleted_fields(topic: str, head_seq: int) -> bytes:
    return b'{"topic":"%b","head_seq":%d,"reason":"deleted"}' % (topic.encode(), head_seq)


# As events.


def record_event(plan: DiffPlan, records: bytes) -> bytes:
    """All but the id: `Shown`."""
    return event(b"record", record_fields(plan, records))


def topic_error(topic: str, error: TopicsError, *, retry_ms: int) -> bytes:
    """What happened to one topic: 429, and it is tried again, or this was all of it. `code`: the status that the same
    error has as an answer.
    """
    code = shown_code(error)
    fields: dict[str, object] = {"code": STATUS[code], "error": error.message, "reason": code.value}
    if retry_ms:
        fields["retry_after_ms"] = retry_ms
    return event(b"error", _encode(fields | {"topics": [topic]})) + b"\n"


def last_event(status: int, reason: str, message: str) -> bytes:
    """Why the stream ends."""
    return event(b"error", _encode({"code": status, "error": message, "reason": reason})) + b"\n"


# Ids.


def id_of(places: Mapping[str, int | tuple[int, int]]) -> bytes:
    return urlsafe_b64encode(_encode(places)).rstrip(b"=")


@lru_cache(1024)
def id_of_one(topic: str, place: int | tuple[int, int]) -> bytes:
    """Most watches are of one topic, and many of the same."""
    return id_of({topic: place})


def checkpoint_id(number: int) -> bytes:
    return urlsafe_b64encode(b"[%d]" % number).rstrip(b"=")


def parse_id(text: bytes) -> Mapping[str, int | tuple[int, int]] | int | None:
    """Places by topic, or the number of a checkpoint; None if it is neither."""
    if not text or len(text) > ID_BYTES_MAX:
        return None
    try:
        said = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        if said.startswith(b"["):
            return _number.decode(said)[0]
        found = _places.decode(said)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, too
        return None
    numbers = [n for place in found.values() for n in (place if isinstance(place, tuple) else (place,))]
    return found if all(0 <= n <= U64_MAX for n in numbers) else None
