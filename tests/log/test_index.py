"""The columnar index, tags, past and lost ranges against lists that do the same the slow way."""

import copy
from array import array
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from topics.codec.log.frame import Run
from topics.codec.log.layout import NODE, TAG
from topics.log.index import LIVE, Index
from topics.log.lost import LostRange, LostRanges
from topics.log.past import DeathCause, Past
from topics.log.tags import Labels, TagIndex

NAMES = [b"", b"a", b"ab", b"b"]


class Naive:
    """One record: what the columns say of it."""

    def __init__(self, seq, ts, size, tag, node, expires, job, key):
        self.seq, self.ts, self.size, self.tag, self.node, self.expires = seq, ts, size, tag, node, expires
        self.job, self.key = job, key
        self.end = None


def _flags(count, tags, nodes):
    """Of the frames, as encoder and scan give them."""
    bits = [
        (TAG if tag else 0) | (NODE if node else 0)
        for tag, node in zip(tags or [b""] * count, nodes or [b""] * count, strict=True)
    ]
    return bytes(bits) if tags or nodes else None


class Columns(RuleBasedStateMachine):
    """Runs come, ranges and single seqs die, the front is popped, seqs are lost; every lookup is the list's."""

    def __init__(self):
        super().__init__()
        self.index = Index(of_queue=True)
        self.slots = []  # of every seq that ever had one
        self.lost = set()
        self.floor = 1
        self.offset = 0

    @initialize(of_queue=st.booleans())
    def begin(self, of_queue):
        self.index = Index(of_queue=of_queue)

    @rule(
        count=st.integers(1, 9),
        later=st.integers(0, 3),
        tags=st.none() | st.lists(st.sampled_from(NAMES), min_size=9, max_size=9),
        nodes=st.none() | st.lists(st.sampled_from(NAMES), min_size=9, max_size=9),
        expires=st.none() | st.lists(st.sampled_from([0, 5]), min_size=9, max_size=9),
        sizes=st.lists(st.integers(0, 9), min_size=9, max_size=9),
        jobs=st.none() | st.lists(st.sampled_from([0, 7]), min_size=9, max_size=9),
        keys=st.none() | st.lists(st.sampled_from(NAMES), min_size=9, max_size=9),
    )
    def extend(self, count, later, tags, nodes, expires, sizes, jobs, keys):
        ts = (self.slots[-1].ts if self.slots else 0) + later
        first = self.index.head_seq + 1
        cut = [column and column[:count] for column in (tags, nodes, expires, jobs, keys)]
        lengths = array("I", [size + 50 for size in sizes[:count]])
        self.index.extend(
            Run(
                topic_id=1, seq_start=first, ts=ts, lengths=lengths, sizes=array("I", sizes[:count]),
                offset=self.offset, tags=cut[0], nodes=cut[1], expires=cut[2], jobs=cut[3], keys=cut[4],
                flags=_flags(count, *cut[:2]),
            )
        )  # fmt: skip
        for i in range(count):
            labels = [
                column[i] if column else empty
                for column, empty in zip(cut, (b"", b"", 0, 0, b""), strict=True)
            ]
            self.slots.append(Naive(first + i, ts, sizes[i], *labels))
        self.offset += sum(lengths)
        self.look()

    @rule(data=st.data())
    def kill_range(self, data):
        start = data.draw(st.integers(self.index.start, self.index.stop))
        stop = data.draw(st.integers(start, self.index.stop))
        doomed = [
            slot
            for slot in self.present()[start - self.index.start : stop - self.index.start]
            if not slot.end
        ]

        assert len(doomed) == self.index.kill_range(start, stop, DeathCause.DELETED)
        for slot in doomed:
            slot.end = DeathCause.DELETED
        self.pop()

    @rule(data=st.data())
    def kill_seqs(self, data):
        seqs = sorted(data.draw(st.sets(st.integers(1, self.index.head_seq + 2), max_size=6)))
        doomed = [slot for slot in self.present() if slot.seq in seqs and not slot.end]

        assert len(doomed) == self.index.kill_seqs(seqs, DeathCause.EXPIRED)
        for slot in doomed:
            slot.end = DeathCause.EXPIRED
        self.pop()

    @rule(prefix=st.sampled_from(NAMES), data=st.data())
    def kill_tags(self, prefix, data):
        stop_seq = data.draw(st.integers(0, self.index.head_seq + 2))
        numbers = self.index.tags.labels.numbers_with_prefix(prefix)
        doomed = [
            slot
            for slot in self.present()
            if not slot.end and slot.tag and slot.tag.startswith(prefix) and slot.seq < stop_seq
        ]

        assert len(doomed) == self.index.kill_tags(numbers, stop_seq, DeathCause.DELETED)
        for slot in doomed:
            slot.end = DeathCause.DELETED
        self.pop()

    @rule(count=st.integers(1, 5))
    def lose(self, count):
        first = self.index.head_seq + 1
        self.index.lose(LostRange(first, first + count - 1, "crash", 0))
        self.lost |= set(range(first, first + count))
        self.look()

    def pop(self):
        self.index.pop_dead(self.floor)
        self.look()

    def present(self):
        """The slots from the first live one on."""
        base = min((slot.seq for slot in self.slots if not slot.end), default=self.index.head_seq + 1)
        return [slot for slot in self.slots if slot.seq >= base]

    def look(self):
        index, slots = self.index, self.present()
        live = [slot for slot in slots if not slot.end]

        assert len(slots) == index.stop - index.start
        assert (slots[0].seq if slots else index.head_seq + 1) == index.base_seq
        assert (len(live), sum(slot.size for slot in live)) == (index.live_count, index.live_bytes)
        for i, slot in enumerate(slots):
            at = index.start + i
            assert (at, slot.seq) == (index.position(slot.seq), index.seq_at(at))
            assert (slot.ts, slot.size) == (index.ts[at], index.sizes[at])
            assert bool(index.flags[at] & LIVE) is (slot.end is None) is index.is_live(slot.seq)
            assert slot.end is None or index.flags[at] & slot.end
        self.look_at_jobs(live)
        assert not any(index.is_live(seq) for seq in self.lost)
        for name in NAMES[1:]:
            number = index.tags.labels.number(name)
            assert [slot.seq for slot in live if slot.tag == name] == index.tags.seqs(number).tolist()
            assert bool(number) is any(slot.tag == name for slot in live)
            assert bool(index.nodes.number(name)) is any(slot.node == name for slot in live)
        for prefix in (b"", b"a", b"ab", b"c"):
            expected = {slot.tag for slot in live if slot.tag and slot.tag.startswith(prefix)}
            found = [index.tags.labels.name(n) for n in index.tags.labels.numbers_with_prefix(prefix)]
            assert sorted(expected) == found
        seqs = [slot.seq for slot in slots]
        for start, stop in (
            (0, len(slots)),
            (1, len(slots)),
            (0, len(slots) // 2),
            (len(slots) // 3, len(slots) // 2),
        ):
            assert (
                seqs[start:stop] == index.seqs(index.start + start, index.start + max(start, stop)).tolist()
            )
        for ts in range(6):
            expected = next((i for i, slot in enumerate(slots) if slot.ts >= ts), len(slots))
            assert index.start + expected == index.position_of_ts(ts)
        gone = [slot for slot in self.slots if slot.seq < index.base_seq]
        for first in (1, 3):
            deleted = sum(slot.end is DeathCause.DELETED for slot in gone if slot.seq >= first)
            expired = sum(slot.end is DeathCause.EXPIRED for slot in gone if slot.seq >= first)
            assert (deleted, expired) == index.past.counts(first, index.base_seq)

    def look_at_jobs(self, live):
        """Of a queue the index knows job and key of each live slot; of a log there is not even a column."""
        index = self.index
        if not index.of_queue:
            assert (index.jobs, index.key_ids, len(index.keys)) == (None, None, 0)
            return
        for slot in live:
            at = index.position(slot.seq)
            assert slot.job == (0 if index.jobs is None else index.jobs[at])
            assert slot.key == index.keys.name(0 if index.key_ids is None else index.key_ids[at])
        for name in NAMES[1:]:
            number, holders = index.keys.number(name), sum(slot.key == name for slot in live)
            assert holders == (index.keys.holders(number) if number else 0)


TestColumns = Columns.TestCase
TestColumns.settings = settings(stateful_step_count=25)


class Compacting(Index):
    """Compacts its front all the time."""

    COMPACT_MIN = 2
    __slots__ = ()


@pytest.mark.parametrize("seed", range(5))
def test_compacting_the_front_changes_nothing_that_can_be_seen(seed):
    machine = Columns()
    machine.index = Compacting(of_queue=True)
    for step in range(20):
        size = 1 + (step * 7 + seed) % 9
        machine.extend(size, 1, NAMES[1:] * 3, None if step % 2 else NAMES * 3, None, [step % 5] * 9,
                       [7] * 9 if step > 5 else None, NAMES * 3 if step % 3 else None)  # fmt: skip
        index = machine.index
        doomed = [slot for slot in machine.present()[: max(1, size - seed % 3)] if not slot.end]
        index.kill_range(index.start, index.position(doomed[-1].seq + 1), DeathCause.DELETED)
        for slot in machine.present():
            if slot.seq <= doomed[-1].seq:
                slot.end = slot.end or DeathCause.DELETED
        machine.pop()
        if step % 4 == 3:
            machine.lose(2)
    assert machine.index.start < 40  # the front did not just grow


class Ranges(RuleBasedStateMachine):
    """Lost ranges against a dict of seqs."""

    def __init__(self):
        super().__init__()
        self.ranges, self.reasons, self.last = LostRanges(), {}, 0

    @rule(gap=st.integers(0, 3), size=st.integers(1, 4), reason=st.sampled_from(["crash", "corrupt"]))
    def add(self, gap, size, reason):
        first = self.last + gap + 1
        self.last = first + size - 1
        self.ranges.add(LostRange(first, self.last, reason, self.last))
        self.reasons |= dict.fromkeys(range(first, self.last + 1), reason)
        self.look()

    @rule(seq=st.integers(0, 60))
    def drop(self, seq):
        ends = {found.last: found for found in self.ranges}
        assert [found for last, found in ends.items() if last < seq] == self.ranges.drop_below(seq)
        for found in ends.values():
            if found.last < seq:
                for each in range(found.first, found.last + 1):
                    del self.reasons[each]
        self.look()

    def look(self):
        for seq in range(self.last + 3):
            found = self.ranges.at(seq)
            assert self.reasons.get(seq) == (found.reason if found else None)
            assert sum(lost < seq for lost in self.reasons) == self.ranges.count_below(seq)
            after = [found for found in self.ranges if found.first >= seq]
            assert (after[0] if after else None) == self.ranges.next_from(seq)
        listed = list(self.ranges)
        for one, two in pairwise(listed):  # adjoining ranges of one reason are one
            assert one.last < two.first
            assert (one.last + 1, one.reason) != (two.first, two.reason)


TestRanges = pytest.mark.rule("S2.22", "S1.7")(Ranges.TestCase)


def test_many_ranges_are_added_at_the_cost_of_each():
    """A repair of a topic with scattered deletes leaves thousands, and each start adds them all: 60 s are for that."""
    ranges, count = LostRanges(), 200_000
    for number in range(count):
        ranges.add(LostRange(2 * number + 1, 2 * number + 1, "corrupt", 0))
    assert (len(ranges), ranges.count_below(2 * count)) == (count, count)


def test_the_past_counts_ends_within_any_bounds():
    past, ends = Past(), {}
    for first, last, end in (
        (1, 3, DeathCause.DELETED),
        (4, 4, DeathCause.EXPIRED),
        (5, 6, DeathCause.EXPIRED),
        (9, 12, DeathCause.DELETED),
    ):
        past.add(first, last, end)
        ends |= dict.fromkeys(range(first, last + 1), end)
    assert len(past) == 3
    for floor in (0, 2, 5, 10):
        past.drop_below(floor)
        for first in range(max(floor, 1), 14):
            for last in range(first, 14):
                inside = [ends.get(seq) for seq in range(first, last + 1)]
                assert (inside.count(DeathCause.DELETED), inside.count(DeathCause.EXPIRED)) == past.counts(
                    first, last
                )


def test_labels_give_numbers_back_and_use_them_again():
    labels = Labels()
    first = labels.hold_all([b"a", b"", b"b", b"a"])
    assert first == [1, 0, 2, 1]
    labels.release(1)
    assert b"a" in labels
    labels.release(1)
    assert b"a" not in labels
    assert labels.hold_all([b"c"]) == [1]
    assert [labels.name(n) for n in labels.numbers_with_prefix(b"")] == [b"b", b"c"]


def test_a_copy_of_the_tags_grows_by_itself():
    """The oracle of the crash tests folds onto copies."""
    tags = TagIndex()
    a, _ = tags.extend([b"a", b"b"], 1)
    twin = copy.deepcopy(tags)
    twin.extend([b"a"], 3)

    assert (list(tags.seqs(a)), list(twin.seqs(a))) == ([1], [1, 3])
