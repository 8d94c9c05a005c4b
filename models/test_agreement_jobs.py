"""Agreement of queues: the same steps through the embedded store, HTTP and WebSocket ops give the same jobs, skipped
lists, counts, peeks and refusals (reliability 4). Moves have a model of their own, and waits are in `test_leases`."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.target_jobs import EmbeddedJobs, HttpJobs, SocketJobs
from models.test_agreement import outcome
from topics.testing.clock import ManualClock

NODES = st.sampled_from(["a", "b"])
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([0, 1, 9]),
        "delay_ms": st.sampled_from([0, 50, 2000]),
        "key": st.sampled_from(["k", "l"]),
        "tag": st.sampled_from(["red", "green"]),
    },
)
CONFIGS = st.fixed_dictionaries(
    {"retry_backoff": st.sampled_from([{"base_ms": 100, "factor": 2, "max_ms": 300}, None])},
    optional={
        "lease_ms": st.sampled_from([100, 1000]),
        "max_deliveries": st.sampled_from([0, 2]),
        "leases_durable": st.booleans(),
        "starvation_ms": st.sampled_from([0, 500]),
        "starvation_share": st.sampled_from([1, 50, 100]),
        "max_in_flight": st.sampled_from([0, 3]),
        "max_in_flight_per_key": st.sampled_from([0, 1, 2]),
        "rate_limit": st.sampled_from([None, {"count": 3, "per_ms": 1000}]),
        "require_lease_id": st.booleans(),
        "cap_records": st.sampled_from([0, 6]),
    },
)
CLASSES = st.sampled_from(["ephemeral", "memory", "disk", "fsync"])
SETTLEMENTS = st.one_of(
    st.tuples(st.just("ack"), st.just({})),
    st.tuples(
        st.just("nack"),
        st.fixed_dictionaries(
            {},
            optional={
                "delay_ms": st.sampled_from([0, 0, 70, 5000]),
                "reason": st.sampled_from(["", "bröken"]),
            },
        ),
    ),
    st.tuples(st.just("extend"), st.fixed_dictionaries({"lease_ms": st.sampled_from([1, 400, 9000])})),
)
BAD_SETTLEMENTS = st.sampled_from(
    [
        ("ack", "a", [], None, {}), ("ack", "a", [1] * 1001, None, {}), ("ack", "", [1], None, {}),
        ("ack", "a", [-1], None, {}), ("ack", "a", [1, 2], [""], {}),
        ("nack", "a", [1], ["lease_X"], {}), ("nack", "a", [1], None, {"delay_ms": -1}),
        ("nack", "a", [1], None, {"reason": "r" * 1025}), ("nack", "a", [1], None, {"reason": 7}),
        ("extend", "n" * 129, [1], None, {"lease_ms": 400}), ("extend", "a", [1], None, {"lease_ms": "1"}),
    ]
)  # fmt: skip
BAD_CLAIMS = st.sampled_from(
    [{"max": -1}, {"max": "1"}, {"lease_ms": True}, {"lease_ms": -5}, {"wait_ms": 1.5}, {"max_bytes": -1}]
)


class JobsAgreement(RuleBasedStateMachine):
    @initialize(config=CONFIGS, durability=CLASSES, records=st.lists(RECORDS, max_size=5))
    def begin(self, config, durability, records):
        self.clock = ManualClock()
        self.targets = [kind(self.clock) for kind in (EmbeddedJobs, HttpJobs, SocketJobs)]
        self.number = 0
        self.leases = []  # (seq, node) of each lease that was given
        self.alike("create", {"type": "queue", "durability": durability, **config})
        if records:
            self.put(records)

    def teardown(self):
        for target in getattr(self, "targets", ()):
            target.end()

    def alike(self, step, *given, **options):
        """All tell the same of it."""
        told = [outcome(partial(getattr(target, step), *given, **options)) for target in self.targets]
        assert told[0] == told[1]
        assert told[0] == told[2]
        return told[0]

    def refused(self, step, *given, **options):
        assert isinstance(self.alike(step, *given, **options), str)

    @rule(records=st.lists(RECORDS, min_size=1, max_size=4))
    def put(self, records):
        given = [{"data": {"n": self.number + i}, **record} for i, record in enumerate(records)]
        self.number += len(records)
        self.alike("put", given)

    @rule(
        node=NODES, most=st.integers(0, 4), lease_ms=st.sampled_from([None, 1, 500]),
        max_bytes=st.sampled_from([None, 0, 1, 20]),
    )  # fmt: skip
    def claim(self, node, most, lease_ms, max_bytes):
        given = {"max": most, "lease_ms": lease_ms, "max_bytes": max_bytes}
        told = self.alike(
            "claim", node, **{name: value for name, value in given.items() if value is not None}
        )
        self.leases += [(job[0], node) for job in told]

    @precondition(lambda self: self.leases)
    @rule(
        what=SETTLEMENTS, picks=st.lists(st.integers(0, 7), min_size=1, max_size=4), node=st.none() | NODES,
        named=st.sampled_from(["no", "all", "some"]),
    )  # fmt: skip
    def settle(self, what, picks, node, named):
        """Of the last leases, whoever has them by now. `node`: None for whose the first of them was."""
        chosen = [max(len(self.leases) - 1 - pick, 0) for pick in picks]
        seqs, node = [self.leases[at][0] for at in chosen], node or self.leases[chosen[0]][1]
        told = []
        for target in self.targets:
            ids = None if named == "no" else [target.ids[at] for at in chosen]
            if named == "some":
                ids = ["" if i % 2 else one for i, one in enumerate(ids)]
            told.append(outcome(partial(target.settle, what[0], node, seqs, ids, what[1])))
        assert told[0] == told[1]
        assert told[0] == told[2]

    @rule(what=BAD_SETTLEMENTS)
    def settle_badly(self, what):
        self.refused("settle", *what)

    @rule(node=NODES, fields=BAD_CLAIMS)
    def claim_badly(self, node, fields):
        self.refused("claim", node, **fields)

    @rule(state=st.sampled_from(["ready", "in_flight", "delayed", "gone"]), limit=st.sampled_from([0, 1, 3]))
    def peek(self, state, limit):
        told = self.alike("peek", state, limit)
        assert isinstance(told, str) == (state == "gone")

    @rule(paused=st.booleans())
    def set_paused(self, paused):
        self.alike("set_paused", paused)

    @rule()
    def purge(self):
        self.alike("purge")

    @rule(before_seq=st.integers(0, 9))
    def delete(self, before_seq):
        self.alike("delete", before_seq)

    @rule(config=CONFIGS)
    def configure(self, config):
        self.alike("configure", config)

    @rule(ms=st.sampled_from([1, 50, 100, 101, 1000, 5001, -30]))
    def time(self, ms):
        self.clock.set(self.clock.now_ms() + ms)

    @rule(clean=st.booleans())
    def restart(self, clean):
        for target in self.targets:
            target.restart(clean=clean)

    @invariant()
    def states_agree(self):
        if hasattr(self, "targets"):
            self.alike("state")


JobsAgreement.TestCase.settings = settings(stateful_step_count=30, max_examples=25)


@pytest.mark.rule("H10.6", "Q4.4", "Q4.5", "Q4.6", "Q4.7", "Q4.8", "Q4.13")
class TestAgreementOfJobs(JobsAgreement.TestCase):
    pass
