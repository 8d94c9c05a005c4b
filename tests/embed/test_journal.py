"""A journal is an internal topic: durable appends, all or nothing, read from the start, out of reach of others."""

from __future__ import annotations

import pytest

import topics
from topics.embed.journal import READ_ITEMS, TopicJournal
from topics.engine.commands import PutTopic
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.limits import Limits
from topics.testing.survival import Shape

ITEMS = [b"", b"\x00", b"{not json", b"x" * 100_000]


def test_items_come_back_in_order_whatever_bytes_they_are(store: topics.Store) -> None:
    journal = TopicJournal(store, "kv.a")
    journal.append(ITEMS)
    journal.append([])
    journal.append([b"last"])

    assert [*ITEMS, b"last"] == list(journal.read())
    assert journal.position == len(ITEMS) + 1


def test_an_empty_journal_has_no_items(store: topics.Store) -> None:
    assert list(TopicJournal(store, "kv.a").read()) == []


@pytest.mark.rule("R13.2")
def test_what_was_appended_is_there_after_the_power_went(open_sim, disk) -> None:
    store = open_sim()
    TopicJournal(store, "kv.a").append(ITEMS)
    disk.power_loss(Shape.NOTHING)

    with open_sim(machine_restarted=True) as again:
        assert list(TopicJournal(again, "kv.a").read()) == ITEMS


def test_a_journal_of_many_items_is_read_page_by_page(store: topics.Store) -> None:
    journal = TopicJournal(store, "kv.a")
    items = [b"%d" % i for i in range(2 * READ_ITEMS + 3)]
    journal.append(items)

    assert items == list(journal.read())


def test_a_snapshot_takes_the_place_of_what_was_before_it(open_sim) -> None:
    with open_sim() as store:
        journal = TopicJournal(store, "kv.a")
        journal.append([b"1", b"2"])
        journal.replace([b"both"])
        journal.append([b"3"])
        assert list(journal.read()) == [b"both", b"3"]
    with open_sim() as store:
        assert list(TopicJournal(store, "kv.a").read()) == [b"both", b"3"]


def test_an_append_above_the_limits_writes_nothing(open_sim) -> None:
    with open_sim(limits=Limits(records_per_write=3)) as store:
        journal = TopicJournal(store, "kv.a")
        with pytest.raises(Rejected) as refused:
            journal.append([b"x"] * 4)
        assert refused.value.code is Code.BATCH_TOO_LARGE
        assert list(journal.read()) == []


@pytest.mark.rule("S3.29", "R13.2")
def test_no_public_call_reaches_the_topic(store: topics.Store) -> None:
    TopicJournal(store, "kv.a").append([b"1"])

    assert store.list() == []
    assert store.list("$") == []
    for call in (store.topic, store.create, store.delete):
        with pytest.raises(Rejected, match="topic name"):
            call("$kv.a")


def test_a_journal_with_a_hole_is_not_read(store: topics.Store, disk) -> None:
    """A cap on the topic evicts: what a delete never does, so the reader is told."""

    journal = TopicJournal(store, "kv.a")
    journal.append([b"1", b"2", b"3"])
    store.call(PutTopic(topic="$kv.a", config=TopicConfig(cap_records=1)))
    journal.append([b"4"])

    with pytest.raises(Corrupt, match="items 1 to 3 of the journal are lost"):
        list(journal.read())


def test_two_journals_of_one_store_are_apart(store: topics.Store) -> None:
    first, second = TopicJournal(store, "kv.a"), TopicJournal(store, "kv.b")
    first.append([b"1"])
    second.append([b"2"])

    assert (list(first.read()), list(second.read())) == ([b"1"], [b"2"])
