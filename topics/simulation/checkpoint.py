"""A round of a checkpoint on one thread: each of its steps carried out at once, writes drained in between."""

from __future__ import annotations

from collections.abc import Callable

from topics.host.checkpointer import Blocking, Checkpointer, Propose, Wait


def take_checkpoint(checkpointer: Checkpointer, drain: Callable[[], None]) -> None:
    """All of a round. Raises what its steps raise."""
    engine = checkpointer.engine
    for step in checkpointer.round():
        match step:
            case Blocking(call):
                call()
            case Propose(command):
                ticket = engine.propose(command)
                drain()
                ticket.result()
            case Wait():
                drain()
            case _:
                pass
