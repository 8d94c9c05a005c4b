"""One loop reads pages for every driver: the same trouble on the disk gives the same pages, whoever carries it out."""

from __future__ import annotations

import errno
from functools import partial

import msgspec
import pytest
import trio

from tests.embed.test_damaged_reads import COUNT, Failing, damage, filled, place_of
from tests.embed.test_read_races import OPTIONS, half_dead, rewrite
from tests.support.embedded import Sly, simulated
from topics.audit.checks.records import read_intact
from topics.embed.aio.fetch import Fetcher, Form
from topics.embed.aio.thread import Threads
from topics.kernel.errors import Corrupt, Rejected
from topics.log.reads.diff import DiffQuery
from topics.store.reading import page_steps, read_page
from topics.testing.simdisk import SimDisk


class Room:
    """As much as anybody wants."""

    size = 0

    def reserve(self, size):
        self.size += size

    def settle(self, size):
        self.size = size


def on_this_thread(store, query):
    plan, views = read_page(query, store._opened.engine.plan_diff, store._opened.reader.read)
    return plan, [(view.seq, msgspec.json.decode(view.data)) for view in views]


def under_the_lock(store, query):
    plan, views = store._page(query)
    return plan, [(view.seq, msgspec.json.decode(view.data)) for view in views]


def by_trio(store, query):
    fetcher, room = Fetcher(store._opened.reader, Threads()), Room()
    plan, text = trio.run(partial(fetcher.page, store._opened.engine, query, form=Form(), room=room))
    assert room.size == (len(text) if plan.extents else 0)
    return plan, [(record["$seq"], record["data"]) for record in msgspec.json.decode(text)]


EVERY_DRIVER = pytest.mark.parametrize("driver", [on_this_thread, under_the_lock, by_trio])


def walk(store, driver, **query):
    """Each page as (seqs, next_from_seq), each error as what it says; its reader goes on as errors say."""
    told, from_seq, topic = [], 0, "t"
    while from_seq < store._opened.engine.topic_state(topic).head_seq:
        try:
            plan, records = driver(store, DiffQuery(topic=topic, from_seq=from_seq, **query))
        except Corrupt as error:
            told.append((error.detail["seq"], error.detail["last_seq"], error.detail["files"]))
            from_seq = error.detail["next_from_seq"]
            continue
        assert all(data["n"] in (seq, -1) for seq, data in records)
        told.append(([seq for seq, _ in records], plan.next_from_seq))
        from_seq = plan.next_from_seq
    return told


@EVERY_DRIVER
def test_a_page_ends_before_damage_and_the_next_one_tells_of_all_of_it(driver):
    store, disk, _ = filled(where="segment")
    for seq in (1, 17, 18, COUNT):
        damage(disk, store, seq)
    path = place_of(store, 1)[0]

    assert walk(store, driver, limit=20) == [
        (1, 1, [path]),
        (list(range(2, 17)), 16),
        (17, 18, [path]),
        (list(range(19, 39)), 38),
        ([39], 39),
        (COUNT, COUNT, [path]),
    ]


@EVERY_DRIVER
def test_a_spot_that_the_medium_cannot_give_is_narrowed_down(driver):
    disk = SimDisk(1)
    port = Failing(disk, errno.EIO)
    store, _, _ = filled(where="segment", disk=disk, port=port)
    port.read_nowait = port.read
    port.spot = place_of(store, 23)[:2]
    path = port.spot[0]
    told = walk(store, driver)

    assert [seq for page in told if len(page) == 2 for seq in page[0]] == [
        seq for seq in range(1, COUNT + 1) if seq != 23
    ]
    assert [page for page in told if len(page) == 3] == [(23, 23, [path])]


@EVERY_DRIVER
def test_an_error_that_may_pass_is_no_damage(driver):
    disk = SimDisk(1)
    port = Failing(disk, errno.EMFILE)
    store, _, _ = filled(where="segment", disk=disk, port=port)
    port.read_nowait = port.read
    port.spot = place_of(store, 23)[:2]
    with pytest.raises(Corrupt, match=r"seqs 1-40 cannot be read from .*; try again") as caught:
        driver(store, DiffQuery(topic="t"))

    assert "next_from_seq" not in caught.value.detail


@EVERY_DRIVER
def test_what_is_moved_between_plan_and_fetch_is_planned_again(driver):
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly, OPTIONS)
    sly.read_nowait = sly.read
    half_dead(store)
    done = []
    sly.before_read = lambda: done.append(rewrite(store))
    plan, records = driver(store, DiffQuery(topic="t", limit=1000))

    assert [seq for seq, _ in records][:66] == list(range(3, 201, 3))
    assert done == [4]
    assert plan.caught_up


@EVERY_DRIVER
def test_a_segment_that_is_gone_is_told_as_a_whole(driver):
    store, disk, topic = filled(where="segment")
    topic.put_many([{"data": {"n": i}} for i in range(COUNT + 1, COUNT + 21)])
    store.checkpoint()
    path = place_of(store, 1)[0]
    disk.unlink(path)

    assert walk(store, driver) == [(1, 50, [path]), (list(range(51, 61)), 60)]


@EVERY_DRIVER
def test_a_page_that_unfolds_to_more_than_its_budget_is_made_shorter(driver):
    store, _ = simulated()
    topic = store.create("t", durability="fsync", compression="gzip", compression_min_bytes=1)
    topic.put_many([{"data": {"n": n, "text": "x" * 2000}} for n in range(1, 31)])
    told = walk(store, driver, bytes_max=9000)

    assert [seq for seqs, _ in told for seq in seqs] == list(range(1, 31))
    assert [len(seqs) for seqs, _ in told] == [4] * 7 + [2]


@EVERY_DRIVER
def test_a_topic_that_goes_meanwhile_is_not_there(driver):
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly, OPTIONS)
    sly.read_nowait = sly.read
    half_dead(store)

    def delete():
        store.delete("t")
        path = disk.names("topics")[0]
        for name in disk.names(f"topics/{path}"):
            disk.unlink(f"topics/{path}/{name}")

    sly.before_read = delete
    with pytest.raises(Rejected, match="topic 't' does not exist"):
        driver(store, DiffQuery(topic="t", limit=1000))


def test_what_nobody_drives_reads_the_rest_around_damage_too():
    """The audit, over a state that nothing changes: records instead of pages."""
    store, disk, _ = filled(where="segment")
    for seq in (1, 17, 18, COUNT):
        damage(disk, store, seq)
    topic, told = store._opened.engine.state.catalog.find("t"), []
    found = read_intact(disk, topic, 0, topic.head_seq, lambda *damage: told.append(damage))

    assert [view.seq for view in found] == [*range(2, 17), *range(19, COUNT)]
    assert [(first, last) for first, last, _ in told] == [(1, 1), (17, 18), (COUNT, COUNT)]
    assert not any("from_seq" in why for _, _, why in told)


def test_an_error_of_a_driver_ends_the_read():
    steps = page_steps(DiffQuery(topic="t"))
    assert next(steps) == DiffQuery(topic="t")
    with pytest.raises(Rejected, match="it is full"):
        steps.throw(Rejected("throttled", "it is full"))
    with pytest.raises(StopIteration):
        next(steps)
