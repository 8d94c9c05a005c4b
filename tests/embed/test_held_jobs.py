"""Jobs that are done behind one that is held: they take no room, and nobody who asks or starts can tell."""

from __future__ import annotations

import pytest

import topics
from topics.log.placing.leaving import RUN_MIN

DONE = 4 * RUN_MIN
HEAD = DONE + 1


def slots_of(store):
    index = store._local.engine.catalog.find("jobs").index
    return index.stop - index.start


def told(store):
    """What readers and workers are told of the one job that is there."""
    queue = store.queue("jobs", node="w")
    page = queue.read(account=True)
    inside = queue.read(from_seq=HEAD // 2, account=True)

    assert [record.seq for record in page.records] == [1]
    assert (page.account.deleted, inside.account.deleted) == (DONE, HEAD - HEAD // 2)
    assert (page.next_from_seq, inside.next_from_seq, page.caught_up, page.tombstone) == (
        HEAD,
        HEAD,
        True,
        None,
    )
    assert (queue.claim(9), [job.seq for job in queue.peek("in_flight")]) == ([], [1])
    state = queue.state()
    assert (state.head_seq, state.earliest_seq, state.count) == (HEAD, 1, 1)


@pytest.mark.rule("T5.24")
def test_jobs_that_are_done_leave_the_index_with_the_next_checkpoint(tmp_path):
    with topics.open(tmp_path) as store:
        store.create("jobs", type="queue", lease_ms=80_000_000, durability="fsync")
        queue = store.queue("jobs", node="w")
        queue.put_many([{"data": i} for i in range(HEAD)])
        (held,) = queue.claim(1)
        while jobs := queue.claim(1000):
            queue.ack(jobs)
        told(store)
        assert slots_of(store) == HEAD
        store.checkpoint()
        assert slots_of(store) == 1
        told(store)
        store.compact()  # the segment is written anew, its dead records without bytes
        told(store)
    with topics.open(tmp_path) as store:
        assert slots_of(store) == 1
        queue = store.queue("jobs", node="w")
        (held,) = queue.claim(9)
        assert (held.seq, held.deliveries) == (1, 2)  # a start ends leases
        told(store)
        queue.put(None)
        (other,) = queue.claim(9)
        assert other.seq == HEAD + 1
        store.checkpoint()
        assert queue.ack([held, other])
        state = queue.state()
        assert (state.earliest_seq, state.count) == (HEAD + 2, 0)
        page = queue.read(account=True)
        assert (page.next_from_seq, page.account.deleted) == (HEAD + 1, HEAD + 1)
    with topics.open(tmp_path) as store:
        assert store.queue("jobs").state().earliest_seq == HEAD + 2
