"""Runs of dead slots leave the index, and nobody can tell: two topics take the same frames, and in one none leaves."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.dead_runs import leaving_from
from topics.codec.log.control import CheckpointMark
from topics.codec.log.frame import Run
from topics.codec.log.layout import NODE, TAG
from topics.codec.log.leases import Acked, Claimed, Grant
from topics.engine import verify
from topics.engine.apply import Catalog
from topics.kernel.config import Durability, TopicConfig, TopicType
from topics.log import fold
from topics.log.image import take_image, topic_of
from topics.log.jobs.transitions import JobState
from topics.log.kinds import kind_of
from topics.log.lost import LostRange
from topics.log.past import DeathCause
from topics.log.placing import leaving
from topics.log.reads import diff, records
from topics.log.reads.match import parse_match
from topics.log.regions import WalFileId
from topics.log.slots import Slots, append_slots, slots_between
from topics.log.topic import Topic

NAMES = [b"a", b"b"]
FRAME, END = 50, 1
NEVER = 1 << 40
CONFIGS = st.fixed_dictionaries(
    {"type": st.sampled_from(TopicType)},
    optional={
        "cap_records": st.sampled_from([50, 70]),
        "ttl_ms": st.sampled_from([100, 200]),
        "durability": st.just(Durability.EPHEMERAL),
    },
)


def digest_of(topic):
    catalog = Catalog()
    catalog.topics[1] = topic
    return verify.digest(catalog)


class Twins(RuleBasedStateMachine):
    """`kept` keeps every dead slot, of `left` runs of two leave."""

    @initialize(config=CONFIGS)
    def begin(self, config):
        self.kept, self.left = (Topic(1, "t", 1, TopicConfig(**config)) for _ in range(2))
        self.stored = []  # the slots of each segment, as they were written
        self.now = 5
        for tagged in (False, True, True):
            self.append(12, 2, tagged, None, None, stored=True)

    def fold(self, act):
        with leaving_from(NEVER):
            act(self.kept)
        with leaving_from(2):
            act(self.left)
        self.look()

    @rule(
        count=st.integers(1, 12), later=st.integers(0, 9), tagged=st.booleans(),
        lives=st.none() | st.lists(st.sampled_from([0, 9, 25]), min_size=12, max_size=12),
        delays=st.none() | st.lists(st.sampled_from([0, 20]), min_size=12, max_size=12), stored=st.booleans(),
    )  # fmt: skip
    def append(self, count, later, tagged, lives, delays, stored):
        self.now += later
        first = self.kept.head_seq + 1
        sizes = array("I", [9] * count)
        run = Run(
            topic_id=1, seq_start=first, ts=self.now, lengths=array("I", [FRAME] * count), sizes=sizes,
            offset=first * FRAME,
        )  # fmt: skip
        if tagged:
            run.tags = run.nodes = [NAMES[seq % 2] for seq in range(count)]
            run.flags = bytes((TAG | NODE,)) * count
        if lives:
            run.expires = [self.now + life if life else 0 for life in lives[:count]]
        if delays and self.kept.jobs is not None:
            run.jobs = [self.now + delay if delay else 0 for delay in delays[:count]]
            run.keys = [NAMES[seq % 2] for seq in range(count)]
        is_memory = self.kept.config.durability is Durability.EPHEMERAL
        self.fold(
            lambda topic: fold.run(topic, run, first.to_bytes(FRAME) if is_memory else WalFileId(0, 0, 1))
        )
        if stored:
            self.store(count, count == 9)

    @rule(later=st.integers(1, 30))
    def time_passes(self, later):
        self.now += later
        self.fold(lambda topic: fold.watermark(topic, self.now))

    @rule(share=st.integers(1, 10))
    def delete_below(self, share):
        upto = self.kept.head_seq
        self.fold(lambda topic: fold.delete(topic, before_seq=upto * share // 30, match=None, upto=upto))

    @rule(tag=st.sampled_from(["a", "b"]))
    def delete_tag(self, tag):
        match, upto = parse_match(tag, tag_bytes_max=256), self.kept.head_seq
        self.fold(lambda topic: fold.delete(topic, before_seq=None, match=match, upto=upto))

    @rule(start=st.integers(0, 9), share=st.integers(1, 4))
    def end_a_stretch(self, start, share):
        """As jobs end, or as records that have moved."""
        head = self.kept.head_seq
        first = 1 + head * start // 10
        seqs = array("Q", range(first, min(head, first + head * share // 10) + 1))
        if self.kept.jobs is None:
            self.fold(lambda topic: topic.index.kill_seqs(list(seqs), DeathCause.DELETED) and self.pop(topic))
        else:
            self.handle(Acked(b"", seqs, seqs))

    def pop(self, topic):
        topic.index.pop_dead(topic.evict_floor)
        topic.trim()

    @rule(share=st.integers(0, 9), count=st.integers(1, 4))
    def claim(self, share, count):
        head = self.kept.head_seq
        first = 1 + head * share // 10
        seqs = array("Q", range(first, min(head, first + count - 1) + 1))
        if seqs and self.kept.jobs is not None:
            self.handle(Claimed(1, first, (Grant(b"w", self.now + 20, len(seqs)),), seqs))

    def handle(self, event):
        class Item:
            payload, ts = event, self.now

        self.fold(lambda topic: kind_of(topic).fold(topic, Item))

    @rule(count=st.integers(1, 3), reason=st.sampled_from(["crash", "corrupt"]))
    def lose(self, count, reason):
        first = self.kept.head_seq + 1
        lost = LostRange(first, first + count - 1, reason, self.now)
        self.fold(lambda topic: fold.loss(topic, lost))

    @rule(count=st.integers(1, 30), sealed=st.booleans())
    def store(self, count, sealed):
        """A mark, as the next checkpoint would make it."""
        topic = self.kept
        index, active = topic.index, topic.segments.active
        first = max(topic.segments.stored_seq + 1, index.base_seq)
        while (lost := index.lost.at(first)) is not None:
            first = lost.last + 1
        if topic.config.durability is Durability.EPHEMERAL or first > topic.head_seq:
            return
        if active is not None and active.last + 1 != first:
            segment, at, last, sealed = active.first, active.size, active.last, True
            first = last + 1
        else:
            following = index.lost.next_from(first)
            last = min(first + count - 1, topic.head_seq if following is None else following.first - 1)
            segment, at = (first, 0) if active is None else (active.first, active.size)
        size = at + (last + 1 - first) * (FRAME + END)
        self.fold(
            lambda topic: fold.checkpoint(topic, CheckpointMark(segment, first, last, size, sealed), self.now)
        )
        if first <= last:
            self.stored.append(slots_between(index, index.position(first), index.position(last + 1)))

    @rule()
    def rewrite(self):
        """A segment's files say where its records lie, and that dead ones have no bytes."""
        for segment in list(self.kept.segments):
            is_live = [self.kept.index.is_live(seq) for seq in range(segment.first, segment.last + 1)]
            lengths = array("I", [FRAME if live else 0 for live in is_live])
            offsets = array("I", [sum(lengths[:i]) + sum(is_live[:i]) for i in range(len(lengths))])
            size = sum(lengths) + sum(is_live)
            self.fold(
                lambda topic, args=(segment, offsets, lengths), size=size: topic.place_segment(
                    *args, size=size
                )
            )

    @rule()
    def start_again(self):
        """From a snapshot and what the segments' files say: no slot has died there, and none has left."""
        image = take_image(self.kept)
        if self.kept.config.durability is Durability.EPHEMERAL:
            return
        stored = [one for slots in self.stored if (one := self.loaded(slots)) is not None]
        before = digest_of(self.kept)
        with leaving_from(NEVER):
            self.kept = topic_of(image, stored)
        with leaving_from(2):
            self.left = topic_of(image, stored)

        assert before == digest_of(self.kept)
        self.look()

    def loaded(self, slots) -> Slots | None:
        """The slots from the first live seq on, all of them live."""
        skip = max(self.kept.earliest_seq - slots.first_seq, 0)
        if skip >= len(slots):
            return None
        whole = Topic(1, "t", 1, self.kept.config).index
        whole.base_seq = slots.first_seq

        slots = Slots(**{name: getattr(slots, name) for name in Slots.__struct_fields__})
        slots.flags = bytes(flags & ~6 | 1 for flags in slots.flags)
        append_slots(whole, slots)
        whole.head_seq = slots.first_seq + len(slots) - 1
        return slots_between(whole, skip, whole.stop)

    def look(self):
        kept, left = self.kept, self.left
        for topic in (kept, left):
            verify.check_topic(topic)
        images = take_image(kept), take_image(left)

        assert images[0] == images[1]
        assert digest_of(kept) == digest_of(left)
        assert (kept.earliest_seq, kept.index.live_bytes) == (left.earliest_seq, left.index.live_bytes)
        seqs = list(range(kept.head_seq + 3))
        assert [at >= 0 for at in kept.index.find_all(seqs)] == [at >= 0 for at in left.index.find_all(seqs)]
        assert all((left.index.find(seq) >= 0) == kept.index.is_live(seq) for seq in seqs)
        live = [seq for seq in seqs if kept.index.is_live(seq)]
        sources = [[topic.regions.source_until(seq)[0] for seq in live] for topic in (kept, left)]
        assert sources[0] == sources[1]
        assert kept.jobs is None or kept.jobs.counts == left.jobs.counts

    @rule(
        share=st.integers(0, 10), by_ts=st.booleans(), limit=st.sampled_from([1, 3, 256]), matched=st.booleans(),
        own=st.booleans(), frames=st.sampled_from([2, 5, 100]),
    )  # fmt: skip
    def read(self, share, by_ts, limit, matched, own, frames):
        query = diff.DiffQuery(
            topic="t", from_seq=self.kept.head_seq * share // 10, from_ts=self.now * share // 10 if by_ts else None,
            limit=limit, match=parse_match("a", tag_bytes_max=256) if matched else None,
            nodes=frozenset([b"b"] if own else ()), bytes_max=frames * FRAME,
        )  # fmt: skip
        kept, left = self.kept, self.left

        for _ in range(3):  # and on from there
            pages = [diff.plan(topic, query, now_ms=self.now, durable_seq=0) for topic in (kept, left)]
            assert unsourced(pages[0]) == unsourced(pages[1])
            query = msgspec.structs.replace(query, from_seq=pages[0].next_from_seq, from_ts=None)
        asked = records.RecordsQuery(topic_id=1, seqs=range(1, kept.head_seq + 2), bytes_max=frames * FRAME)
        assert unsourced(records.plan(kept, asked)) == unsourced(records.plan(left, asked))


def unsourced(plan):
    """Live records of a topic in memory lie in other extents where what is between them has gone."""
    return msgspec.structs.replace(plan, extents=())


JOBS, TOGETHER, SEGMENT = 200_000, 1000, 10_000
SLOT = 25  # bytes of a job without labels: ts, offset, length, size, flags, row


def held_in_front(order):
    """The first job of very many is leased, and all others are done, before or after segments have them."""
    topic = Topic(1, "jobs", 1, TopicConfig(type=TopicType.QUEUE))

    def take(event):
        class Item:
            payload, ts = event, 5

        kind_of(topic).fold(topic, Item)

    for first in range(1, JOBS + 1, TOGETHER):
        lengths = array("I", [FRAME] * TOGETHER)
        run = Run(topic_id=1, seq_start=first, ts=5, lengths=lengths, sizes=lengths, offset=first)
        fold.run(topic, run, WalFileId(0, 0, 1))
    take(Claimed(1, 1, (Grant(b"w", NEVER, 1),), array("Q", [1])))
    stored = slots_between(topic.index, 0, JOBS)

    def store():
        for first in range(1, JOBS + 1, SEGMENT):
            mark = CheckpointMark(first, first, first + SEGMENT - 1, SEGMENT * (FRAME + END), sealed=True)
            fold.checkpoint(topic, mark, 5)

    def finish():
        for first in range(1, JOBS + 1, TOGETHER):
            seqs = array("Q", range(max(first, 2), first + TOGETHER))
            take(Acked(b"w", seqs, seqs))

    acts = {"store": store, "finish": finish}
    for act in order:
        acts[act]()
    return topic, stored


def room_of(index):
    """Bytes of the columns, and of what is told of seqs without a slot."""
    columns = sum(len(one) * getattr(one, "itemsize", 1) for one in index.columns())
    return columns + 150 * len(index.slotless)


@pytest.mark.rule("T5.24")
@pytest.mark.parametrize("order", [("store", "finish"), ("finish", "store")])
def test_finished_jobs_behind_one_that_is_held_take_no_room(order):
    with leaving_from(NEVER):
        kept, _ = held_in_front(order)
    topic, stored = held_in_front(order)
    again = topic_of(take_image(topic), [stored])

    assert room_of(kept.index) == SLOT * JOBS
    assert room_of(topic.index) < 2 * SLOT * leaving.RUN_MIN
    assert room_of(again.index) < 2 * SLOT * leaving.RUN_MIN
    assert digest_of(kept) == digest_of(topic) == digest_of(again)
    assert topic.jobs is not None
    assert topic.jobs.rows.jobs_in(JobState.IN_FLIGHT) == [1]


def test_until_a_segment_has_them_they_stay():
    """The next mark counts each slot between the last one and the head."""
    topic, _ = held_in_front(["finish"])

    assert topic.index.stop - topic.index.start == JOBS


TestTwins = Twins.TestCase
TestTwins.settings = settings(stateful_step_count=25)
