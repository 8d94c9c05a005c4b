"""The topic that takes a queue's dead letters: which one it may be, and that it is made with the queue (queues 1)."""

from __future__ import annotations

from topics.engine.state import EngineState
from topics.kernel.config import Durability, TopicConfig, TopicType
from topics.kernel.errors import Code, Rejected, invalid


def check_dead_letter(state: EngineState, name: str, config: TopicConfig) -> None:
    """Nothing, if a queue of this name may have this config; a log has no dead letters, whatever its config says.

    Raises:
        Rejected: invalid_request for one that keeps less than the queue; topic_exists_incompatible for a cycle.
    """
    if config.type is not TopicType.QUEUE or config.dead_letter is None:
        return
    chain = [name]
    following: str | None = config.dead_letter
    while following is not None:
        chain.append(following)
        if following == name:
            raise Rejected(
                Code.TOPIC_EXISTS_INCOMPATIBLE,
                f"config.dead_letter: would form a cycle: {' -> '.join(chain)}; choose another topic",
                topic=name,
                reason="dead_letter_cycle",
                cycle=chain,
            )
        topic = state.catalog.find(following)
        is_queue = topic is not None and topic.config.type is TopicType.QUEUE
        following = topic.config.dead_letter if topic is not None and is_queue else None
        if following in chain[1:]:
            return  # round without this one, as an earlier build may have left it
    first = state.catalog.find(config.dead_letter)
    if first is not None and first.config.durability is Durability.EPHEMERAL is not config.durability:
        raise invalid(
            "config.dead_letter",
            f"topic {config.dead_letter!r} is ephemeral and would lose what queue {name!r} keeps: name another one",
        )


def made_with(state: EngineState, config: TopicConfig) -> tuple[str, TopicConfig] | None:
    """The dead-letter topic that is missing, and its config: a log of the queue's class. None if none is."""
    if config.type is not TopicType.QUEUE or config.dead_letter is None:
        return None
    if config.dead_letter in state.lanes_by_name:
        return None
    return config.dead_letter, TopicConfig(durability=config.durability)
