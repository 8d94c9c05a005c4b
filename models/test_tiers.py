"""Whatever is written, deleted, checkpointed, moved between the tiers and crashed: a reader finds what is there.

The model is a dict. The store fails and is away now and then; then a reader of cold records is refused, never misled.
Whoever sends a record again is told its seq, however often the store was opened since.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.faulty_store import FaultyStore
from tests.support.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.relocation import AGAIN_MS
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.kernel.errors import Code, Rejected
from topics.testing.below import Below
from topics.testing.survival import Shape

TAGS = (b"red", b"blue", b"")
TOPIC = "t"


class Tiers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.scene = Scene(
            limits=SMALL,
            segments=SegmentRules(records_max=4, bytes_max=600),
            hot=HotRules(retain_segments=1),
            cold=lambda disk: FaultyStore(LocalSegmentStore(Below(disk, "cold"), "cold")),
        )
        self.scene.open()
        self.scene.create(TOPIC, durability="fsync", dedup_window_ms=1_000_000_000)
        self.store = self.scene.cold
        self.live: dict[int, tuple[bytes, bytes]] = {}
        self.seqs: list[int] = []  # of every record that was ever written, which are numbered so

    @rule(tags=st.lists(st.sampled_from(TAGS), min_size=2, max_size=10))
    def put(self, tags):
        datas = [b"%d" % (len(self.seqs) + i) for i in range(len(tags))]
        reply = self.scene.put(TOPIC, *datas, tag=tags, dedup_id=datas)
        self.live |= dict(zip(reply.seqs, zip(datas, tags, strict=True), strict=True))
        self.seqs += reply.seqs

    @precondition(lambda self: self.seqs)
    @rule(part=st.integers(0, 9))
    def put_again(self, part):
        number = (len(self.seqs) - 1) * part // 9
        reply = self.scene.put(TOPIC, b"again", dedup_id=[b"%d" % number])
        assert (reply.deduped, list(reply.seqs)) == (True, [self.seqs[number]])

    @rule(tag=st.sampled_from(TAGS[:2]))
    def delete_tag(self, tag):
        self.scene.delete(TOPIC, match=tag.decode())
        self.live = {seq: found for seq, found in self.live.items() if found[1] != tag}

    @rule(part=st.integers(1, 6))
    def delete_below(self, part):
        stop = len(self.seqs) // part // 2 + 1
        self.scene.delete(TOPIC, before_seq=stop)
        self.live = {seq: found for seq, found in self.live.items() if seq >= stop}

    @rule()
    def checkpoint(self):
        self.scene.checkpoint()

    @rule(trouble=st.sampled_from((None, None, "put", "read_range", "delete", "len")))
    def relocate(self, trouble):
        """Behind writes and a checkpoint, or there would be nothing to move."""
        self.put(TAGS * 2)
        self.scene.checkpoint()
        fails = self.store.fails
        self.store.fails = fails | {trouble}
        self.scene.relocate()
        self.store.fails = fails
        if trouble is not None:
            self.scene.clock.advance(AGAIN_MS)

    @rule(count=st.integers(1, 3))
    def background(self, count):
        """What is due between rounds, so many slices of it."""
        for _ in range(count):
            steps = self.scene.opened.checkpointer.between()
            if steps is None:
                return
            self.scene.carry(steps)

    @rule(steps_max=st.integers(1, 24), power=st.booleans(), shape=st.sampled_from(Shape), away=st.booleans())
    def break_off(self, steps_max, power, shape, away):
        """The end comes in the middle of something, and maybe the next start without the cold directory."""
        self.put(TAGS * 3)  # so that there is something
        self.scene.checkpoint()
        left = steps_max
        while left and (steps := self.scene.opened.checkpointer.between()) is not None:
            while left and (step := next(steps, None)) is not None:
                self.scene.carry(one for one in (step,))
                left -= 1
            if not left:
                steps.close()
        if power:
            self.scene.power_loss(shape)
        else:
            self.scene.process_death()
        if away:
            self.scene.cold = None
        self.scene.open()

    @rule(
        fails=st.sampled_from(
            ((), (), (), ("put",), ("read_range",), ("delete",), ("list", "len"), ("exists",))
        )
    )
    def weather(self, fails):
        self.store.fails = set(fails)
        self.scene.clock.advance(AGAIN_MS)

    @precondition(lambda self: self.scene.cold is not None)
    @rule()
    def start_without_the_cold_directory(self):
        self.scene.process_death()
        self.scene.cold = None
        self.scene.open()

    @precondition(lambda self: self.scene.cold is None)
    @rule()
    def start_with_it_again(self):
        self.scene.process_death()
        self.scene.cold = self.store
        self.scene.open()

    @invariant()
    def a_reader_finds_what_is_there_or_is_refused(self):
        assert not self.scene.opened.damages
        expected = {seq: data for seq, (data, _) in self.live.items()}
        try:
            assert self.scene.read(TOPIC) == expected
        except Rejected as error:
            refused = error
        else:
            return
        assert refused.code is Code.NOT_READY
        assert self.scene.cold is None or "read_range" in self.store.fails

    def teardown(self):
        """With the store there and well again everything is read."""
        self.store.fails = set()
        if self.scene.cold is None:
            self.start_with_it_again()
        self.a_reader_finds_what_is_there_or_is_refused()
        self.scene.clock.advance(AGAIN_MS)
        self.relocate(None)
        self.a_reader_finds_what_is_there_or_is_refused()


Tiers.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_tiers = Tiers.TestCase
