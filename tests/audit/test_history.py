"""What became of one record or job, by the log and the snapshots."""

import pytest

import topics
from tests.support.sample_store import CLICKS, FAILED, JOBS, build, disk_of
from topics.audit.history import Standing, history, queue_items
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Code, Rejected
from topics.testing.clock import ManualClock

LATE_MS = 10**13


@pytest.fixture(scope="module")
def disk():
    return disk_of(build().files)


def test_a_job_that_failed_twice_is_followed_to_its_dead_letter(disk):
    found = history(disk, "here", JOBS, 3, LATE_MS)
    events = found.events

    assert [(one.event, one.node, one.reason or one.dest) for one in events] == [
        ("put", None, None),
        ("claimed", "w1", None),
        ("released", "w1", "no paper"),
        ("claimed", "w0", None),
        ("released", "w0", "no paper"),
        ("dead_lettered", None, "no paper"),
        ("moved", None, None),
    ]
    assert events[1].lease_id == events[2].lease_id != events[3].lease_id == events[4].lease_id
    assert [one.ts for one in events] == sorted(one.ts for one in events)
    assert all(disk.size(one.file) > one.offset > 0 for one in events)
    assert found.now == Standing(state="moved", reason="no paper", dest=FAILED, dest_seq=1)
    assert history(disk, "here", FAILED, 1, LATE_MS).now == Standing(
        state="moved", reason="redrive", dest=JOBS, dest_seq=13
    )


def test_what_was_extended_has_its_new_deadline(disk):
    claimed, extended, acked = history(disk, "here", JOBS, 6, LATE_MS).events[-3:]

    assert (claimed.event, extended.event, acked.event) == ("claimed", "extended", "acked")
    assert extended.deadline == claimed.deadline + 20_000


def test_a_job_stands_as_it_does_at_that_moment(disk):
    (put, claimed) = history(disk, "here", JOBS, 7, LATE_MS).events
    now = history(disk, "here", JOBS, 7, claimed.deadline).now

    assert (put.event, now.state, now.node, now.deadline) == ("put", "in_flight", "w4", claimed.deadline)
    ended = history(disk, "here", JOBS, 7, claimed.deadline + 1).now
    assert ended == Standing(state="ready", deliveries=1, reason="expired")


def test_nothing_is_said_of_what_is_not_there(disk):
    found = history(disk, "here", JOBS, 99, LATE_MS)
    assert (found.events, found.now) == ([], Standing(state="unborn"))
    with pytest.raises(Rejected) as refused:
        history(disk, "here", "none", 1, LATE_MS)
    assert refused.value.code is Code.TOPIC_NOT_FOUND
    with pytest.raises(Rejected) as refused:
        queue_items(disk, "here", CLICKS)
    assert refused.value.code is Code.NOT_A_QUEUE


def became(root, name, seq, now_ms):
    found = history(ReadOnlyDisk(root), str(root), name, seq, now_ms)
    return [one.event for one in found.events], found.now.state, found.now.reason


@pytest.mark.parametrize("absorbed", [False, True])
def test_each_end_of_a_record_is_told(tmp_path, absorbed):
    """Also where checkpoints have absorbed the log, as far as the state still knows."""
    clock = ManualClock()
    now_ms = clock.now_ms()
    with topics.open(tmp_path / "data", clock=clock) as store:
        log, capped, mortal = store.topic("log"), store.topic("capped"), store.topic("mortal")
        store.create("capped", cap_records=2)
        store.create("mortal", ttl_ms=1000)
        log.put_many([{"data": 1, "tag": "a" if seq in (4, 5) else "b"} for seq in range(1, 7)])
        log.put(7, ttl_ms=1000)
        capped.put_many([{"data": seq} for seq in range(1, 5)])
        mortal.put(1)
        log.delete(match="b", before_seq=2)
        log.delete(before_seq=3)
        log.delete(match="a", before_seq=5)
        if absorbed:
            for _ in range(3):
                store.topic("other").put_many([{"data": "x" * 100_000}] * 20)
                store.compact()
    root, put = tmp_path / "data", [] if absorbed else ["put"]
    deleted = [*put, *([] if absorbed else ["deleted"])]

    assert became(root, "log", 1, now_ms) == (
        deleted, "deleted", None if absorbed else 'match ["tag","Eq","b"]',
    )  # fmt: skip
    assert became(root, "log", 2, now_ms) == (deleted, "deleted", None if absorbed else "before_seq 3")
    assert became(root, "log", 3, now_ms) == (put, "live", None)
    assert became(root, "log", 4, now_ms) == (
        deleted, "deleted", None if absorbed else 'match ["tag","Eq","a"]',
    )  # fmt: skip
    assert became(root, "log", 5, now_ms) == (put, "live", None)
    assert became(root, "log", 7, now_ms) == (put, "live", None)
    assert became(root, "log", 7, now_ms + 1001) == (put, "expired", None)
    assert became(root, "log", 8, now_ms) == ([], "unborn", None)
    assert became(root, "capped", 2, now_ms) == (put, "lost", "cap")
    assert became(root, "capped", 3, now_ms) == (put, "live", None)
    assert became(root, "mortal", 1, now_ms) == (put, "live", None)
    assert became(root, "mortal", 1, now_ms + 1001) == (put, "lost", "ttl")
