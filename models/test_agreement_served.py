"""Agreement with the server: the same steps through the embedded store, World's stages and HTTP give the same answers,
refusals, pages, accounts, states and listings (reliability 4). Over streams in memory, and over loopback."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from models.target_served import Served
from models.test_agreement import LIMITS, NAMES, Agreement, outcome

BAD_RECORDS = st.sampled_from(
    [
        [], [{}], [{"data": 1, "tag": ""}], [{"data": 1, "tag": 3}], [{"data": 1, "tag": "x" * 257}],
        [{"data": 1, "ttl_ms": -1}],
        [{"data": 1}, {"data": 1, "node": "n" * 129}], [{"data": 1, "dedup_id": ""}], [{"data": 1, "meta": {"a": 1}}],
        [{"data": 1, "key": ""}],
    ]
)  # fmt: skip
BAD_CONFIGS = st.sampled_from(
    [{"colour": 1}, {"durability": "soft"}, {"cap_records": -1}, {"ttl_ms": True}, {"discard": None}]
)
BAD_READS = st.sampled_from(
    [
        {"from_seq": -1}, {"limit": -1}, {"limit": True}, {"epoch": "x"}, {"match": ["tag", "Glob", "a*b"]},
        {"match": ["kind", "Eq", "a"]}, {"node": 7}, {"from_seq": 1, "from_ts": 1},
    ]
)  # fmt: skip


class OverHttp(Agreement):
    loopback = False

    @initialize()
    def begin(self):
        super().begin()
        self.served = Served(self.clock, LIMITS, real=self.loopback)

    def teardown(self):
        super().teardown()
        if hasattr(self, "served"):
            self.served.end(clean=True)

    def agree(self, one, other, wish):
        first = super().agree(one, other, wish)
        if hasattr(self, "served"):
            name, *given = wish
            options = given.pop() if isinstance(given[-1], dict) and name == "read" else {}
            assert first == outcome(lambda: getattr(self.served, name)(*given, **options))
        return first

    def restarted(self, *, clean):
        self.served.end(clean=clean)
        self.served.open()

    def refuse_alike(self, embedded, served):
        first = outcome(embedded)
        assert isinstance(first, str), first
        assert first == outcome(served)

    @rule(name=NAMES, records=BAD_RECORDS)
    def put_badly(self, name, records):
        self.refuse_alike(
            lambda: self.embedded.store.topic(name).put_many(records),
            lambda: self.served.put(name, records, None),
        )

    @rule(name=NAMES, config=BAD_CONFIGS)
    def configure_badly(self, name, config):
        self.refuse_alike(
            lambda: self.embedded.store.create(name, **config), lambda: self.served.create(name, config)
        )
        self.refuse_alike(
            lambda: self.embedded.store.topic(name).configure(**config),
            lambda: self.served.configure(name, config),
        )

    @rule(name=NAMES, fields=BAD_READS)
    def read_badly(self, name, fields):
        self.refuse_alike(
            lambda: self.embedded.store.topic(name).read(**fields), lambda: self.served.read(name, **fields)
        )

    @rule()
    def list(self):
        embedded = [
            (state.topic, state.head_seq, state.earliest_seq, state.count, state.bytes)
            for state in self.embedded.store.list()
        ]
        assert embedded == self.served.list()


class OverLoopback(OverHttp):
    loopback = True


OverHttp.TestCase.settings = settings(stateful_step_count=25, max_examples=25)
OverLoopback.TestCase.settings = settings(stateful_step_count=15, max_examples=8)


@pytest.mark.rule("H1.12", "H1.15", "H1.19", "H4.4", "H4.6", "H5.5", "H5.7", "H6.1")
class TestAgreementOverHttp(OverHttp.TestCase):
    pass


class TestAgreementOverLoopback(OverLoopback.TestCase):
    pass
