"""Admitting a write: what is refused before a seq is assigned, and why (semantics 2.9, 3, http-api 1).

Each check raises `Rejected` with the limit in its detail and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from topics.engine.commands import Append
from topics.engine.lane import Lane
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Discard, TopicConfig, TopicType
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import Limits
from topics.log import retention
from topics.log.kinds import kind_of
from topics.log.topic import Topic

_LANES_PER_MS: Final = 100  # that may be looked at again and again: about 1 % of the loop's time


def check_limits(records: RecordColumns, limits: Limits) -> None:
    """The bounds every topic has. Raises `Rejected` naming the record and the limit."""
    count = len(records.data)
    if count == 0:
        raise invalid("records", "a write has at least one record")
    if count > limits.records_per_write:
        raise Rejected(
            Code.BATCH_TOO_LARGE,
            f"records: {count} records are more than the limit of {limits.records_per_write} a write",
            limit=limits.records_per_write,
        )
    total = records.size_total
    if total > limits.body_bytes:
        raise Rejected(
            Code.PAYLOAD_TOO_LARGE,
            f"records: {total} bytes are more than the limit of {limits.body_bytes} a write",
            limit=limits.body_bytes,
        )


def check_new_config(name: str, new: TopicConfig, lane: Lane | None) -> None:
    """Refuse what is not built yet. A topic that an earlier build made so keeps it, and its config may be set again."""
    present = None if lane is None or lane.topic is None else lane.topic.config
    if new.replicated and (present is None or not present.replicated):
        raise invalid(
            "config.replicated",
            "replicated topics are not built yet, and nothing would be copied anywhere: leave it out, or say false",
        )
    is_queue = new.type is TopicType.QUEUE  # on a log it is inert
    if is_queue and new.dead_letter == name and (present is None or present.dead_letter != name):
        raise invalid("config.dead_letter", f"must name another topic: {name!r} is this topic itself")


def check_creation(command: Append, limits: Limits) -> None:
    """What the topic would refuse once it is there is refused before it is made: a refusal leaves nothing behind."""
    topic = Topic(1, command.topic, 1, command.config)
    check_topic_limits(topic, command.records, limits)
    _check_whole_cap(topic, command.records)


def stored_size(records: RecordColumns) -> int:
    """Stored bytes of `data` + `meta`, which is what `cap_bytes` counts."""
    return records.stored_total


def check_topic_limits(topic: Topic, records: RecordColumns, limits: Limits) -> None:
    config = topic.config
    longest = records.stored_longest
    if longest > config.max_record_bytes:
        raise Rejected(
            Code.RECORD_TOO_LARGE,
            f"topic {topic.name!r}: a record of {longest} bytes is above max_record_bytes {config.max_record_bytes}",
            topic=topic.name,
            limit=config.max_record_bytes,
        )
    if records.priority is not None or records.delay_ms is not None:
        kind_of(topic).check_records(topic, records)
    if records.tag is not None and limits.tags_per_topic:
        labels = topic.index.tags.labels
        if len(labels) + len(records.tag) > limits.tags_per_topic:
            new = {tag for tag in records.tag if tag and tag not in labels}
            if len(labels) + len(new) > limits.tags_per_topic:
                raise Rejected(
                    Code.THROTTLED,
                    f"topic {topic.name!r}: more than {limits.tags_per_topic} distinct tags",
                    topic=topic.name,
                    limit="tags_per_topic",
                    max=limits.tags_per_topic,
                )


class TotalBytes:
    """What all topics store may be so much, 0 for anything.

    Nobody counts it as it goes. Known is what it was when it was last looked at, what was written since, and what waits
    for the topic that is made for it; that is never less than what there is. When that is too much it is looked at
    again, the less often the more topics there are (decision 90).
    """

    __slots__ = ("_held", "_known", "_looked_ms", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known = most  # until the first look
        self._looked_ms: int | None = None
        self._held: dict[Ticket, int] = {}

    def check(self, lanes: Collection[Lane], ticket: Ticket, records: RecordColumns, timer_ms: int) -> None:
        """Raises `Rejected`: these are too much. Of records that move, and are no schedule's, there are no more than
        before.
        """
        assert isinstance(ticket.command, Append)
        if not self._most or not len(records) or (ticket.command.moved and not ticket.firing):
            return
        self._known -= self._held.pop(ticket, 0)  # its turn has come
        size = stored_size(records)
        if not self.fits(lanes, size, timer_ms):
            raise Rejected(
                Code.THROTTLED,
                f"the store holds {self._known} of {self._most} bytes, and {size} more are too many: delete records,"
                " lower a topic's cap, or raise TOPICS_MAX_TOTAL_BYTES",
                limit="total_bytes",
                max=self._most,
            )

    def fits(self, lanes: Collection[Lane], size: int, timer_ms: int) -> bool:
        """Whether there is room for so much more."""
        if not self._most:
            return True
        if self._known + size > self._most:
            rest_ms = len(lanes) // _LANES_PER_MS
            if self._looked_ms is None or timer_ms - self._looked_ms >= rest_ms:
                self._look(lanes)
                self._looked_ms = timer_ms
        return self._known + size <= self._most

    def hold(self, ticket: Ticket, records: RecordColumns) -> None:
        """These were let pass and wait for their topic: else others take the room, and it stays without them."""
        if self._most:
            self._held[ticket] = size = stored_size(records)
            self._known += size

    def add(self, size: int) -> None:
        """So much was written."""
        self._known += size

    def _look(self, lanes: Collection[Lane]) -> None:
        self._held = {one: size for one, size in self._held.items() if not one.done}
        self._known = sum(map(_stored_in, lanes)) + sum(self._held.values())


def _stored_in(lane: Lane) -> int:
    return lane.reserved_bytes + (0 if lane.topic is None else lane.topic.index.live_bytes)


def check_caps(lane: Lane, topic: Topic, records: RecordColumns, now_ms: int) -> None:
    """`discard: reject` refuses here, before any seq: never ack-then-drop."""
    config = topic.config
    if config.discard is not Discard.REJECT or not len(records):
        return
    _check_whole_cap(topic, records)
    count, size = len(records), stored_size(records)
    if not retention.fits(
        topic, records=lane.reserved_records + count, size=lane.reserved_bytes + size, now_ms=now_ms
    ):  # fmt: skip
        raise Rejected(
            Code.TOPIC_FULL,
            f"topic {topic.name!r} is full (discard: reject); delete records or raise its cap",
            topic=topic.name,
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
            head_seq=topic.head_seq,
            earliest_seq=topic.earliest_seq,
        )


def _check_whole_cap(topic: Topic, records: RecordColumns) -> None:
    config, count, size = topic.config, len(records), stored_size(records)
    above = (config.cap_records and count > config.cap_records) or (
        config.cap_bytes and size > config.cap_bytes
    )
    if config.discard is Discard.REJECT and above:
        raise Rejected(
            Code.RECORD_TOO_LARGE,
            f"topic {topic.name!r}: a write of {count} records, {size} bytes is above its whole cap",
            topic=topic.name,
            cap_records=config.cap_records,
            cap_bytes=config.cap_bytes,
        )
