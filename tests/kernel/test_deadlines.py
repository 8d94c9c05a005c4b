"""Deadlines against a list of pairs: nothing due is missed, nothing is taken early or twice."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from topics.kernel.deadlines import NEVER, Deadlines

moments = st.integers(0, 5000) | st.sampled_from([0, 1023, 1024, 1025, 2047, 2048])


class Due(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.deadlines, self.pairs, self.seq = Deadlines(), [], 0

    @rule(due_ms=moments)
    def add(self, due_ms):
        self.seq += 1
        self.deadlines.add(due_ms, self.seq)
        self.pairs.append((due_ms, self.seq))

    @rule(now_ms=moments)
    def take(self, now_ms):
        expected = sorted(seq for due_ms, seq in self.pairs if due_ms < now_ms)

        assert expected == sorted(self.deadlines.due(now_ms))
        assert expected == self.deadlines.take_due(now_ms)
        self.pairs = [pair for pair in self.pairs if pair[0] >= now_ms]
        self.look()

    @rule(odd=st.booleans())
    def keep(self, odd):
        self.deadlines.keep(lambda seqs: [seq % 2 == odd for seq in seqs])
        self.pairs = [pair for pair in self.pairs if pair[1] % 2 == odd]
        self.look()

    @rule()
    def look(self):
        assert len(self.pairs) == self.deadlines.count
        first = None if self.deadlines.first_ms == NEVER else self.deadlines.first_ms
        assert min((due_ms for due_ms, _ in self.pairs), default=None) == first


TestDue = Due.TestCase


@given(st.lists(moments, min_size=1))
def test_a_deadline_is_not_due_at_its_own_instant(dues):
    deadlines = Deadlines()
    for seq, due_ms in enumerate(dues, 1):
        deadlines.add(due_ms, seq)

    assert deadlines.take_due(min(dues)) == []
    assert min(dues) == deadlines.first_ms
