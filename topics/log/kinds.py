"""The types of topics: what each does beyond keeping records.

Every topic is a log, so what is said of a log holds for all. A type adds frames of its own, what folding them gives,
and what must hold of that. A topic's type never changes. What a type must never know: other topics, tickets, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from topics.codec.log.control import Control
from topics.codec.log.leases import Acked, Claimed, Extended, Paused, Purged, Released, ReleasedAll, Resumed
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability, TopicType
from topics.kernel.errors import invalid
from topics.kernel.grouped import grouped
from topics.log.facts import Fact
from topics.log.jobs.checks import check_jobs
from topics.log.jobs.image import JobsImage
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import JobState
from topics.log.past import DeathCause
from topics.log.topic import REDRIVE, Topic

OF_KINDS: Final = frozenset(
    {Claimed, Extended, Released, ReleasedAll, Acked, Purged, Paused, Resumed}
)  # what a single type of topic folds


class Kind:
    """A log, which adds nothing; the other types begin from it. `facts`: what it remembers, in fields of `TopicImage`
    that a log leaves empty; of an ephemeral topic that is nothing of records.
    """

    facts: ClassVar[tuple[Fact, ...]] = ()

    def check_records(self, topic: Topic, records: RecordColumns) -> None:
        """Raises `Rejected` for what no record of such a topic has."""
        for field, column in (("priority", records.priority), ("delay_ms", records.delay_ms)):
            if column is not None and any(value is not None for value in column):
                raise invalid(field, f"topic {topic.name!r} is a log; only a queue takes {field}")

    def begin_moves(self, _topic: Topic, seqs: Sequence[int], _reason: bytes) -> Sequence[int]:
        """These records begin to go to another topic: how often each was delivered."""
        return [0] * len(seqs)

    def check(self, topic: Topic) -> None:
        """Assert what must hold of the type's own between any two calls (`engine.verify`)."""

    def fold(self, topic: Topic, item: Control) -> None:
        """A frame that only this type has. As all of `log.fold`: it cannot fail, and now is the frame's ts."""
        raise AssertionError(f"topic {topic.name!r}: no rule for {item.payload!r}")


class JobQueue(Kind):
    """A log whose records are jobs: they are leased, and gone when they are done (`log.jobs`)."""

    facts = (Fact("jobs", lambda topic: _image(topic)),)  # noqa: PLW0108 - it stands below

    def check_records(self, topic: Topic, records: RecordColumns) -> None: ...

    def begin_moves(self, topic: Topic, seqs: Sequence[int], reason: bytes) -> Sequence[int]:
        jobs = _jobs(topic)
        jobs.moving(seqs)
        jobs.dead_lettered += 0 if reason == REDRIVE else len(seqs)
        return [jobs.rows.deliveries[jobs.row(seq)] for seq in seqs]

    def check(self, topic: Topic) -> None:
        check_jobs(_jobs(topic), topic.index)
        assert _jobs(topic).rows.jobs_in(JobState.MOVING) == sorted(topic.moving())

    def fold(self, topic: Topic, item: Control) -> None:
        jobs = _jobs(topic)
        match item.payload:
            case Claimed() as claimed:
                deliveries_max = topic.config.deliveries_max_of(topic.name)
                jobs.claimed(claimed, item.ts, topic.config, deliveries_max=deliveries_max)
            case Acked(seqs=seqs):
                _remove(topic, sorted(seqs))
            case Extended() as extended:
                jobs.extended(extended)
            case Released() as released:
                jobs.released(released)
            case ReleasedAll(reason=reason):
                jobs.released_all(reason, item.ts)
            case Purged(upto=upto):
                _remove(topic, jobs.ready_below(upto, item.ts))
            case Paused():
                jobs.paused = True
            case Resumed():
                jobs.paused = False
            case _:
                super().fold(topic, item)


def _image(topic: Topic) -> JobsImage:
    jobs = _jobs(topic)
    return JobsImage(jobs.paused) if topic.config.durability is Durability.EPHEMERAL else jobs.image()


def _jobs(topic: Topic) -> Jobs:
    assert topic.jobs is not None
    return topic.jobs


def _remove(topic: Topic, seqs: list[int]) -> None:
    """Jobs end for good: as by a delete, which is voluntary."""
    index = topic.index
    if len(seqs) > 1 and isinstance(group := grouped(seqs), range):
        count = index.kill_range(index.position(group.start), index.position(group.stop), DeathCause.DELETED)
    else:
        count = index.kill_seqs(seqs, DeathCause.DELETED)
    if count:
        topic.index.pop_dead(topic.floors.evict_floor)
        topic.trim()


_KINDS: Final[Mapping[TopicType, Kind]] = {TopicType.LOG: Kind(), TopicType.QUEUE: JobQueue()}


def kind_of(topic: Topic) -> Kind:
    return _KINDS[topic.config.type]
