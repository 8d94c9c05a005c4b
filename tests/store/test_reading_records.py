"""Reading records by their seqs: what is there is given, what is gone or damaged is named, whoever carries it out."""

from __future__ import annotations

import errno
from functools import partial

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.embed.test_damaged_reads import COUNT, Failing, damage, filled, place_of
from tests.store.test_reading import Room
from topics.embed.aio.fetch import Fetcher
from topics.embed.aio.thread import Threads
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.log.reads.records import RecordsQuery
from topics.store.reading import read_page
from topics.testing.simdisk import SimDisk


def on_this_thread(store, query):
    return read_page(query, store._opened.engine.plan_records, store._opened.reader.read)


def by_trio(store, query):
    fetcher, room = Fetcher(store._opened.reader, Threads()), Room()
    found = trio.run(partial(fetcher.records, store._opened.engine, query, room=room))
    assert room.size == 0
    return found


EVERY_DRIVER = pytest.mark.parametrize("driver", [on_this_thread, by_trio])


def id_of(store):
    return store._opened.engine.state.catalog.find("t").topic_id


def read(store, driver, seqs, **query):
    """(seqs given, gone, damaged) of all pages."""
    given, gone, damaged = [], [], []
    asked = RecordsQuery(topic_id=id_of(store), seqs=seqs, **query)
    while asked is not None:
        plan, views = driver(store, asked)
        assert [view.seq for view in views] == list(plan.seqs)
        assert all(msgspec.json.decode(view.data)["n"] == view.seq for view in views)
        assert views or not plan.left
        given += plan.seqs
        gone += plan.gone
        damaged += plan.damaged
        asked = asked.after(plan)
    return given, gone, damaged


@EVERY_DRIVER
@pytest.mark.parametrize("where", ["log", "segment"])
@given(
    asked=st.sets(st.integers(1, COUNT + 3)),
    bad=st.sets(st.integers(1, COUNT), max_size=9),
    before=st.integers(1, 9),
    limit=st.integers(1, COUNT),
    packed=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_each_record_is_given_or_named(driver, where, asked, bad, before, limit, packed):
    config = {"compression": "gzip", "compression_min_bytes": 1} if packed else {}
    store, disk, topic = filled(where=where, **config)
    for seq in bad:
        damage(disk, store, seq)
    topic.delete(before_seq=before)

    given, gone, damaged = read(store, driver, sorted(asked), limit=limit)

    dead = {seq for seq in asked if seq < before or seq > COUNT}
    assert gone == sorted(dead)
    assert damaged == sorted(asked & bad - dead)
    assert given == sorted(asked - bad - dead)


@EVERY_DRIVER
def test_a_page_ends_at_its_budget_and_has_one_record_at_least(driver):
    store, _, _ = filled(where="log")
    index = store._opened.engine.catalog.find("t").index
    size = index.sizes[index.position(3)]
    query = RecordsQuery(topic_id=id_of(store), seqs=[3, 5, 9], bytes_max=2 * size)

    assert [(list(plan.seqs), list(plan.left)) for plan, _ in [driver(store, query)]] == [([3, 5], [9])]
    assert read(store, driver, [3, 5, 9], bytes_max=1) == ([3, 5, 9], [], [])


@EVERY_DRIVER
def test_a_spot_that_the_medium_cannot_give_takes_its_record_and_no_other(driver):
    disk = SimDisk(1)
    port = Failing(disk, errno.EIO)
    store, _, _ = filled(where="segment", disk=disk, port=port)
    port.read_nowait = port.read
    port.spot = place_of(store, 23)[:2]

    assert read(store, driver, [1, 20, 22, 23, 24, 40]) == ([1, 20, 22, 24, 40], [], [23])


@EVERY_DRIVER
def test_an_error_that_may_pass_is_no_damage(driver):
    disk = SimDisk(1)
    port = Failing(disk, errno.EMFILE)
    store, _, _ = filled(where="segment", disk=disk, port=port)
    port.read_nowait = port.read
    port.spot = place_of(store, 23)[:2]
    with pytest.raises(Corrupt, match=r"seqs 22-24 cannot be read from .*; try again"):
        read(store, driver, [22, 23, 24])


@EVERY_DRIVER
def test_a_segment_that_is_gone_takes_what_it_had(driver):
    store, disk, topic = filled(where="segment")
    topic.put_many([{"data": {"n": i}} for i in range(COUNT + 1, COUNT + 21)])
    disk.unlink(place_of(store, 1)[0])

    assert read(store, driver, [2, COUNT, COUNT + 1]) == ([COUNT + 1], [], [2, COUNT])


def test_another_topic_of_the_name_is_another_topic():
    store, _, _ = filled(where="log")
    topic_id = id_of(store)
    store.delete("t")
    store.create("t").put({"n": 1})
    with pytest.raises(Rejected) as caught:
        on_this_thread(store, RecordsQuery(topic_id=topic_id, seqs=[1]))
    assert caught.value.code is Code.TOPIC_NOT_FOUND
