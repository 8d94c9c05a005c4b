"""Model of routers' definitions: whatever overlaps and whatever dies, each is as one call after another would have it.

Up to three calls are on their way at once. What they answer, and what then stands, is what an oracle says of them in
some order. A crash takes calls that were not answered, and of those that were none. Dest knows each router into it and
no other; the log alone gives the same.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations, permutations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from models.oracle_routers import Joined, Network
from tests.engine.driving import Driver, config
from topics.engine.commands import DeleteRouter, DeleteTopic, PutRouter, PutTopic
from topics.engine.replies import RouterDeleted, RouterPut, TopicDeleted
from topics.engine.tickets import Stage
from topics.engine.verify import digest
from topics.kernel.config import Durability
from topics.kernel.errors import Rejected
from topics.log.reads.match import parse_match

pytestmark = [pytest.mark.invariant("I-09"), pytest.mark.rule("S8.15", "S8.16", "S8.20")]

WRITTEN, EMPTY, NAMES = ["a", "b"], ["c", "d"], ["r", "s", "a->b"]
TOPICS = WRITTEN + EMPTY  # only an empty one may become ephemeral
topics, names = st.sampled_from(TOPICS), st.sampled_from(NAMES)
calls = st.one_of(
    st.tuples(
        st.just("put"), names, st.builds(Joined, topics, topics, st.sampled_from([None, "x"]), st.booleans()),
        st.booleans(),
    ),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("put_topic"), topics, st.just(True)),
    st.tuples(st.just("put_topic"), st.sampled_from(EMPTY), st.just(False)),
    st.tuples(st.just("delete_topic"), topics),
)  # fmt: skip


class DefinitionsMachine(RuleBasedStateMachine):
    @initialize(shards=st.sampled_from([1, 3]))
    def begin(self, shards):
        self.driver = Driver(shards=shards)
        self.network = Network()

    @rule(topic=st.sampled_from(WRITTEN))
    def write(self, topic):
        if self.driver.topic(topic) is not None:
            self.driver.propose(self.driver.appending(1, topic=topic, create=False))

    @rule(asked=st.lists(calls, min_size=1, max_size=3))
    def call(self, asked):
        tickets = self.propose_all(asked)
        self.driver.run()
        told = [outcome(ticket) for ticket in tickets]
        assert None not in told
        self.settle_for(asked, told)

    @rule(asked=st.lists(calls, max_size=3), stages=st.integers(0, 6), is_power=st.booleans())
    def crash(self, asked, stages, is_power):
        """Some of the calls are answered, and stand; of the others each has happened, or has not."""
        driver = self.driver
        tickets = self.propose_all(asked)
        for stage in range(stages):
            driver.step(stage % len(driver.wals))
        for shard, wal in enumerate(driver.wals):
            if is_power:
                del wal[driver.synced_to[shard] :]
            driver.synced_to[shard] = len(wal)
        told = [outcome(ticket) for ticket in tickets]
        driver.restart(machine_restarted=is_power)
        self.settle_for(asked, told)

    def teardown(self):
        if hasattr(self, "driver"):
            self.driver.run()
            assert digest(self.driver.replay()) == digest(self.driver.engine.catalog)

    # Inside.

    def propose_all(self, asked):
        """Each ticket, or what refused it at once."""
        tickets = []
        for call in asked:
            try:
                tickets.append(self.driver.propose(command_of(*call)))
            except Rejected as refused:
                tickets.append(refused)
        return tickets

    def settle_for(self, asked, told):
        """There is an order of the calls that says what was told and gives what is there. Those that were not answered
        may be left out of it.
        """
        found = self.found()
        for order in orders(told):
            network = deepcopy(self.network)
            if all(told[i] in (None, network.call(*asked[i])) for i in order) and found == network.there():
                self.network = network
                return
        raise AssertionError(f"{asked} were answered {told}, and gave {found}")

    def found(self):
        engine = self.driver.engine
        states = [engine.routers.state(name) for name in engine.routers.names()]
        routers = {
            one.definition.name: Joined(
                one.source,
                one.dest,
                one.definition.filter and one.definition.filter[2],
                one.definition.allow_cycle,
            )
            for one in states
        }
        kept = {
            name: engine.topic_config(name).durability is not Durability.EPHEMERAL for name in engine.names()
        }
        return kept, routers


def orders(told):
    """Every order of the calls that were answered, and of any of the others."""
    answered = [i for i, one in enumerate(told) if one is not None]
    others = [i for i, one in enumerate(told) if one is None]
    for count in range(len(others), -1, -1):
        for chosen in combinations(others, count):
            yield from permutations([*answered, *chosen])


def command_of(kind, name, *rest):
    if kind == "put":
        joined, create_dest = rest
        accepted = None if joined.match is None else parse_match(joined.match, tag_bytes_max=256)
        return PutRouter(
            router=name, source=joined.source, dest=joined.dest, filter=accepted,
            allow_cycle=joined.allow_cycle, create_dest=create_dest,
        )  # fmt: skip
    if kind == "put_topic":
        return PutTopic(topic=name, config=config(durability="disk" if rest[0] else "ephemeral"))
    return DeleteRouter(router=name) if kind == "delete" else DeleteTopic(topic=name)


def outcome(ticket):
    """In the oracle's words; None: it was not answered."""
    if not isinstance(ticket, Rejected):
        if ticket.stage is not Stage.DONE:
            return None
        if ticket.error is None:
            return words_of(ticket.reply)
        ticket = ticket.error
    return ticket.detail.get("reason") or ticket.code


def words_of(reply):
    match reply:
        case RouterPut(created=True):
            return "created"
        case RouterPut():
            return "put"
        case RouterDeleted(deleted=deleted):
            return "deleted" if deleted else "absent"
        case TopicDeleted(deleted=True, routers=routers):
            return f"gone with {sorted(name for name, _ in routers)}"
        case TopicDeleted():
            return "absent"
    return "put"


TestDefinitions = DefinitionsMachine.TestCase
TestDefinitions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
