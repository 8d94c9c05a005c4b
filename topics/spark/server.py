"""A server as a place to read from: by diff reads, as any client (http-api 5).

The driver asks for the state of each topic and cuts its seqs into ranges; an executor reads a range page by page. A
page that carries a tombstone tells of a loss in time. Which ranges between live records are lost nobody lists, but a
read that no record matches passes 100 000 seqs at a time and stops before each of them: no payload is sent for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import pyarrow as pa

from topics.audit.arrow import views_batch
from topics.client.client import Client
from topics.client.patience import Patience
from topics.client.topic import Topic
from topics.embed.page import Page
from topics.engine.replies import TopicState
from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import is_internal
from topics.spark.place import Bounds, DataLoss, Facts, Loss, Part, Range, Reading

NO_TAG: Final = "topics.spark: no record has this tag"
PAGE_RECORDS: Final = 10_000
SEQS_MIN: Final = 1000  # of a part: a task costs more than to read these
REACH_MS: Final = 10_000


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
class Stretch:
    """Seqs [start, stop) of one instance of a topic, and what of them filters leave."""

    topic: str
    epoch: int
    start: int
    stop: int
    bounds: Bounds
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
                    states[name] = client.state(name)
                except Rejected as refused:
                    if refused.code is not Code.TOPIC_NOT_FOUND:
                        raise
        return ServerView(self, states)

    def read(self, parts: Sequence[Part], how: Reading) -> Iterator[pa.RecordBatch]:
        """As `Place` says."""
        with self.connected() as client:
            for part in parts:
                assert isinstance(part, Stretch), "a part of another place"
                yield from _batches(client, part, how)

    def _matching(self, client: Client) -> tuple[str, ...]:
        wanted = re.compile(self.pattern or "")
        names = [row.topic for row in client.list() if not is_internal(row.topic)]
        return tuple(name for name in names if wanted.fullmatch(name))


class ServerView:
    def __init__(self, place: ServerPlace, states: Mapping[str, TopicState]) -> None:
        self._place = place
        self._states = states

    def topics(self) -> Mapping[str, Facts]:
        return {
            name: Facts(
                name=name,
                epoch=state.epoch,
                earliest=state.earliest_seq,
                stop=state.head_seq + 1,
                end=state.head_seq + 1,
            )
            for name, state in self._states.items()
        }

    def refuse_damage(self, topics: Mapping[str, Facts]) -> None:
        """A server with a damaged log says so itself, by refusing."""

    def seq_at(self, topic: str, ts_ms: int) -> int:
        with self._place.connected() as client:
            page = client.topic(topic).read(from_ts=ts_ms, limit=1)
        return min(page.from_seq + 1, self._states[topic].head_seq + 1)

    def losses(self, wanted: Range) -> Sequence[Loss]:
        found = []
        with self._place.connected() as client:
            for page in _pages(client.topic(wanted.topic), wanted, match=NO_TAG):
                gap = page.tombstone
                if gap is not None:
                    last = min(gap.gap_to, wanted.stop - 1)
                    if gap.gap_from < self._states[wanted.topic].evict_floor <= gap.gap_to:
                        last = min(last, self._states[wanted.topic].evict_floor - 1)
                    found.append(Loss(wanted.topic, max(gap.gap_from, wanted.start), last, gap.reason.value))
        return [loss for loss in found if loss.first <= loss.last]

    def stop_within(self, wanted: Range, bytes_max: int) -> int:
        return min(wanted.stop, wanted.start + max(1, int(bytes_max / self._record_bytes(wanted.topic))))

    def size(self, wanted: Range) -> int:
        return int((wanted.stop - wanted.start) * self._record_bytes(wanted.topic))

    def parts(self, wanted: Range, bounds: Bounds, *, target_bytes: int) -> Sequence[Stretch]:
        each = self._record_bytes(wanted.topic)
        start, stop = max(wanted.start, bounds.seq_start), min(wanted.stop, bounds.seq_stop)
        step = max(SEQS_MIN, int(target_bytes / each))
        return [
            Stretch(
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


def _batches(client: Client, stretch: Stretch, how: Reading) -> Iterator[pa.RecordBatch]:
    """The records of a stretch. Raises `DataLoss` if some are lost."""
    wanted = Range(stretch.topic, stretch.epoch, stretch.start, stretch.stop)
    bounds = stretch.bounds
    last_ms = bounds.ts_ms_max
    for page in _pages(client.topic(stretch.topic), wanted):
        gap = page.tombstone
        if page.epoch != stretch.epoch and not how.fail_on_loss:
            return  # another instance's records, under the same name
        if gap is not None and how.fail_on_loss and gap.gap_from < stretch.stop:
            last = min(gap.gap_to, stretch.stop - 1)
            raise DataLoss(Loss(stretch.topic, gap.gap_from, last, gap.reason.value))
        views = [
            record._view  # noqa: SLF001 -- a page's records are views in a coat
            for record in page.records
            if record.seq < stretch.stop
            and record.ts >= bounds.ts_ms_min
            and (last_ms is None or record.ts <= last_ms)
        ]
        if views:
            yield views_batch(stretch.topic, views, how.schema)


def _pages(topic: Topic, wanted: Range, match: str | None = None) -> Iterator[Page]:
    """The pages that cover the range, and perhaps more."""
    at = wanted.start - 1
    while at < wanted.stop - 1:
        limit = min(PAGE_RECORDS, wanted.stop - 1 - at)
        page = topic.read(from_seq=at, limit=limit, epoch=wanted.epoch, match=match)
        yield page
        if page.next_from_seq <= at:
            return
        at = page.next_from_seq
