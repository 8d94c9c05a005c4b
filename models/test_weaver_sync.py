"""Sync sessions between three nodes, message by message: broken off, crossing each other, beside writes and restarts.

The oracle is a set a node. A finished session has given both sides everything that either had when it began; no node
ever holds what nobody wrote, nor an intention before its parents; and in the end whole sessions make all nodes equal.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.weaver_nodes import OPTIONS, Line, Place, sync
from topics.weaver.sync.ranges import FULL, Scheme, fold_of
from topics.weaver.sync.session import SessionPhase

pytestmark = [
    pytest.mark.invariant("I-15"),
    pytest.mark.rule("R5.8.1", "R5.8.3", "R5.8.4", "R5.2.4", "R9.27", "R9.28", "R9.31", "R10.6", "R11.37"),
]

COUNT = 3
LINES_MAX = 3
nodes = st.integers(0, COUNT - 1)


class Talk:
    """A session under way, and what both sides had when it began."""

    def __init__(self, one, other, places, scheme):
        self.ends = (one, other)
        self.had = places[one].names | places[other].names
        self.sessions = [
            place.session(initiator=first, scheme=scheme)
            for place, first in ((places[one], True), (places[other], False))
        ]
        self.line = Line(*self.sessions)


class Syncing(RuleBasedStateMachine):
    """Three nodes, up to three sessions at once."""

    @initialize()
    def start(self):
        self.places = [Place(number) for number in range(1, COUNT + 1)]
        self.written = set()
        self.talks = []

    @rule(at=nodes, many=st.sampled_from([1, 2, 25]), cites=st.booleans())
    def write(self, at, many, cites):
        place = self.places[at]
        for _ in range(many):
            parents = [place.store.graph.order[-1].hash] if cites and place.names else []
            self.written.add(place.write(b"%d" % len(self.written), parents))

    @precondition(lambda self: len(self.talks) < LINES_MAX)
    @rule(one=nodes, step=st.integers(1, COUNT - 1), scheme=st.sampled_from(Scheme))
    def begin(self, one, step, scheme):
        self.talks.append(Talk(one, (one + step) % COUNT, self.places, scheme))

    @precondition(lambda self: self.talks)
    @rule(which=st.integers(0, LINES_MAX - 1), messages=st.integers(1, 12))
    def carry(self, which, messages):
        talk = self.talks[which % len(self.talks)]
        for _ in range(messages):
            if talk.line.waiting:
                talk.line.step()
        if not talk.line.waiting:
            self.end(talk)

    @precondition(lambda self: self.talks)
    @rule(which=st.integers(0, LINES_MAX - 1))
    def break_off(self, which):
        talk = self.talks.pop(which % len(self.talks))
        for session in talk.sessions:
            over = session.is_over
            session.closed()
            assert over or session.phase is SessionPhase.CLOSED

    @rule(at=nodes)
    def restart(self, at):
        for talk in [talk for talk in self.talks if at in talk.ends]:
            self.talks.remove(talk)
        names = self.places[at].names
        self.places[at].reopen()
        assert self.places[at].names == names

    @precondition(lambda self: self.talks)
    @rule()
    def fall_silent(self):
        for place in self.places:
            place.clock.advance(OPTIONS.idle_ms)
        for talk in self.talks:
            for session in talk.sessions:
                session.tick()
                assert session.is_over
        self.talks.clear()

    def end(self, talk):
        self.talks.remove(talk)
        assert [session.phase for session in talk.sessions] == [SessionPhase.FINISHED] * 2
        for end in talk.ends:
            assert talk.had <= self.places[end].names, "a finished session left something out"
        for session in talk.sessions:
            assert session.tally.absent == session.tally.skipped == 0
            assert session.pending_ranges == session.active_fetches == 0

    @invariant()
    def holds_only_what_was_written_and_in_causal_order(self):
        for place in self.places:
            assert place.names <= self.written
            for node in place.store.graph.order:
                assert all(parent.seq < node.seq for parent in node.parents)
            view = place.inventory.behind(place.inventory.frontier)
            assert view.fold(FULL) == fold_of(place.names)
            assert view.fold(FULL).fingerprint(Scheme.XOR) == place.store.fingerprint

    def teardown(self):
        for _ in range(2):
            for one in range(COUNT):
                first, second, _ = sync(self.places[one], self.places[(one + 1) % COUNT])
                assert first.phase is second.phase is SessionPhase.FINISHED
        for place in self.places:
            assert place.names == self.written
            assert len(place.store.floating) == 0


TestSyncing = Syncing.TestCase
TestSyncing.settings = settings(
    max_examples=min(150, max(40, settings.default.max_examples // 10)), stateful_step_count=25
)
