"""Background work carried out inline, by whoever is alone with a store: a start (storage 4), or a simulation.

There is one thread, so a step is carried out where it is asked for, and a proposal has ended when the writers have
nothing left to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topics.engine.engine import Engine
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps, Swap, WaitForBatch, disk_full
from topics.kernel.errors import Corrupt, Rejected
from topics.store.forwarding import forwarding
from topics.store.moving import Read
from topics.store.steps import drive
from topics.store.writer import ShardWriter


def checkpoint_alone(checkpointer: Checkpointer, writers: Sequence[ShardWriter]) -> str:
    """One whole round. Says why there is none, `""` if there is: the log has everything all the same.

    Raises:
        OSError, Fatal: the disk failed.
    """
    engine, drain = checkpointer.engine, partial(_drain, writers)
    try:
        carry_out(engine, checkpointer.round(), drain)
    except (Rejected, Corrupt) as refused:
        return refused.message
    except OSError as error:
        if not disk_full(error):
            raise
        return str(error)
    finally:
        drain()
        engine.take_effects()  # nobody waits for a ticket, and nobody reads yet
    return ""


def bring_over_alone(engine: Engine, read: Read, writers: Sequence[ShardWriter]) -> None:
    """Routers that a crash has left behind catch up, as far as they may.

    Raises:
        Fatal: the disk failed.
    """
    drain = partial(_drain, writers)
    while (order := engine.forwards.take()) is not None:
        carry_out(engine, forwarding(engine, read, order), drain)
        drain()
    engine.take_effects()  # nobody waits for a ticket, and nobody reads yet


def carry_out(engine: Engine, steps: Steps, drain: Callable[[], None]) -> None:
    """All of a work. `drain`: write whatever is to be written. Raises what the steps raise."""

    def do(step: Step) -> None:
        match step:
            case Blocking(call) | Swap(call):
                call()
            case Propose(command, sync):
                ticket = engine.propose(command, sync=sync)
                drain()
                ticket.result()
            case WaitForBatch():
                drain()
            case _:
                pass  # the next proposal drains what was held back

    drive(steps, do)


def _drain(writers: Sequence[ShardWriter]) -> None:
    """Write whatever is to be written, and reserve the next file of each log."""
    for writer in writers:
        writer.drain()
        if writer.failed is not None:
            raise writer.failed
        writer.keep_reserve()
