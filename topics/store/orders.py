"""Orders of the engine, as the steps by which a driver carries one out."""

from __future__ import annotations

from topics.engine.engine import Engine
from topics.host.checkpoint.steps import Steps
from topics.store.forwarding import forwarding
from topics.store.moving import Read, moving


def next_order(engine: Engine, read: Read) -> Steps | None:
    """The next one; those of routers first, for readers of their dests see what they are late with."""
    forward = engine.forwards.take()
    if forward is not None:
        return forwarding(engine, read, forward)
    move = engine.moves.take()
    return None if move is None else moving(engine, read, move)
