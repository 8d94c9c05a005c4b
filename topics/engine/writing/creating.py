"""Creating topics: each a synced frame on shard 0 before anything else of it (storage 3)."""

from __future__ import annotations

from collections.abc import Sequence

from topics.codec.log.control import TopicCreate
from topics.engine.batch import Entry
from topics.engine.lane import Lane
from topics.engine.moving.dead_letter import check_dead_letter, made_with
from topics.engine.replies import TopicPut
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import CEILING_STEP_FIRST


def propose_create(
    state: EngineState, name: str, config: TopicConfig, ticket: Ticket | None, now_ms: int
) -> Lane:
    """Create a name, and before it the topic for its dead letters, if that is missing.

    `ticket` is answered when the topic stands; None if the command goes on afterwards (a write that creates).
    """
    check_dead_letter(state, name, config)
    letters = made_with(state, config)
    wanted = [(name, config, ticket)] if letters is None else [(*letters, None), (name, config, ticket)]
    entries = creations(state, wanted, now_ms)
    state.check_space(0, sum(entry.size for entry in entries), keep_reserve=True)
    begin_topics(state, entries)
    return entries[-1].lane


def creations(
    state: EngineState, wanted: Sequence[tuple[str, TopicConfig, Ticket | None]], now_ms: int
) -> Sequence[Creation]:
    """What would create these names, and nothing is changed. Whether there is space for it, is not asked.

    Raises:
        Rejected: nothing is written any more, or there are too many topics.
    """
    state.check_writable(0)
    limit = state.limits.topics
    if wanted and limit and len(state.lanes) + len(wanted) > limit:
        raise Rejected(Code.THROTTLED, f"the store has its {limit} topics", limit="topics", max=limit)
    entries = []
    for topic_id, (name, config, ticket) in enumerate(wanted, state.next_topic_id):
        epoch = state.catalog.epochs.get(name, 0) + 1
        payload = TopicCreate(name, epoch, config.echo(), CEILING_STEP_FIRST)
        lane = state.new_lane(name, topic_id)
        entries.append(Creation.of(lane, [payload], now_ms, staged=True, must_sync=True, ticket=ticket))
    return entries


def begin_topics(state: EngineState, entries: Sequence[Creation]) -> None:
    """These topics come to stand."""
    for entry in entries:
        state.next_topic_id += 1
        state.add_lane(entry.lane)
        state.enqueue(0, entry)


class Creation(Entry, eq=False, kw_only=True):
    """A topic that comes to stand."""

    lane: Lane

    def reply(self) -> TopicPut:
        return topic_put(self.lane, created=True)


def topic_put(lane: Lane, *, created: bool) -> TopicPut:
    """The answer of who puts a topic, when it stands."""
    assert lane.topic is not None
    return TopicPut(topic=lane.name, created=created, config=lane.topic.config)
