"""The steps of an order of a router: records of its source are read, and brought over to its dest (semantics 8).

As for moves: where they lie may change meanwhile, and some may die, which are left out. Where a record's bytes are gone
dest is told; where that may pass, all of them are tried again later.
"""

from __future__ import annotations

from topics.engine.commands import BringOver
from topics.engine.engine import Engine
from topics.engine.routers.orders import ForwardOrder
from topics.host.checkpoint.steps import Propose, Steps
from topics.kernel.errors import Corrupt, Fatal, Rejected, TopicsError
from topics.store.moving import Read, read_records


def forwarding(engine: Engine, read: Read, order: ForwardOrder) -> Steps:
    """All of an order. What refuses it is not raised: it is tried again when the engine says so."""
    error: TopicsError | None = None
    is_there = False
    try:
        views, damaged = yield from read_records(engine, read, order.source_id, order.seqs)
        yield Propose(BringOver(topic=order.dest, order=order, views=views, damaged=damaged))
        is_there = True
    except (Rejected, Corrupt, Fatal) as refused:
        error = refused
    finally:  # also when a driver gives it up
        engine.forwards.ended(order, error, is_there=is_there)
