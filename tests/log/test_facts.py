"""What a topic knows is told once: no attribute is forgotten, and each goes into an image and comes out of it."""

from __future__ import annotations

import pytest

from topics.codec.log.frame import Run
from topics.codec.log.schedules import Schedule
from topics.engine.apply import Catalog
from topics.engine.verify import digest
from topics.kernel.config import Durability, TopicConfig
from topics.log.dedupe import Result
from topics.log.facts import OF_RECORDS, STANDING, digest_facts, taken
from topics.log.floors import Floors, Reason
from topics.log.image import TopicImage, take_image, topic_of
from topics.log.lost import LostRange
from topics.log.past import DeathCause
from topics.log.reads.consumers import CommittedPosition
from topics.log.routers import Inbound
from topics.log.segments import Segment, Segments
from topics.log.topic import Topic

ROWS = (*STANDING, *OF_RECORDS)
NAMES = {row.name for row in ROWS}


def knowing():
    """A topic of which each row says something; all its records have ended."""
    topic = Topic(7, "t", 3, TopicConfig(ttl_ms=5000))
    index = topic.index
    index.head_seq, index.base_seq = 9, 10
    index.lost.add(LostRange(6, 6, "crash", 44))
    index.past.add(5, 5, DeathCause.DELETED)
    index.past.add(7, 9, DeathCause.EXPIRED)
    topic.floors.evict_floor, topic.floors.lost_ts = 5, 33
    topic.floors.reasons = {Reason.TTL: 2, Reason.CAP: 4}
    topic.delete_below, topic.ceiling, topic.retired_ms, topic.watermark_ms = 6, 73, 55, 66
    topic.last_write_ts = 77
    topic.segments = Segments([Segment(9, 9, 50, 71, sealed=False)], 9)
    topic.results.add(b"k", Result(90, 123, 2, 8, ((1, 3),)))
    topic.dedup_ids.add(b"d", 9, 91)
    topic.dedup_ids.add(b"dl:1:1:4", 8, 91)
    topic.consumers.put("c", CommittedPosition(7, 80))
    topic.schedules.put(Schedule(id=3, name="nightly", cron="0 3 * * *", data=b"1"), 40)
    topic.schedules.note(b"sched:3:60")
    topic.inbound[4] = Inbound(cursor=9, total=2)
    return topic


def catalog_with(topic):
    catalog = Catalog()
    catalog.add(topic)
    return catalog


def test_no_attribute_of_a_topic_is_forgotten():
    """The others are what rows speak of in parts, or what is made of the rest."""
    parts, made = {"index", "floors"}, {"regions", "deadlines", "jobs"}

    assert set(Topic.__slots__) - NAMES == {"topic_id"} | parts | made
    assert set(Floors.__slots__) <= NAMES


def test_a_row_is_a_field_of_the_image_and_the_slots_are_the_rest():
    assert [row.name for row in ROWS if row.name not in TopicImage.__struct_fields__] == []
    assert set(TopicImage.__struct_fields__) - NAMES == {"topic_id", "dead", "slots", "regions", "jobs"}
    assert len(NAMES) == len(ROWS)


def test_what_goes_into_an_image_comes_out_of_it():
    topic = knowing()
    again = topic_of(take_image(topic), [])

    assert taken(again, ROWS) == taken(topic, ROWS)
    assert digest_facts(again, ROWS) == digest_facts(topic, ROWS)
    assert take_image(again) == take_image(topic)


@pytest.mark.parametrize("row", [row for row in ROWS if row.give is not None], ids=lambda row: row.name)
def test_topics_that_differ_in_one_row_have_other_digests(row):
    topic, other = knowing(), knowing()
    if row in STANDING:
        row.give(other, row.take(Topic(1, "new", 1, TopicConfig())))
    elif row.name == "moves":  # of a record that lives
        for one in (topic, other):
            one.index.extend(Run(topic_id=7, seq_start=10, ts=99, lengths=[50], sizes=[50]))
        row.give(other, [(10, "dlq", b"why", 1, 5)])
    elif row.name == "consumers":
        row.give(other, [("c", 9, 80)])  # it has read more
    else:  # an entry more
        row.give(other, [(key + b"2", *rest) for key, *rest in row.take(other)])

    assert row.take(other) != row.take(topic)
    assert digest(catalog_with(other)) != digest(catalog_with(topic))


def test_how_long_a_file_is_is_no_state():
    topic, other = knowing(), knowing()
    other.segments.resize(9, 1000)

    assert take_image(other) != take_image(topic)
    assert digest(catalog_with(other)) == digest(catalog_with(topic))


def test_an_ephemeral_topic_keeps_nothing_of_its_records():
    topic = knowing()
    topic.config = TopicConfig(durability=Durability.EPHEMERAL)
    run = Run(topic_id=7, seq_start=10, ts=99, lengths=[50], sizes=[50], flags=b"\0", durable=False)
    topic.index.extend(run)
    image = take_image(topic)

    assert (image.base_seq, image.head_seq) == (11, 10)
    assert (image.results, image.dedup_ids, image.dead, image.slots, image.regions) == ([], [], [], [], [])
