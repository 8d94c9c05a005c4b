"""Background work carried out inline, by whoever is alone with a store: a start (storage 4), or a simulation.

There is one thread, so a step is carried out where it is asked for, and a proposal has ended when the writers have
nothing left to write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.engine.engine import Engine
from topics.host.checkpointer import Checkpointer
from topics.host.steps import Blocking, GoOn, Propose, Steps, Swap, Wait, disk_full
from topics.kernel.errors import Corrupt, Rejected


def checkpoint_alone(checkpointer: Checkpointer) -> str:
    """One whole round. Says why there is none, `""` if there is: the log has everything all the same.

    Raises:
        OSError, Fatal: the disk failed.
    """
    engine, steps = checkpointer.engine, checkpointer.round()
    drain = partial(_drain, checkpointer)
    try:
        carry_out(engine, steps, drain)
    except (Rejected, Corrupt) as refused:
        return refused.message
    except OSError as error:
        if not disk_full(error):
            raise
        return str(error)
    finally:
        steps.close()
        drain()
        _forget_effects(engine)
    return ""


def carry_out(engine: Engine, steps: Steps, drain: Callable[[], None]) -> None:
    """All of a work. `drain`: write whatever is to be written. Raises what the steps raise."""
    for step in steps:
        match step:
            case Blocking(call) | Swap(call):
                call()
            case Propose(command):
                ticket = engine.propose(command)
                drain()
                ticket.result()
            case Wait():
                drain()
            case GoOn():
                pass  # the next proposal drains what was held back


def _drain(checkpointer: Checkpointer) -> None:
    """Write whatever is to be written, and reserve the next file of each log."""
    for writer in checkpointer.writers:
        writer.drain()
        if writer.failed is not None:
            raise writer.failed
        writer.keep_reserve()


def _forget_effects(engine: Engine) -> None:
    """Nobody waits for a ticket, and nobody reads yet."""
    engine.take_effects()
