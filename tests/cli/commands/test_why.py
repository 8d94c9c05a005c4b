"""`topics why` as a user calls it."""

from __future__ import annotations

import json

import pytest

import topics
from tests.support.sample_store import FAILED, JOBS, build, write_out


@pytest.fixture
def root(tmp_path):
    write_out(build().files, tmp_path / "data")
    return str(tmp_path / "data")


def words(text):
    """Without the times, which each line begins with but the last."""
    *lines, last = text.splitlines()
    return [line[len("2026-11-21 00:00:00.000Z  ") :].split(" until ")[0] for line in lines], last


@pytest.mark.rule("O2.29")
def test_a_job_has_its_story_in_words(call, root):
    assert words(call("why", JOBS, "--job", "3", "--data", root).text) == (
        [
            "put",
            "leased by w1",
            "given back by w1: no paper, to be ready at " + told_ready_at(call, root),
            "leased by w0",
            "given back by w0: no paper",
            "on its way to failed: no paper",
            "arrived there, and deleted here",
        ],
        "job 3 was moved to failed as 1: no paper",
    )
    assert words(call("why", JOBS, "--job", "6", "--data", root).text) == (
        [
            "put", "leased by w3", "the lease ran out", "leased by w2", "extended by w2",
            "acked by w2: done, and deleted",
        ],
        "job 6 was acked by w2",
    )  # fmt: skip
    assert words(call("why", JOBS, "--job", "7", "--data", root).text) == (
        ["put", "leased by w4", "the lease ran out"],
        "job 7 is ready, delivered 1 time; the last failure: expired",
    )
    rows = call("why", JOBS, "--job", "6", "--json", "--data", root).lines
    assert [row.get("event") for row in rows] == ["put", "claimed", "claimed", "extended", "acked", None]
    assert rows[-1] == {"state": "acked", "node": "w2"}


def told_ready_at(call, root):
    from topics.cli.io.quantities import moment

    return moment(call("why", JOBS, "--job", "3", "--json", "--data", root).lines[2]["ready_at"])


@pytest.mark.rule("O2.30")
def test_a_record_has_its_story_in_words(call, root):
    assert words(call("why", FAILED, "1", "--data", root).text) == (
        ["put", "on its way to jobs: redrive", "arrived there, and deleted here"],
        "record 1 was moved to jobs as 13: redrive",
    )
    assert call("why", "orders", "1", "--data", root).text == (
        "record 1 was deleted; the log says nothing of it any more (wal_archive keeps what checkpoints have absorbed)\n"
    )
    assert call("why", "orders", "999999", "--data", root).text == (
        "record 999999 was never put: the head is below it\n"
    )


def test_what_all_jobs_meet_is_told_of_those_that_met_it(call, tmp_path):
    with topics.open(tmp_path / "d") as store:
        store.create("q", type="queue")
        queue = store.queue("q", node="w")
        queue.put_many([{"data": i} for i in range(3)])
        queue.put(4, delay_ms=3_600_000)
        queue.claim(2)
    with topics.open(tmp_path / "d") as store:  # ends its leases
        queue = store.queue("q", node="w")
        queue.claim(1)
        queue.purge()
        queue.purge()

    def told(seq):
        return words(call("why", "q", "--job", str(seq), "--data", str(tmp_path / "d")).text)

    ended = ["put", "leased by w", "the lease ended, as all of the queue did: restart"]
    assert told(1)[0] == [*ended, "leased by w"]
    assert told(1)[1].startswith("job 1 is in flight: leased by w until 2")
    assert told(2) == ([*ended, "deleted by a purge of the queue"], "job 2 was deleted by a purge")
    assert told(3) == (["put", "deleted by a purge of the queue"], "job 3 was deleted by a purge")
    assert told(4) == (["put", "deleted by a purge of the queue"], "job 4 was deleted by a purge")


@pytest.mark.rule("O2.31")
def test_a_directory_that_a_server_is_using_is_read(call, server):
    with topics.Client(server.url) as client:
        client.create("told", type="queue")
        queue = client.queue("told", node="w")
        queue.put_many([{"data": 1}, {"data": 2}])
        queue.ack(queue.claim(2)[:1])
    assert (
        words(call("why", "told", "--job", "1", "--data", str(server.data)).text)[1] == "job 1 was acked by w"
    )
    assert " is in flight: leased by w " in call("why", "told", "--job", "2", "--data", str(server.data)).text


def test_what_is_asked_wrongly_is_said_in_a_line(call, root):
    log = call("why", "orders", "--job", "6", "--data", root)
    assert (log.code, "topic 'orders' is a log; only a queue has jobs" in log.err) == (1, True)
    for arguments in (("orders",), ("orders", "1", "--job", "1")):
        assert "name one record or job" in call("why", *arguments, "--data", root).err
    assert call("why", "nope", "1", "--data", root).code == 1
    assert "name a data directory" in call("why", "nope", "1", "--data", root + "/none").err


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
    assert words(call("why", "q", "--job", "1", "--data", str(root)).text) == (
        ["acked by w: done, and deleted"], "job 1 was acked by w",
    )  # fmt: skip
    acked, _ = call("why", "q", "--job", "1", "--json", "--data", str(root)).text.splitlines()
    assert "lease_id" not in json.loads(acked)


def test_a_job_that_nobody_was_given_is_told_so(call, tmp_path):
    root = tmp_path / "data"
    with topics.open(root) as store:
        store.create("q", type="queue", compression="zstd")
        queue = store.queue("q", node="w")
        queue.put_many([{"data": "x" * 100_000}] * 2)
        assert len(queue.claim(2, max_bytes=150_000)) == 1
    told, _ = words(call("why", "q", "--job", "2", "--data", str(root)).text)
    rows = call("why", "q", "--job", "2", "--json", "--data", str(root)).text.splitlines()

    assert told[-1] == "given back: it was not sent to anybody, and that counts as no delivery"
    assert json.loads(rows[-2]).keys() == {"ts", "event", "file", "offset", "lease_id", "ready_at"}
