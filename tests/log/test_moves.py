"""What the frames of a move make of a topic, and what is remembered of records that came by one."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.moving.driving import Mover
from topics.codec.log.frame import Run
from topics.codec.log.leases import DeadLettered, Moved
from topics.engine.recovery.contradictions import contradictions
from topics.engine.verify import digest
from topics.kernel.config import TopicConfig
from topics.kernel.limits import MOVED_IDS_MAX
from topics.log import fold
from topics.log.dedupe import DedupIds
from topics.log.image import take_image
from topics.log.regions import WalFileId
from topics.log.topic import Topic

COUNT = 6
events = st.one_of(
    st.builds(
        lambda seqs: DeadLettered(b"dlq", b"why", array("Q", seqs)), st.lists(st.integers(1, 9), min_size=1)
    ),
    st.builds(lambda seqs: Moved(array("Q", seqs)), st.lists(st.integers(1, 9), min_size=1)),
    st.integers(1, COUNT + 1),  # a delete below
)


def topic_of(count):
    topic = Topic(1, "t", 1, TopicConfig())
    run = Run(topic_id=1, seq_start=1, ts=5, lengths=array("I", [50] * count), sizes=array("I", [4] * count))
    fold.run(topic, run, WalFileId(0, 0, 1))
    return topic


def take(topic, event, ts=7):
    match event:
        case DeadLettered():
            fold.begin_moves(topic, event, ts, lambda _, seqs, __: [seq * 10 for seq in seqs])
        case Moved():
            return fold.end_moves(topic, event)
        case int(before_seq):
            fold.delete(topic, before_seq=before_seq, match=None, upto=topic.head_seq)
    return 0


@given(st.lists(events))
def test_a_move_lasts_from_its_intent_until_its_end_or_that_of_its_record(frames):
    topic, live, moving = topic_of(COUNT), set(range(1, COUNT + 1)), dict[int, int]()
    for ts, event in enumerate(frames, 10):
        gone = take(topic, event, ts)
        match event:
            case DeadLettered(seqs=seqs):
                moving |= {seq: ts for seq in seqs if seq in live and seq not in moving}
            case Moved(seqs=seqs):
                assert gone == len(live & set(seqs))
                live -= set(seqs)
            case int(before_seq):
                live -= set(range(1, before_seq))
        moving = {seq: since for seq, since in moving.items() if seq in live}
        assert {seq: move.ts for seq, move in topic.moving().items()} == moving
        assert all(move.deliveries == 10 * seq for seq, move in topic.moving().items())
        assert [seq for seq in range(1, COUNT + 1) if topic.index.is_live(seq)] == sorted(live)
        assert take_image(topic).moves == [
            (seq, "dlq", b"why", 10 * seq, moving[seq]) for seq in sorted(moving)
        ]


@pytest.mark.rule("Q3.12")
def test_ids_of_what_was_moved_here_outlast_every_window():
    ids = DedupIds()
    for seq in range(1, MOVED_IDS_MAX + 3):
        ids.add(b"dl:1:1:%d" % seq, seq, 0)
        ids.add(b"plain %d" % seq, seq, 0)
        ids.retire(10, 0)

    assert ids.find(b"dl:1:1:2", 99) is None  # the oldest have gone, for there are too many
    assert ids.find(b"dl:1:1:3", 99) == 3
    assert ids.find(b"dl:1:1:%d" % (MOVED_IDS_MAX + 2), 99) == MOVED_IDS_MAX + 2
    assert (len(ids), len(ids.moved())) == (0, MOVED_IDS_MAX)


@pytest.mark.parametrize(
    "moves",
    [
        [(2, "dlq", b"", 0, 1), (2, "dlq", b"", 0, 1)],
        [(3, "dlq", b"", 0, 1), (2, "dlq", b"", 0, 1)],
        [(COUNT + 1, "dlq", b"", 0, 1)],
    ],
)
def test_what_no_image_says_of_moves(moves):
    image = take_image(topic_of(COUNT))
    assert list(contradictions(image)) == []
    image.moves = moves
    assert [what for what in contradictions(image) if what.startswith("moves")] != []
    image.moves, image.moved_ids = [], [(b"dl:1:1:1", COUNT + 1)]
    assert [what for what in contradictions(image) if what.startswith("moved_ids")] != []


def test_a_move_is_in_the_digest_and_its_dead_record_is_not():
    mover = Mover()
    mover.put("t")
    mover.append(1, 2)
    mover.begin_moves("t", [1, 2], "dlq")
    mover.run()
    mover.delete(before_seq=2)
    replayed = mover.replay()

    assert list(mover.topic().moving()) == [2]
    assert digest(replayed) == digest(mover.engine.catalog)
    mover.delete(before_seq=3)
    assert digest(replayed) != digest(mover.engine.catalog)
