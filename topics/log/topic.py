"""One topic's state: what folding its frames gives (architecture 3.2).

It owns the index and floors; `fold` and `retention` change it and keep them in step, `diff` and `tombstone` read it.
What it must never know: other topics, shards, tickets, or what has not been applied yet.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from topics.codec.log.frame import Run
from topics.kernel.config import Durability, TopicConfig, TopicType
from topics.kernel.deadlines import Deadlines
from topics.kernel.limits import CEILING_STEP_FIRST
from topics.log.dedupe import DedupIds, Results
from topics.log.floors import Floors
from topics.log.index import Index
from topics.log.jobs.bucket import Bucket
from topics.log.jobs.jobs import Jobs
from topics.log.placing.leaving import let_go
from topics.log.placing.places import put_places
from topics.log.reads.consumers import Consumers
from topics.log.regions import Regions
from topics.log.routers import Inbound
from topics.log.schedules import Schedules
from topics.log.segments import Segment, Segments

_STALE_DEADLINES_MIN: Final = 4096


REDRIVE: Final = b"redrive"  # why a dead letter goes back to a queue


class Move(NamedTuple):
    """Where a record is going, and why, since `ts`. `deliveries`: how often it was delivered before."""

    dest: str
    reason: bytes
    deliveries: int
    ts: int


class Topic:
    """Records, floors and memory of one instance (epoch) of a name."""

    __slots__ = (
        "ceiling", "config", "consumers", "deadlines", "dedup_ids", "delete_below", "epoch", "floors", "inbound",
        "index", "jobs", "last_write_ts", "moves", "name", "regions", "results", "retired_ms", "schedules", "segments",
        "topic_id", "watermark_ms",
    )  # fmt: skip

    def __init__(self, topic_id: int, name: str, epoch: int, config: TopicConfig) -> None:
        assert topic_id > 0
        assert epoch > 0
        self.topic_id = topic_id
        self.name = name
        self.epoch = epoch
        self.config = config
        self.index = Index(of_queue=config.type is TopicType.QUEUE)
        self.floors = Floors()
        self.regions = Regions()
        self.segments = Segments()
        self.results = Results()
        self.dedup_ids = DedupIds()
        self.deadlines = Deadlines()
        self.consumers = Consumers()
        self.jobs = Jobs(self.index) if config.type is TopicType.QUEUE else None
        self.moves: dict[int, Move] = {}  # also of records that have died since: ask `moving`
        self.schedules = Schedules()
        self.inbound: dict[int, Inbound] = {}  # by the id of a router into it
        self.delete_below = 0
        self.ceiling = CEILING_STEP_FIRST
        self.retired_ms = 0
        self.watermark_ms = 0
        self.last_write_ts = 0

    @property
    def head_seq(self) -> int:
        return self.index.head_seq

    @property
    def earliest_seq(self) -> int:
        return self.index.base_seq

    @property
    def evict_floor(self) -> int:
        return self.floors.evict_floor

    def moving(self) -> dict[int, Move]:
        """The records that are on their way to another topic, by seq. A move ends when its record does."""
        moves, is_live = self.moves, self.index.is_live
        for seq in [seq for seq in moves if not is_live(seq)]:
            del moves[seq]
        return moves

    def forget_writes(self) -> None:
        """What is remembered of single records, and of who has read them, ends: of an ephemeral topic no image keeps it
        (`facts.OF_RECORDS`).
        """
        self.results, self.dedup_ids, self.consumers = Results(), DedupIds(), Consumers()
        if self.jobs is not None:
            self.jobs.bucket = Bucket()
            self.jobs.dead_lettered = 0

    def note_deadlines(self, run: Run) -> None:
        """List the own expiries of a run, and drop stale ones when they outnumber the live records."""
        if run.expires is None:
            return
        for seq, due_ms in enumerate(run.expires, run.seq_start):
            if due_ms:
                self.deadlines.add(due_ms, seq)
        if self.deadlines.count > 4 * self.index.live_count + _STALE_DEADLINES_MIN:
            self.deadlines.keep(self.index.are_live)

    def place_segment(self, segment: Segment, offsets: array[int], lengths: array[int], *, size: int) -> None:
        """A segment's data is another file now: its records lie there, and those that it left out have length 0.

        No frame says so, for no reader is told of it: where bytes lie is no state.
        """
        put_places(self.index, segment.first, segment.last, offsets, lengths)
        self.segments.resize(segment.first, size)

    def note_damage(self, segment: Segment) -> None:
        """Records of this segment have no bytes: reading them fails, and nothing more goes into it (storage 5)."""
        self.index.has_absent = True
        self.segments.damaged |= {segment.first}

    def trim(self) -> None:
        """After the front moved: forget where gone records were."""
        self.regions.drop_below(self.index.base_seq)
        self.segments.drop_below(self.index.base_seq)
        self.let_go()

    def let_go(self) -> None:
        """Long runs of dead slots leave, once nobody needs their places: a segment has them, or nothing will."""
        index = self.index
        if self.config.durability is not Durability.EPHEMERAL:
            let_go(index, self.segments.stored_seq + 1)
            return
        for run in let_go(index, index.head_seq + 1):
            self.regions.move(run.first, run.last, index.head_seq, b"")  # frees what memory holds of them
