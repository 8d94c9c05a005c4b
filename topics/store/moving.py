"""The steps of an order: records of one topic are read and appended to another (queues 3).

Where they lie may change meanwhile, and some may die: those are left out. A record whose bytes cannot be had goes
without them; where that may pass, as on a cold store that does not answer, all of them are tried again later. Each end
is told to the engine, so an order that is broken off is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

from topics.codec.log.frame import FrameView
from topics.engine.engine import Engine
from topics.engine.moving.letters import append_of
from topics.engine.moving.orders import MoveOrder
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps
from topics.host.segments.reading import Unread
from topics.kernel.errors import Corrupt, Fatal, Rejected, TopicsError
from topics.kernel.limits import MOVE_BYTES_MAX
from topics.log.reads.frames import Extent
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.store.reading import page_steps

Read = Callable[[Extent], bytes]


def moving(engine: Engine, read: Read, order: MoveOrder) -> Steps:
    """All of an order. What refuses it is not raised: it is tried again when the engine says so."""
    error: TopicsError | None = None
    is_there = False
    try:
        views, damaged = yield from read_records(engine, read, order.topic_id, list(order.moves))
        command = append_of(order, views, damaged)
        if command is not None:
            yield Propose(command, sync=True)
        is_there = True
    except (Rejected, Corrupt, Fatal) as refused:
        error = refused
    finally:  # also when a driver gives it up
        if is_there:
            engine.moves.appended(order)
        else:
            engine.moves.failed(order, error)


def read_records(
    engine: Engine, read: Read, topic_id: int, seqs: Sequence[int]
) -> Generator[Step, None, tuple[list[FrameView], list[int]]]:
    """Those of these ascending seqs that are there, as they are stored, and the seqs of those that are damaged."""
    views: list[FrameView] = []
    damaged: list[int] = []
    query: RecordsQuery | None = None
    if seqs:
        query = RecordsQuery(topic_id=topic_id, seqs=seqs, bytes_max=2 * MOVE_BYTES_MAX)
    while query is not None:
        plan, some = yield from _page(engine, read, query)
        views += some
        damaged += plan.damaged
        query = query.after(plan)
    return views, damaged


def _page(
    engine: Engine, read: Read, query: RecordsQuery
) -> Generator[Step, None, tuple[RecordsPlan, Sequence[FrameView]]]:
    steps = page_steps(query, unfold=False)
    step = next(steps)
    while not isinstance(step, tuple):
        try:
            answer: object
            if isinstance(step, RecordsPlan):
                answer = buffers = list[bytes]()
                yield Blocking(partial(_fetch, read, step, buffers))
            else:
                assert isinstance(step, RecordsQuery)
                answer = engine.plan_records(step)
        except (Corrupt, Unread) as error:
            step = steps.throw(error)
        else:
            step = steps.send(answer)
    plan, views, _ = step
    assert isinstance(plan, RecordsPlan)
    return plan, views


def _fetch(read: Read, plan: RecordsPlan, buffers: list[bytes]) -> None:
    buffers += [read(extent) for extent in plan.extents]
