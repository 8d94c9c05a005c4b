"""Moves in a server: a task carries orders out while requests are served."""

from __future__ import annotations

import pytest

from tests.server.wire.places import alone, begun, new_site
from topics.engine.commands import Append, PutTopic
from topics.engine.moving.moves import begin_move
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.store.writer import NOTHING_TOOK
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio


def begin(runtime, source, seqs, dest):
    state = runtime.engine.state
    lane = state.lanes_by_name[source]
    assert begin_move(state, lane, seqs, dest, b"why", runtime.engine.now_ms()) == seqs
    runtime._after_call(NOTHING_TOOK)


async def let_pass(runtime, clock):
    clock.advance(1)
    await runtime.append(Append(topic="other", records=RecordColumns([b"1"])))


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
async def test_a_task_moves_what_is_to_be_moved(durability):
    clock = ManualClock()
    async with alone(), begun(new_site(), clock=clock) as runtime:
        config = parse_config({"durability": durability})
        await runtime.submit(PutTopic(topic="t", config=config))
        await runtime.submit(PutTopic(topic="dlq", config=config))  # a move makes no topic
        await runtime.append(Append(topic="t", records=RecordColumns([b"%d" % i for i in range(20)])))
        begin(runtime, "t", list(range(1, 16)), "dlq")
        while runtime.engine.state.moves:
            await let_pass(runtime, clock)

        assert runtime.engine.topic_state("t").count == 5
        assert runtime.engine.topic_state("dlq").count == 15


async def test_orders_that_are_left_are_no_reason_not_to_end():
    clock = ManualClock()
    async with alone(), begun(new_site(), clock=clock) as runtime:
        full = parse_config({"cap_records": 1, "discard": "reject"})
        await runtime.submit(PutTopic(topic="dlq", config=full))
        await runtime.append(Append(topic="dlq", records=RecordColumns([b"1"])))
        await runtime.append(Append(topic="t", records=RecordColumns([b"1", b"2"])))
        begin(runtime, "t", [1, 2], "dlq")
        while not runtime.engine.moves.blocked:
            await let_pass(runtime, clock)
        assert runtime.engine.topic_state("t").count == 2
