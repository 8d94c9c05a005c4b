"""Model of the scheduler's fairness: who has news to tell is in the set once, and has his turn within the bound (I-13).

Topics come in, are told slice by slice and leave, while time passes; now and then those below 0 are held. Beside the
turns themselves, which an oracle says from a plain list, it is counted how many turns others had while a band waited.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from models.oracle_fairness import BANDS, PUT_OFF, SLICE, Fairness
from topics.sched.ready import ReadySet

pytestmark = [pytest.mark.invariant("I-13"), pytest.mark.rule("S10.5", "S10.6", "S10.7")]

TOPICS = tuple("abcdefgh")
EDGES = (-1000, -1, 0, 249, 250, 499, 500, 749, 750, 1000)
ROUND = sum(weight for _, weight in BANDS.values()) * SLICE
NAMES = tuple(BANDS)[::-1]  # the lowest first, as bands are numbered


class FairnessMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now_us = 1_000_000
        self.ready, self.oracle = ReadySet(), Fairness()
        # What others were served since the band had its turn, while it waited.
        self.passed_over = dict.fromkeys(BANDS, 0)

    @rule(
        topic=st.sampled_from(TOPICS),
        priority=st.one_of(st.sampled_from(EDGES), st.integers(-1000, 1000)),
    )
    def mark(self, topic, priority):
        if topic in self.ready:  # whoever marks asks first; it is in once
            return
        self.ready.mark(topic, priority, self.now_us)
        self.oracle.mark(topic, priority, self.now_us)

    @rule(
        us=st.one_of(st.sampled_from([1, 49_999, 50_000, 2_500_000, 10_000_000]), st.integers(1, 12_000_000))
    )
    def pass_time(self, us):
        self.now_us += us

    @rule(
        cost=st.integers(0, SLICE), is_last=st.booleans(), window_us=st.sampled_from([0, 0, 0, 5000, 20_000])
    )
    def serve(self, cost, is_last, window_us):
        expected = self.oracle.whose_turn(self.now_us, window_us)

        topic = self.ready.next(self.now_us, window_us)

        assert topic == expected
        if topic is None:
            return
        self.count(self.oracle.find(topic).band, max(cost, 1), window_us)
        self.ready.served(topic, cost)
        self.oracle.served(topic, cost)
        if is_last:
            self.ready.done(topic)
            self.oracle.done(topic)

    @rule(priority=st.one_of(st.sampled_from(EDGES), st.integers(-1000, 1000)), cost=st.integers(0, SLICE))
    def be_told_at_once(self, priority, cost):
        """Who would be next anyway does not come in."""
        self.oracle.look(self.now_us)
        if not self.ready.has_next_turn(priority, self.now_us):
            return
        self.oracle.mark("z", priority, self.now_us)
        assert self.oracle.whose_turn(self.now_us, 20_000) == "z"
        self.count("top", max(cost, 1), 0)
        self.ready.served_at_once(cost)
        self.oracle.served("z", cost)
        self.oracle.done("z")

    @rule(topic=st.sampled_from(TOPICS))
    def leave(self, topic):
        if topic in self.ready:
            self.ready.done(topic)
            self.oracle.done(topic)

    @precondition(lambda self: not self.ready.is_holding)
    @rule()
    def hold(self):
        self.ready.hold()
        self.oracle.hold()

    @precondition(lambda self: self.ready.is_holding)
    @rule()
    def let_go(self):
        self.ready.let_go(self.now_us)
        self.oracle.let_go(self.now_us)

    @invariant()
    def each_is_in_the_set_once(self):
        oracle = self.oracle
        assert len(self.ready) == len({one.topic for one in oracle.waiting}) == len(oracle.waiting)
        assert self.ready.held == len(oracle.held)
        assert [topic in self.ready for topic in TOPICS] == [
            any(one.topic == topic for one in oracle.waiting + oracle.held) for topic in TOPICS
        ]
        bands = [one.band for one in oracle.waiting]
        assert list(self.ready.by_band) == [bands.count(name) for name in NAMES]

    @invariant()
    def nobody_of_0_or_more_waits_10_s_below_the_top(self):
        for one in self.oracle.waiting:
            if one.priority >= 0 and self.oracle.looked_us - one.since_us >= 10_000_000:
                assert one.band == "top"
        assert self.ready.first_due_us(0) == min((one.since_us for one in self.oracle.waiting), default=None)

    def count(self, served, cost, window_us):
        """Whoever waits sees no more than two rounds go by: the rest of one, and one."""
        for band in BANDS:
            in_band = [one for one in self.oracle.waiting if one.band == band]
            if (
                band == served
                or not in_band
                or in_band[0].since_us + window_us * PUT_OFF[band] // 4 > self.now_us
            ):
                self.passed_over[band] = 0
            else:
                self.passed_over[band] += cost
                assert self.passed_over[band] <= 2 * ROUND


TestFairness = FairnessMachine.TestCase
TestFairness.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
