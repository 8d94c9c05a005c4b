"""A server as a place to read from: by diff reads, as any client (http-api 5).

The driver asks for the state of each topic and cuts its seqs into ranges; an executor reads a range page by page. A
page that carries a tombstone tells of a loss in time. Which ranges between live records are lost nobody lists, but a
read that no record matches passes 100 000 seqs at a time and stops before each of them: no payload is sent for that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import pyarrow as pa

from topics.audit.columnar.arrow_batches import views_batch
from topics.calls.blocking import Topic
from topics.calls.page import Page
from topics.calls.patience import Patience
from topics.client.client import Client
from topics.engine.replies import TopicState
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.ids import is_internal
from topics.kernel.limits import U64_MAX
from topics.spark.place import (
    DELETED,
    RECREATED,
    WENT_BACK,
    DataLoss,
    Loss,
    ReadBounds,
    ReadForm,
    SeqRange,
    TopicOffsets,
    TopicPart,
)

NO_TAG: Final = "topics.spark: no record has this tag"
PAGE_RECORDS: Final = 10_000
SEQS_MIN: Final = 1000  # of a part: a task costs more than to read these
REACH_MS: Final = 10_000
_log: Final = logging.getLogger("topics.spark")


def connected(
    url: str, token: str | None, patience: Patience | None = None, *, cafile: str | None = None
) -> Client:
    """A client of the server, to be closed. `token`: its key; None: the one that the environment holds.

    `cafile`: PEM certificates to trust, by the same path on every machine.
    """
    patience = patience or Patience(reach_ms=REACH_MS)
    if token is None:
        return Client(url, patience=patience, cafile=cafile)
    return Client.with_key(url, token, patience=patience, cafile=cafile)


@attrs.frozen(kw_only=True)
class RangePart:
    """Seqs [start, stop) of one instance of a topic, and what of them filters leave."""

    topic: str
    epoch: int
    start: int
    stop: int
    bounds: ReadBounds
    size: int


@attrs.frozen(kw_only=True)
class ServerPlace:
    """`topics`: those that are read; none named: those whose whole name the pattern matches."""

    url: str
    token: str | None = attrs.field(repr=False)
    topics: tuple[str, ...]
    pattern: str | None = None
    cafile: str | None = None

    def connected(self) -> Client:
        return connected(self.url, self.token, cafile=self.cafile)

    def look(self) -> ServerView:
        with self.connected() as client:
            names = self.topics or self._matching(client)
            states = {}
            for name in names:
                try:
                    states[name] = client.topic(name).state()
                except Rejected as refused:
                    if refused.code is not Code.TOPIC_NOT_FOUND:
                        raise
        return ServerView(self, states)

    def read(self, parts: Sequence[TopicPart], how: ReadForm) -> Iterator[pa.RecordBatch]:
        """As `Place` says."""
        with self.connected() as client:
            for part in parts:
                assert isinstance(part, RangePart), "a part of another place"
                yield from _batches(client, part, how)

    def _matching(self, client: Client) -> tuple[str, ...]:
        wanted = re.compile(self.pattern or "")
        names = [row.topic for row in client.list() if not is_internal(row.topic)]
        return tuple(name for name in names if wanted.fullmatch(name))


class ServerView:
    """The states of topics. What they do not tell is asked of the server by one client, until the view is closed."""

    def __init__(self, place: ServerPlace, states: Mapping[str, TopicState]) -> None:
        self._place = place
        self._states = states
        self._connected: Client | None = None

    @property
    def _client(self) -> Client:
        if self._connected is None:
            self._connected = self._place.connected()
        return self._connected

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def topics(self) -> Mapping[str, TopicOffsets]:
        return {
            name: TopicOffsets(
                name=name,
                epoch=state.epoch,
                earliest=state.earliest_seq,
                stop=state.head_seq + 1,
                end=state.head_seq + 1,
            )
            for name, state in self._states.items()
        }

    def may_undelete(self) -> bool:
        """A server shows a deletion when it is synced."""
        return False

    def refuse_damage(self, topics: Mapping[str, TopicOffsets]) -> None:
        """A server with a damaged log says so itself, by refusing."""

    def seq_at(self, topic: str, ts_ms: int) -> int:
        """`from_ts` begins at any loss that was *told* since then, such as a repair's, however old what it took was. If
        older records follow, the place is searched for: times never fall.
        """
        reader, stop = self._client.topic(topic), self._states[topic].head_seq + 1
        page = reader.read(from_ts=ts_ms, limit=1)
        if not page.records or page.records[0].ts >= ts_ms:
            return min(page.from_seq + 1, stop)
        older, behind = page.records[0].seq, stop
        while older + 1 < behind:
            middle = (older + behind) // 2
            records = reader.read(from_seq=middle - 1, limit=1).records
            if records and records[0].ts < ts_ms:
                older = records[0].seq
            else:
                behind = middle
        return behind

    def losses(self, wanted: SeqRange) -> Sequence[Loss]:
        """The tombstone of a read from below the floor reaches up to the first live record, over what is deleted and
        what is lost above the floor. So what lies below the floor is asked for by itself.
        """
        floor = min(max(self._states[wanted.topic].evict_floor, wanted.start), wanted.stop)
        both = (attrs.evolve(wanted, stop=floor), attrs.evolve(wanted, start=floor))
        reader = self._client.topic(wanted.topic)
        return [met for part in both for met in _walk(reader, part, match=NO_TAG) if isinstance(met, Loss)]

    def stop_within(self, wanted: SeqRange, bytes_max: int) -> int:
        return min(wanted.stop, wanted.start + max(1, int(bytes_max / self._record_bytes(wanted.topic))))

    def size(self, wanted: SeqRange) -> int:
        return int((wanted.stop - wanted.start) * self._record_bytes(wanted.topic))

    def parts(self, wanted: SeqRange, bounds: ReadBounds, *, target_bytes: int) -> Sequence[RangePart]:
        each = self._record_bytes(wanted.topic)
        start, stop = max(wanted.start, bounds.seq_start), min(wanted.stop, bounds.seq_stop)
        if bounds.ts_ms_min and start < stop:
            start = max(start, self.seq_at(wanted.topic, bounds.ts_ms_min))
        step = max(SEQS_MIN, int(target_bytes / each))
        return [
            RangePart(
                topic=wanted.topic,
                epoch=wanted.epoch,
                start=at,
                stop=min(at + step, stop),
                bounds=bounds,
                size=int((min(at + step, stop) - at) * each),
            )
            for at in range(start, stop, step)
        ]

    def _record_bytes(self, topic: str) -> float:
        """About how many bytes a seq is: of the live records."""
        state = self._states[topic]
        return max(1.0, state.bytes / max(1, state.count))


def _batches(client: Client, part: RangePart, how: ReadForm) -> Iterator[pa.RecordBatch]:
    """The records of a part. Raises `DataLoss` if some are lost."""
    wanted = SeqRange(part.topic, part.epoch, part.start, part.stop)
    first_ms = part.bounds.ts_ms_min
    last_ms = U64_MAX if part.bounds.ts_ms_max is None else part.bounds.ts_ms_max
    for met in _walk(client.topic(part.topic), wanted):
        if isinstance(met, Loss):
            if how.fail_on_loss:
                raise DataLoss(met)
            _log.warning("%s", met)
            continue
        records = [record for record in met.records if wanted.start <= record.seq < wanted.stop]
        views = [
            record._view  # noqa: SLF001 -- a page's records are views in a coat
            for record in records
            if first_ms <= record.ts <= last_ms
        ]
        if views:
            yield views_batch(part.topic, views, how.schema)
        if records and records[-1].ts > last_ms:
            return  # times never decrease


def _walk(topic: Topic, wanted: SeqRange, match: str | None = None) -> Iterator[Page | Loss]:
    """The pages that cover the range, and perhaps more; what of it is lost comes before the page that tells of it."""
    at, last = wanted.start - 1, wanted.stop - 1
    while at < last:
        limit = min(PAGE_RECORDS, last - at)
        try:
            page = topic.read(from_seq=at, limit=limit, epoch=wanted.epoch, match=match)
        except Rejected as refused:
            if refused.code is not Code.TOPIC_NOT_FOUND:
                raise
            yield Loss(wanted.topic, at + 1, last, DELETED)
            return
        if page.epoch != wanted.epoch or page.head_seq <= at:
            yield Loss(wanted.topic, at + 1, last, RECREATED if page.epoch != wanted.epoch else WENT_BACK)
            return
        gap = page.tombstone
        if gap is not None:
            yield Loss(wanted.topic, gap.gap_from, min(gap.gap_to, last), gap.reason.value)
        yield page
        if page.next_from_seq <= at:
            raise Corrupt(f"topic {wanted.topic!r}: the page above seq {at} goes no further, below the head")
        at = page.next_from_seq
