"""A topic, its image, and the topic of the image: the same slots, ends, labels and sums."""

from __future__ import annotations

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from topics.codec.log.frame import Run
from topics.codec.log.layout import NODE, TAG
from topics.kernel.config import TopicConfig
from topics.log import fold
from topics.log.image import take_image, topic_of
from topics.log.past import DeathCause
from topics.log.segments import Segments
from topics.log.slots import slots_between
from topics.log.topic import Topic

NAMES = [b"a", b"b", b"c"]
# Seqs in a row that share a fate; above 64 a start kills them by one call.
STRETCHES = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 63, 64, 65, 200]),
        st.sampled_from([None, DeathCause.DELETED, DeathCause.EXPIRED]),
    ),
    min_size=1,
    max_size=12,
)


def topic_with(stretches):
    """A topic whose records die stretch by stretch, all of them in one segment."""
    count = 2 + sum(size for size, _ in stretches)
    names = [NAMES[i % 3] for i in range(count)]
    sizes = array("I", [50 + i % 7 for i in range(count)])
    topic = Topic(1, "t", 1, TopicConfig())
    run = Run(
        topic_id=1, seq_start=1, ts=5, lengths=array("I", sizes), sizes=sizes, tags=names, nodes=names[::-1],
        flags=bytes((TAG | NODE,)) * count, durable=False,
    )  # fmt: skip
    fold.run(topic, run, b"")
    first, index = 2, topic.index  # the first and the last live on
    for size, end in stretches:
        if end is not None:
            index.kill_range(index.position(first), index.position(first + size), end)
        first += size
    return topic


@given(stretches=STRETCHES)
@example(
    stretches=[
        (1, DeathCause.DELETED),
        (1, None),
        (1, DeathCause.EXPIRED),
        (65, DeathCause.DELETED),
        (64, DeathCause.EXPIRED),
    ]
)
def test_whatever_died_and_wherever_the_topic_of_an_image_is_the_topic(stretches):
    topic = topic_with(stretches)
    index = topic.index
    as_written = topic_with([(size, None) for size, _ in stretches]).index
    topic.segments = Segments([], topic.head_seq)
    again = topic_of(take_image(topic), [slots_between(as_written, as_written.start, as_written.stop)]).index

    assert bytes(again.flags) == bytes(index.flags)
    assert (again.live_count, again.live_bytes) == (index.live_count, index.live_bytes)
    for name in NAMES:
        held, kept = (one.tags.seqs(one.tags.labels.number(name)) for one in (again, index))
        assert list(held) == list(kept)
        assert again.nodes.holders(again.nodes.number(name)) == index.nodes.holders(index.nodes.number(name))


def test_more_scattered_dead_than_one_call_takes():
    as_written, topic = (topic_with([(140_000, None)]) for _ in range(2))
    topic.index.kill_seqs(list(range(2, 140_000, 2)), DeathCause.DELETED)
    topic.segments = Segments([], topic.head_seq)
    written = as_written.index
    again = topic_of(take_image(topic), [slots_between(written, written.start, written.stop)]).index

    assert again.flags == topic.index.flags
    assert (again.live_count, again.live_bytes) == (topic.index.live_count, topic.index.live_bytes)
    for name in NAMES:
        held, kept = (one.tags.seqs(one.tags.labels.number(name)) for one in (again, topic.index))
        assert list(held) == list(kept)
