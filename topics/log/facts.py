"""What a topic knows, told once: its image, the digest and the topic made of an image again walk these tables.

A row is a field of `TopicImage` by its name. What the folding of frames gives and a start must know again (I-09, I-20)
is a row here, or lies in the slots, which `log.image` keeps whole where no segment has them. A type of topic that knows
more has rows of its own (`log.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from topics.log.dedupe import Result
from topics.log.floors import Reason
from topics.log.reads.consumers import CommittedPosition
from topics.log.routers import Inbound
from topics.log.schedules import schedules_of
from topics.log.topic import Move, Topic


class Fact(NamedTuple):
    """`take`: as an image has it. `give`: makes it the topic's again; None if the topic is made with it, or with its
    slots. `tell`: as the digest has it, where that is another form.
    """

    name: str
    take: Callable[[Topic], Any]
    give: Callable[[Topic, Any], None] | None = None
    tell: Callable[[Topic], Any] | None = None


def _own(name: str) -> Fact:
    """An attribute of the topic."""
    return Fact(name, attrgetter(name), lambda topic, value: setattr(topic, name, value))


def _of_floors(name: str) -> Fact:
    return Fact(name, attrgetter(f"floors.{name}"), lambda topic, value: setattr(topic.floors, name, value))


def _take_reasons(topic: Topic) -> dict[str, int]:
    return {reason.value: seq for reason, seq in sorted(topic.floors.reasons.items())}


def _give_reasons(topic: Topic, reasons: dict[str, int]) -> None:
    topic.floors.reasons = {Reason(reason): seq for reason, seq in reasons.items()}


def _take_results(topic: Topic) -> list[tuple[object, ...]]:
    return [
        (key, r.expires_at, r.digest, r.count, r.first_seq, list(r.duplicates))
        for key, r in topic.results.items()
    ]


def _give_results(
    topic: Topic, results: list[tuple[bytes, int, int, int, int, list[tuple[int, int]]]]
) -> None:
    for key, expires_at, digest, count, first_seq, duplicates in results:
        topic.results.add(key, Result(expires_at, digest, count, first_seq, tuple(duplicates)))


def _give_dedup_ids(topic: Topic, dedup_ids: list[tuple[bytes, int, int]]) -> None:
    for dedup_id, seq, expires_at in dedup_ids:
        topic.dedup_ids.add(dedup_id, seq, expires_at)


def _take_moved_ids(topic: Topic) -> list[tuple[bytes, int]]:
    return topic.dedup_ids.moved()


def _give_moved_ids(topic: Topic, moved: list[tuple[bytes, int]]) -> None:
    for dedup_id, seq in moved:
        topic.dedup_ids.add_moved(dedup_id, seq)


def _take_moves(topic: Topic) -> list[tuple[object, ...]]:
    return [(seq, *move) for seq, move in sorted(topic.moving().items())]


def _give_moves(topic: Topic, moves: list[tuple[int, str, bytes, int, int]]) -> None:
    topic.moves = {seq: Move(dest, reason, deliveries, ts) for seq, dest, reason, deliveries, ts in moves}


def _take_consumers(topic: Topic) -> list[tuple[object, ...]]:
    return [(name, *position) for name, position in topic.consumers.sorted()]


def _give_consumers(topic: Topic, consumers: list[tuple[str, int, int]]) -> None:
    for name, seq, ts in consumers:
        topic.consumers.put(name, CommittedPosition(seq, ts))


def _take_inbound(topic: Topic) -> list[tuple[int, int, int]]:
    return [(router_id, *inbound) for router_id, inbound in sorted(topic.inbound.items())]


def _give_inbound(topic: Topic, inbound: list[tuple[int, int, int]]) -> None:
    topic.inbound = {router_id: Inbound(cursor, total) for router_id, cursor, total in inbound}


# What an image has of every topic.
STANDING: Final = (
    Fact("name", attrgetter("name")),
    Fact("epoch", attrgetter("epoch")),
    Fact("config", lambda topic: topic.config.echo()),
    Fact("head_seq", attrgetter("index.head_seq")),
    Fact("base_seq", attrgetter("index.base_seq")),
    _of_floors("evict_floor"),
    _of_floors("lost_ts"),
    Fact("reasons", _take_reasons, _give_reasons, lambda topic: list(_take_reasons(topic).items())),
    Fact("lost", lambda topic: [tuple(lost) for lost in topic.index.lost]),
    Fact("past", lambda topic: topic.index.past.ranges()),
    _own("delete_below"),
    _own("ceiling"),
    _own("retired_ms"),
    _own("watermark_ms"),
    _own("last_write_ts"),
    # How long a file is, is no state.
    Fact(
        "segments",
        lambda topic: list(topic.segments),
        tell=lambda topic: [msgspec.structs.replace(segment, size=0) for segment in topic.segments],
    ),
    Fact("stored_seq", attrgetter("segments.stored_seq")),
    Fact(
        "schedules",
        lambda topic: topic.schedules.image(),
        lambda topic, image: setattr(topic, "schedules", schedules_of(image)),
        lambda topic: topic.schedules.image() or None,
    ),
    Fact("inbound", _take_inbound, _give_inbound, lambda topic: _take_inbound(topic) or None),
)
# What is remembered of records, and of who has read them. An ephemeral topic's is gone with the process, so its image
# has none of it.
OF_RECORDS: Final = (
    Fact(
        "results",
        _take_results,
        _give_results,
        lambda topic: [(key, tuple(rest)) for key, *rest in _take_results(topic)],
    ),
    Fact(
        "dedup_ids",
        lambda topic: [(dedup_id, *found) for dedup_id, found in topic.dedup_ids.items()],
        _give_dedup_ids,
        lambda topic: topic.dedup_ids.items(),
    ),
    Fact("moved_ids", _take_moved_ids, _give_moved_ids, lambda topic: _take_moved_ids(topic) or None),
    Fact("moves", _take_moves, _give_moves, lambda topic: _take_moves(topic) or None),
    Fact("consumers", _take_consumers, _give_consumers, lambda topic: _take_consumers(topic) or None),
)


def taken(topic: Topic, facts: Iterable[Fact]) -> dict[str, Any]:
    """As an image has them."""
    return {fact.name: fact.take(topic) for fact in facts}


def digest_facts(topic: Topic, facts: Iterable[Fact]) -> dict[str, Any]:
    """As the digest has them: equal for equal states, and only for those. What is told as None is left out."""
    values = ((fact.name, (fact.tell or fact.take)(topic)) for fact in facts)
    return {name: value for name, value in values if value is not None}
