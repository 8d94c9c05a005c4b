"""What there is to be told of schedules: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from topics.engine.replies import ScheduleState
from topics.engine.schedules.instants import Instants
from topics.engine.state import EngineState
from topics.kernel.errors import Code, Rejected


def schedule_state(state: EngineState, name: str, *, coming: int = 0) -> ScheduleState:
    """A schedule as published, and the next instants that it fires as things stand.

    Raises:
        Rejected: schedule_not_found.
    """
    topic_id, schedule_id = state.catalog.schedules.get(name, (0, 0))
    topic = state.catalog.topics.get(topic_id)
    if topic is None:
        raise Rejected(Code.SCHEDULE_NOT_FOUND, f"schedule {name!r} does not exist", schedule=name)
    standing, alarm = topic.schedules[schedule_id], state.alarms.get(schedule_id)
    instants = Instants(state.calendar, standing.definition)
    first = alarm.instant_ms if alarm is not None else None
    known = first is not None and first > standing.base_ms
    try:
        if not known:
            first = instants.first(max(standing.base_ms, state.time.high_ms))
        following = [] if first is None else [first, *islice(instants.after(first), max(coming - 1, 0))]
    except Rejected:  # of a zone that this machine does not know
        first, following = None, []
    return ScheduleState(
        topic=topic.name, definition=standing.definition, last_fired=standing.fired_ms or None, next_fire=first,
        coming=following[:coming], failures=0 if alarm is None else alarm.failures,
    )  # fmt: skip


class ScheduleDesk:
    """The engine's side of schedules for who asks: reads of what is published."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def state(self, name: str, *, coming: int = 0) -> ScheduleState:
        """As `schedule_state`, now."""
        self._state.time.read()
        return schedule_state(self._state, name, coming=coming)

    def topic_of(self, name: str) -> str | None:
        """The topic that a schedule fires into; None if there is no such schedule."""
        topic_id, _ = self._state.catalog.schedules.get(name, (0, 0))
        topic = self._state.catalog.topics.get(topic_id)
        return None if topic is None else topic.name

    def names(
        self, prefix: str = "", after: str = "", count_max: int | None = None,
        sees: Callable[[str], bool] = bool,
    ) -> Sequence[str]:  # fmt: skip
        """The first so many names, ascending, that start with `prefix` and come after `after`, of those whose name
        and topic it `sees`.
        """
        names = sorted(name for name in self._seen(sees) if name.startswith(prefix) and name > after)
        return names if count_max is None else names[:count_max]

    def count(self, sees: Callable[[str], bool] = bool) -> int:
        """How many there are of which it `sees` name and topic."""
        return len(self._seen(sees))

    def _seen(self, sees: Callable[[str], bool]) -> Sequence[str]:
        topics = self._state.catalog.topics
        return [
            name
            for name, (topic_id, _) in self._state.catalog.schedules.items()
            if sees(name) and sees(topics[topic_id].name)
        ]

    @property
    def blocked(self) -> int:
        """Schedules whose record was refused when it was last tried."""
        return sum(alarm.failures > 0 for alarm in self._state.alarms.values())
