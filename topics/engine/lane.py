"""The allocator side of one topic: what propose has promised and apply has not yet done (architecture 3.1).

Every reservation here belongs to a ticket in flight and is released by that ticket's apply or failure, so an idle
lane holds none (a model checks it). The log-derived side is `Topic`; folding the log never needs a lane.
"""

from __future__ import annotations

from collections import deque

from topics.engine.queue.waiting import QueueLane
from topics.engine.replies import QueueState, TopicState
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Fatal
from topics.kernel.limits import CEILING_STEP_FIRST, CEILING_STEP_MAX
from topics.log.topic import Topic
from topics.sched.priority import priority_of


class Lane:
    """One topic (or a name being created: `topic` is None until its TopicCreate is synced)."""

    __slots__ = (
        "barrier",
        "ceiling",
        "ceiling_asked",
        "ceiling_step",
        "commits",
        "dedup_ids",
        "durable_seq",
        "in_flight",
        "keys",
        "last_read_ms",
        "moving",
        "name",
        "next_seq",
        "parked",
        "queue",
        "read_only",
        "reserved_bytes",
        "reserved_records",
        "retiring",
        "shard",
        "topic",
        "topic_id",
        "written_seq",
    )  # fmt: skip

    def __init__(self, name: str, topic_id: int, shard: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.shard = shard
        self.topic: Topic | None = None
        self.next_seq = 1
        self.reserved_records = 0
        self.reserved_bytes = 0
        self.in_flight = 0
        self.keys: dict[bytes, Ticket] = {}
        self.dedup_ids: dict[bytes, tuple[int, Ticket]] = {}
        self.commits: dict[str, tuple[int, Ticket]] = {}  # by consumer: the last one on its way
        self.moving: set[int] = set()  # records whose move is promised and not yet in the log
        self.parked: deque[Ticket] = deque()
        self.barrier: Ticket | None = None
        self.read_only: Fatal | None = None
        self.retiring: Ticket | None = None
        # Publishing rule (storage 3): no class but fsync publishes above `ceiling`. Lowered when proposed, raised when
        # synced, so that it never exceeds what a power cut now would leave.
        self.ceiling = 0
        self.ceiling_asked = 0
        self.ceiling_step = CEILING_STEP_FIRST
        self.written_seq = 0
        self.durable_seq = 0
        self.last_read_ms = 0
        self.queue: QueueLane | None = None

    def adopt(self, topic: Topic) -> None:
        """Take over a topic as the log left it."""
        assert topic.topic_id == self.topic_id
        self.topic = topic
        self.queue = QueueLane(topic.jobs) if topic.jobs is not None else None
        self.next_seq = topic.head_seq + 1
        self.ceiling = self.ceiling_asked = topic.ceiling
        if topic.config.durability is not Durability.EPHEMERAL:
            self.written_seq = self.durable_seq = topic.head_seq

    @property
    def blocked(self) -> bool:
        """True if a new command has to wait its turn."""
        return self.topic is None or self.barrier is not None or bool(self.parked)

    @property
    def idle(self) -> bool:
        """True if nothing of this topic is on its way."""
        return self.in_flight == 0 and self.barrier is None and not self.parked

    def next_ceiling(self, last_seq: int) -> int:
        """The ceiling to ask for so that `last_seq` fits with room to spare."""
        return max(last_seq, self.ceiling_asked) + min(self.ceiling_step * 2, CEILING_STEP_MAX)

    def ask_ceiling(self, ceiling: int) -> None:
        """A raise is on its way; each doubles the step (storage 3)."""
        assert ceiling > self.ceiling_asked
        self.ceiling_asked = ceiling
        self.ceiling_step = min(self.ceiling_step * 2, CEILING_STEP_MAX)

    def raise_ceiling(self) -> None:
        """The raise is durable."""
        assert self.topic is not None
        assert self.topic.ceiling <= self.ceiling_asked
        self.ceiling = self.topic.ceiling

    def lower_ceiling(self) -> None:
        """The exact head is about to be logged: from now on the next write raises again (storage 3)."""
        assert self.idle
        self.ceiling = self.ceiling_asked = self.next_seq - 1
        self.ceiling_step = CEILING_STEP_FIRST

    def topic_state(self, queue: QueueState | None, now_ms: int) -> TopicState:
        """What the topic is now, as published. `queue`: of a queue, how its jobs stand."""
        topic = self.topic
        assert topic is not None
        return TopicState(
            topic=self.name, type=topic.config.type.value, epoch=topic.epoch, head_seq=topic.head_seq,
            durable_seq=self.durable_seq, earliest_seq=topic.earliest_seq, evict_floor=topic.evict_floor,
            next_seq=topic.head_seq + 1, count=topic.index.live_count, bytes=topic.index.live_bytes,
            config=topic.config,
            effective_priority=priority_of(topic.config, read_ms=self.last_read_ms, now_ms=now_ms),
            last_write_ts=topic.last_write_ts or None, last_read_ts=self.last_read_ms or None, queue=queue,
        )  # fmt: skip

    def reserve(self, count: int, size: int) -> None:
        """The next so many seqs, and the bytes of their records, are given away."""
        self.next_seq += count
        self.reserved_records += count
        self.reserved_bytes += size

    def release(self, count: int, size: int) -> None:
        """So much is published, or has come to nothing."""
        self.reserved_records -= count
        self.reserved_bytes -= size
        assert self.reserved_records >= 0
        assert self.reserved_bytes >= 0

    def reservations(self) -> dict[str, int]:
        """What is reserved, by kind; all zero on an idle lane."""
        return {
            "records": self.reserved_records,
            "bytes": self.reserved_bytes,
            "keys": len(self.keys),
            "dedup_ids": len(self.dedup_ids),
            "commits": len(self.commits),
            "moving": len(self.moving),
            "parked": len(self.parked),
            "barrier": int(self.barrier is not None),
            "retiring": int(self.retiring is not None),
            "busy_jobs": 0 if self.queue is None else len(self.queue.busy) + self.queue.claiming,
        }
