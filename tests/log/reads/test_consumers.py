"""Where consumers stand: what frames make of it, and what no image of a topic can say of it."""

import pytest

from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.codec.log.frame import Run
from topics.engine.recovery.contradictions import contradictions
from topics.kernel.config import TopicConfig
from topics.kernel.limits import CONSUMERS_PER_TOPIC_MAX
from topics.log.image import take_image
from topics.log.reads.consumers import CommittedPosition, Consumers
from topics.log.regions import WalFileId
from topics.log.topic import Topic


def folded(*commits):
    consumers = Consumers()
    for ts, commit in enumerate(commits):
        consumers.fold(commit, ts)
    return consumers.sorted()


def test_a_set_goes_anywhere_and_a_commit_forward_only():
    moved = [
        ConsumerCommit(ConsumerChange.SET, "b", 5),
        ConsumerCommit(ConsumerChange.SET, "a", 9),
        ConsumerCommit(ConsumerChange.COMMIT, "b", 7),
        ConsumerCommit(ConsumerChange.COMMIT, "b", 6),
        ConsumerCommit(ConsumerChange.COMMIT, "b", 7),
        ConsumerCommit(ConsumerChange.SET, "a", 2),
    ]

    assert folded(*moved) == [("a", CommittedPosition(2, 5)), ("b", CommittedPosition(7, 2))]


def test_whatever_the_log_says_is_folded():
    """A commit of who is not there, a deletion of one: a damaged log may have lost what was before it."""
    assert (
        folded(ConsumerCommit(ConsumerChange.COMMIT, "a", 7), ConsumerCommit(ConsumerChange.DELETE, "a"))
        == []
    )


@pytest.mark.parametrize(
    "consumers",
    [
        [("c", 4, 0)],  # beyond the head
        [("b", 1, 0), ("a", 1, 0)],
        [("a", 1, 0), ("a", 2, 0)],
        [("$a", 1, 0)],
        [("", 1, 0)],
        [(f"c{number:04}", 1, 0) for number in range(CONSUMERS_PER_TOPIC_MAX + 1)],
    ],
    ids=["beyond", "descending", "twice", "internal", "nameless", "many"],
)
def test_an_image_that_cannot_be(consumers):
    topic = Topic(7, "t", 1, TopicConfig())
    topic.index.extend(Run(topic_id=7, seq_start=1, ts=9, lengths=[50] * 3, sizes=[50] * 3))
    topic.regions.extend(1, WalFileId(0, 0, 1))
    image = take_image(topic)
    image.consumers = [("a", 3, 0), ("b", 0, 0)]
    assert list(contradictions(image)) == []

    image.consumers = consumers

    assert [what for what in contradictions(image) if what.startswith("consumers")] != []
