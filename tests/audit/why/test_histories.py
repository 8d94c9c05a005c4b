"""What `why` says of each seq of a random history is what the oracle has, and what readers of the store are told.

The archive is on, so all of the log is there; then it is taken away, and what is still said must not contradict that.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.oracle_topic import Entry, OracleTopic
from tests.support.history import TINY
from tests.support.scene import SMALL, Scene
from topics.audit.why.asking import why, why_range
from topics.engine.commands import Retire
from topics.host.wal.archive import ArchiveRules
from topics.kernel.config import parse_config
from topics.log.reads.diff import DiffQuery
from topics.testing.survival import Shape

TAGS = (b"", b"a", b"b")
CONFIGS = (
    {}, {"cap_records": 3}, {"cap_bytes": 12}, {"ttl_ms": 40}, {"ttl_ms": 25, "cap_records": 4}, {"cap_records": 1},
)  # fmt: skip


MS = st.sampled_from([None, None, 10, 30])
PUT = st.tuples(st.just("put"), st.integers(1, 4), MS)
WAIT = st.tuples(st.just("wait"), st.integers(5, 30), st.none())
TAKEN = st.one_of(
    PUT,
    st.tuples(st.just("below"), st.integers(1, 15), st.none()),
    st.tuples(st.just("tag"), st.integers(1, 2), st.none()),
    st.tuples(st.just("config"), st.integers(0, len(CONFIGS) - 1), st.none()),
    st.tuples(st.just("checkpoint"), st.just(0), st.none()),
    st.tuples(st.sampled_from(["again", "again", "crash"]), st.just(0), st.none()),
)


@st.composite
def stories(draw):
    """A config, then puts, each with something behind it."""
    first = ("config", draw(st.integers(0, len(CONFIGS) - 1)), None)
    rounds = draw(st.integers(3, 7))
    return [first, *(step for _ in range(rounds) for step in (draw(PUT), draw(WAIT), draw(TAKEN)))]


class History:
    """A store and the oracle, side by side."""

    def __init__(self, *, archive):
        rules = ArchiveRules() if archive else None
        self.scene = Scene(limits=SMALL, segments=TINY, **({"archive": rules} if archive else {}))
        self.scene.open()
        self.scene.create("t")
        self.oracle = OracleTopic(1, parse_config({}))

    @property
    def now_ms(self):
        return self.scene.clock.now_ms()

    def take(self, verb, amount, ttl_ms):
        scene, oracle = self.scene, self.oracle
        match verb:
            case "put":
                tags = [TAGS[(oracle.head + i) % 3] for i in range(amount)]
                scene.put("t", *range(amount), tag=tags, ttl_ms=[ttl_ms] * amount)
                expires_at = None if ttl_ms is None else self.now_ms + ttl_ms
                entries = [Entry(self.now_ms, size=1, tag=tag, expires_at=expires_at) for tag in tags]
                oracle.append(self.now_ms, entries, None, frozenset())
            case "below":
                scene.delete("t", before_seq=amount)
                oracle.delete(before_seq=amount, accepts=None, upto=oracle.head)
            case "tag":
                scene.delete("t", match=TAGS[amount].decode())
                oracle.delete(before_seq=None, accepts=TAGS[amount].__eq__, upto=oracle.head)
            case "wait":
                scene.clock.advance(amount)
                self.pass_time()
            case "config":
                scene.create("t", **CONFIGS[amount])
                oracle.configure(self.now_ms, parse_config(CONFIGS[amount]))
            case "checkpoint":
                scene.sync()
                scene.checkpoint()
                scene.reclaim()
            case "again":
                scene.process_death().open()
            case "crash":
                scene.sync()
                scene.power_loss(Shape.NOTHING).open()
                if (head := scene.state("t").head_seq) > oracle.head:
                    oracle.crash(head, self.now_ms)

    def pass_time(self):
        """All that time has ended, a frame says."""
        if self.oracle.due(self.now_ms):
            self.scene.run(Retire(topic="t"))
            self.oracle.pass_time(self.now_ms)

    def became(self, seq):
        return why(self.scene.disk, "here", "t", seq, now_ms=self.now_ms)

    def told(self, seq):
        """What a reader who stands right before it is told, by the pages that the store gives."""
        at, behind = (
            self.scene.engine.plan_diff(DiffQuery(topic="t", from_seq=one, limit=1)) for one in (seq - 1, seq)
        )
        if at.gap is not None:
            return "lost", at.gap.reason.value, at.gap.gap_from, at.gap.gap_to
        if at.seqs and at.seqs[0] == seq:
            return "delivered", None, None, None
        # Both pages end with the same record, loss or head, so only of this seq they say something else.
        is_deleted = at.account.deleted > (0 if behind.gap else behind.account.deleted)
        return "deleted" if is_deleted else "expired", None, None, None


def played(story, *, archive=True):
    history = History(archive=archive)
    for step in story:
        history.take(*step)
    history.pass_time()
    return history


def looked_at(oracle):
    """Of a crash's many seqs the first and the last."""
    for seq, entry in oracle.log.items():
        if (
            "crash" not in entry.reasons
            or seq in (1, entry.in_range)
            or "crash" not in oracle.log[seq - 1].reasons
        ):
            yield seq, entry


CHECKED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@CHECKED
@given(stories())
def test_what_ended_each_record_is_what_the_oracle_says(story):
    history = played(story)
    for seq, entry in looked_at(history.oracle):
        found = history.became(seq)

        assert found.now.state == (entry.end or "live"), (seq, found)
        if entry.end == "lost":
            assert {found.now.reason} == entry.reasons, (seq, found)
        assert found.log.is_whole


@CHECKED
@given(stories(), st.booleans())
def test_what_is_said_is_what_readers_are_told(story, archive):
    history = played(story, archive=archive)
    head = history.scene.state("t").head_seq
    for seq, _ in looked_at(history.oracle):
        found = history.became(seq)
        reader, now = found.reader, found.now.state

        assert (reader.as_, reader.reason, reader.gap_from, reader.gap_to) == history.told(seq), seq
        assert (now == "live") == (reader.as_ == "delivered")
        assert now in {"lost": {"lost", "deleted", "expired"}}.get(reader.as_, {now, reader.as_} - {"lost"})
    assert history.became(head + 1).now.state == "unborn"


@CHECKED
@given(stories(), st.integers(0, 40), st.booleans())
def test_the_parts_of_a_readers_range_are_the_account_of_his_pages(story, from_seq, archive):
    history = played(story, archive=archive)
    head = history.scene.state("t").head_seq
    found = why_range(history.scene.disk, "here", "t", from_seq, now_ms=history.now_ms)
    sums = dict.fromkeys(("delivered", "lost", "deleted", "expired"), 0)
    gap = history.scene.engine.plan_diff(DiffQuery(topic="t", from_seq=from_seq, limit=2)).gap
    assert (found.reason, found.gap_to) == ((None, None) if gap is None else (gap.reason.value, gap.gap_to))
    at = from_seq
    while at < head:
        plan = history.scene.engine.plan_diff(DiffQuery(topic="t", from_seq=at, limit=2))
        for name in sums:
            sums[name] += getattr(plan.account, name)
        at = plan.next_from_seq
    counted = dict.fromkeys(sums, 0)
    for part in found.parts:
        counted[part.as_] += part.count

    assert sums == counted
    seqs = [seq for part in found.parts for seq in range(part.first, part.last + 1)]
    assert seqs == list(range(from_seq + 1, head + 1))
