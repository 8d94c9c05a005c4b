"""Whole runs of the simulated server under readers by durable consumers: what they were told of them holds on."""

from __future__ import annotations

from collections import Counter

import attrs
import msgspec
import pytest

from topics.embed.aio.runtime import Runtime
from topics.engine.commands import CommitConsumer, DeleteTopic
from topics.engine.consumers import consumer_state
from topics.engine.replies import ConsumerCommitted, TopicDeleted
from topics.engine.tickets import Stage, Ticket
from topics.kernel.config import Durability
from topics.simulation.clients.http_messages import SimulatedResponse
from topics.simulation.consumers.consumed_world import ConsumedWorld
from topics.simulation.consumers.wire_consumers import ConsumerRequest, WireConsumers
from topics.simulation.oracle import PromiseBroken

GATE_SEEDS = range(6)
CANARY_SEEDS = range(100, 112)
MORE_SEEDS = range(7000, 7100)


@pytest.mark.rule("H7.5", "H7.7")
@pytest.mark.invariant("I-07", "I-17")
def test_what_readers_of_served_runs_with_crashes_were_told_of_consumers_holds():
    counts = Counter()
    for seed in GATE_SEEDS:
        counts.update(ConsumedWorld(seed, visits=9).run().counts)

    assert counts["consumers: heard"] > 200
    assert counts["consumers: found again"] > 10
    assert counts["consumers: pages"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_what_readers_of_more_served_runs_were_told_of_consumers_holds(seed):
    ConsumedWorld(seed, rounds=8, visits=12).run()


class Unlogged(Runtime):
    """Every third commit is answered, and nothing is done."""

    asked = 0

    async def submit(self, command, **how):
        if isinstance(command, CommitConsumer):
            self.asked += 1
            if self.asked % 3 == 0:
                state = consumer_state(self.engine.catalog, command.topic, command.consumer, command.epoch)
                seq = max(state.from_seq, command.seq)
                return ConsumerCommitted(
                    **{**msgspec.structs.asdict(state), "from_seq": seq}, moved=seq > state.from_seq
                )
        return await super().submit(command, **how)


class Unexpecting(Runtime):
    """Who commits a page does not say from where it was read."""

    async def submit(self, command, **how):
        if isinstance(command, CommitConsumer):
            command = attrs.evolve(command, expected=None)
        return await super().submit(command, **how)


@pytest.mark.parametrize(("planted", "said"), [(Unlogged, "goes back by itself"), (Unexpecting, "was given")])
def test_a_planted_bug_turns_the_gate_red(planted, said):
    found = ""
    for seed in CANARY_SEEDS:
        try:
            ConsumedWorld(seed, visits=9, runtime=planted).run()
        except AssertionError as violation:
            found = f"{seed}: {violation}"
            break

    print(f"{planted}: the first seed that finds it is {found:.300}")
    assert said in found


def test_a_consumer_that_outlives_its_topic_or_a_crash_that_takes_it_is_found():
    def heard(status, **fields):
        request = ConsumerRequest(method=b"GET", path=b"", name=("t", "c"), promise=wire.promise(("t", "c")))
        wire.heard(request, SimulatedResponse(status, fields, b"", closes=False), Durability.DISK)

    wire = WireConsumers(Counter())
    heard(200, from_seq=3, epoch=1)
    wire.crashed(is_process_only=True)
    for found, said in (
        ((404, {"error": {"code": "consumer_not_found"}}), "is gone by itself"),
        ((200, {"from_seq": 2, "epoch": 1}), "goes back by itself"),
        ((200, {"from_seq": 3, "epoch": 2}), "goes back by itself"),
    ):
        with pytest.raises(PromiseBroken, match=said):
            heard(found[0], **found[1])
    wire.crashed(is_process_only=False)
    heard(200, from_seq=2, epoch=1)

    ticket = Ticket(DeleteTopic(topic="t"))
    wire.asked(ticket.command)
    heard(200, from_seq=2, epoch=1)
    ticket.stage, ticket.reply = Stage.DONE, TopicDeleted(topic="t", deleted=True)
    wire.ended(ticket)
    with pytest.raises(PromiseBroken, match="outlived its topic"):
        heard(200, from_seq=2, epoch=1)
