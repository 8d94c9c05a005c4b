"""Agreement of queues: the same steps through the embedded store, HTTP and WebSocket ops give the same jobs, skipped
lists, counts, peeks and refusals (reliability 4). Moves have a model of their own, and waits are in `test_leases`."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

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


def _steps(**kinds):
    """(what, with what)."""
    return st.one_of(
        *(st.tuples(st.just(does), st.fixed_dictionaries(fields)) for does, fields in kinds.items())
    )


CLAIM = {
    "node": NODES, "most": st.integers(0, 4), "lease_ms": st.sampled_from([None, None, 1, 500]),
    "max_bytes": st.sampled_from([None, None, 0, 1, 20]),
}  # fmt: skip
SETTLE = {
    "what": SETTLEMENTS, "picks": st.lists(st.integers(0, 5), min_size=1, max_size=4),
    "node": st.sampled_from([None, None, "a", "b"]), "named": st.sampled_from(["no", "all", "some"]),
}  # fmt: skip
works = _steps(
    put={"records": st.lists(RECORDS, min_size=1, max_size=4)},
    claim=CLAIM,
    settle=SETTLE,
    claim_and_settle={"claim": st.fixed_dictionaries(CLAIM), "settle": st.fixed_dictionaries(SETTLE)},
    peek={"state": st.sampled_from(["ready", "in_flight", "delayed"]), "limit": st.sampled_from([0, 1, 3])},
    time={"ms": st.sampled_from([1, 50, 100, 101, 1000, 5001, -30])},
)
disturbances = _steps(
    set_paused={"paused": st.booleans()}, purge={}, delete={"before_seq": st.integers(0, 9)},
    configure={"config": CONFIGS}, restart={"clean": st.booleans()}, settle_badly={"what": BAD_SETTLEMENTS},
    claim_badly={"node": NODES, "fields": BAD_CLAIMS}, peek_badly={},
)  # fmt: skip


class JobsAgreement(RuleBasedStateMachine):
    @initialize(config=CONFIGS, durability=CLASSES, records=st.lists(RECORDS, min_size=1, max_size=6))
    def begin(self, config, durability, records):
        self.clock = ManualClock()
        self.targets = [kind(self.clock) for kind in (EmbeddedJobs, HttpJobs, SocketJobs)]
        self.number = 0
        self.leases = []  # (seq, node) of each lease that was given
        self.alike("create", {"type": "queue", "durability": durability, **config})
        self.put(records)

    def teardown(self):
        for target in getattr(self, "targets", ()):
            target.end()

    @rule(
        steps=st.lists(works, min_size=4, max_size=9),
        disturbance=st.one_of(st.none(), disturbances, disturbances),
    )
    def work(self, steps, disturbance):
        """Workers and producers, and now and then something else; behind each step the counts are the same."""
        for does, fields in [*steps, disturbance] if disturbance is not None else steps:
            getattr(self, does)(**fields)
            self.alike("state")

    def alike(self, step, *given, **options):
        """All tell the same of it."""
        return self.same([partial(getattr(target, step), *given, **options) for target in self.targets])

    def same(self, acts):
        told = [outcome(act) for act in acts]
        assert told[0] == told[1]
        assert told[0] == told[2]
        return told[0]

    def put(self, records):
        given = [{"data": {"n": self.number + i}, **record} for i, record in enumerate(records)]
        self.number += len(records)
        self.alike("put", given)

    def claim(self, node, most, lease_ms, max_bytes):
        given = {"max": most, "lease_ms": lease_ms, "max_bytes": max_bytes}
        told = self.alike(
            "claim", node, **{name: value for name, value in given.items() if value is not None}
        )
        self.leases += [(job[0], node) for job in told]

    def settle(self, what, picks, node, named):
        """Of the last leases, whoever has them by now. `node`: None for whose the first of them was."""
        if not self.leases:
            return
        chosen = [max(len(self.leases) - 1 - pick, 0) for pick in picks]
        seqs, node = [self.leases[at][0] for at in chosen], node or self.leases[chosen[0]][1]
        kind, fields = what

        def ids(target):
            if named == "no":
                return None
            return ["" if named == "some" and i % 2 else target.ids[at] for i, at in enumerate(chosen)]

        self.same([partial(target.settle, kind, node, seqs, ids(target), fields) for target in self.targets])

    def claim_and_settle(self, claim, settle):
        self.claim(**claim)
        self.settle(**settle)

    def peek(self, state, limit):
        assert isinstance(self.alike("peek", state, limit), list)

    def set_paused(self, paused):
        assert self.alike("set_paused", paused) is paused

    def purge(self):
        self.alike("purge")

    def delete(self, before_seq):
        self.alike("delete", before_seq)

    def configure(self, config):
        self.alike("configure", config)

    def restart(self, clean):
        for target in self.targets:
            target.restart(clean=clean)

    def time(self, ms):
        self.clock.set(self.clock.now_ms() + ms)

    def settle_badly(self, what):
        assert isinstance(self.alike("settle", *what), str)

    def claim_badly(self, node, fields):
        assert isinstance(self.alike("claim", node, **fields), str)

    def peek_badly(self):
        assert isinstance(self.alike("peek", "gone", 1), str)


JobsAgreement.TestCase.settings = settings(stateful_step_count=6, max_examples=40)


@pytest.mark.rule("H10.6", "Q4.4", "Q4.5", "Q4.6", "Q4.7", "Q4.8", "Q4.13")
class TestAgreementOfJobs(JobsAgreement.TestCase):
    pass
