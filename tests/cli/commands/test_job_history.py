"""`topics queue history` as a user calls it."""

from __future__ import annotations

import json

import topics
from tests.support.sample_store import JOBS, build, write_out


def test_each_event_of_a_job_is_a_line(call, tmp_path):
    root = tmp_path / "data"
    write_out(build().files, root)
    lines = call("queue", "history", JOBS, "6", "--data", str(root)).text.splitlines()
    rows = call("queue", "history", JOBS, "6", "--json", "--data", str(root)).text.splitlines()

    assert [line.split()[2] for line in lines] == ["put", "claimed", "claimed", "extended", "acked"]
    assert [json.loads(row)["event"] for row in rows] == ["put", "claimed", "claimed", "extended", "acked"]
    assert "by w2, lease_" in lines[-1]
    assert lines[-1].endswith(")")


def test_what_is_no_queue_is_said_in_a_line(call, tmp_path):
    root = tmp_path / "data"
    write_out(build().files, root)
    assert call("queue", "history", "orders", "6", "--data", str(root)).code == 1
    assert "says nothing of job 99" in call("queue", "history", JOBS, "99", "--data", str(root)).text


def test_a_lease_whose_claim_is_in_no_log_any_more_is_not_named(call, tmp_path):
    root = tmp_path / "data"
    with topics.open(root) as store:
        store.create("q", type="queue")
        queue = store.queue("q", node="w")
        queue.put(1)
        job = queue.get()
        while (root / "wal/gen-0/shard-00/wal-00000000000000000001.log").exists():
            store.topic("other").put_many([{"data": "x" * 100_000}] * 20)
            store.compact()
        job.ack()
    (line,) = call("queue", "history", "q", "1", "--data", str(root)).text.splitlines()
    (row,) = call("queue", "history", "q", "1", "--json", "--data", str(root)).text.splitlines()

    assert "acked  by w  (" in line
    assert "lease_id" not in json.loads(row)


def test_a_job_that_nobody_was_given_is_told_so(call, tmp_path):
    root = tmp_path / "data"
    with topics.open(root) as store:
        store.create("q", type="queue", compression="zstd")
        queue = store.queue("q", node="w")
        queue.put_many([{"data": "x" * 100_000}] * 2)
        assert len(queue.claim(2, max_bytes=150_000)) == 1
    line = call("queue", "history", "q", "2", "--data", str(root)).text.splitlines()[-1]
    row = call("queue", "history", "q", "2", "--json", "--data", str(root)).text.splitlines()[-1]

    assert "released  nobody was given it, lease_" in line
    assert json.loads(row).keys() == {"ts", "event", "file", "offset", "lease_id", "ready_at"}
