"""`topics why` as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

import topics
from tests.support.embedded import wait_until
from tests.support.sample_store import FAILED, JOBS, build, write_out


@pytest.fixture
def root(tmp_path):
    write_out(build().files, tmp_path / "data")
    return str(tmp_path / "data")


def words(text):
    """The events without the times that each line begins with; and how it stands, what comes behind that left out."""
    lines = text.splitlines()
    behind = next(i for i, line in enumerate(lines) if line.startswith(("job ", "record ")))
    told = [line[len("2026-11-21 00:00:00.000Z  ") :].split(" until ")[0] for line in lines[:behind]]
    return [line for line in told if not line.startswith(("synced: ", "copied into"))], lines[behind]


@pytest.mark.rule("O2.29")
def test_a_job_has_its_story_in_words(call, root):
    assert words(call("why", JOBS, "--job", "3", "--data", root).text) == (
        [
            "put in a write of seqs 1 to 12, key 'k'",
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
            "put in a write of seqs 1 to 12", "leased by w3", "the lease ran out", "leased by w2", "extended by w2",
            "acked by w2: done, and deleted",
        ],
        "job 6 was acked by w2",
    )  # fmt: skip
    assert words(call("why", JOBS, "--job", "7", "--data", root).text) == (
        ["put in a write of seqs 1 to 12", "leased by w4", "the lease ran out"],
        "job 7 is ready, delivered 1 time; the last failure: expired",
    )
    (found,) = call("why", JOBS, "--job", "6", "--json", "--data", root).lines
    told = [event["event"] for event in found["events"] if event["event"] not in ("synced", "stored")]
    assert told == ["put", "claimed", "lease_ended", "claimed", "extended", "acked"]
    assert found["now"] == {"state": "acked", "node": "w2"}


def told_ready_at(call, root):
    from topics.cli.io.quantities import moment

    (found,) = call("why", JOBS, "--job", "3", "--json", "--data", root).lines
    return next(moment(event["ready_at"]) for event in found["events"] if "ready_at" in event)


@pytest.mark.rule("O2.30")
def test_a_record_has_its_story_in_words(call, root):
    assert words(call("why", FAILED, "1", "--data", root).text) == (
        [
            "put, moved here from jobs 3, key 'k'",
            "on its way to jobs: redrive",
            "arrived there, and deleted here",
        ],
        "record 1 was moved to jobs as 13: redrive",
    )
    assert words(call("why", "orders", "1", "--data", root).text) == (
        ['deleted: before_seq 3 and match ["tag","Eq","red"]'],
        'record 1 was deleted: before_seq 3 and match ["tag","Eq","red"]',
    )
    assert call("why", "orders", "999999", "--data", root).text == (
        "record 999999 was never put: no such seq, the head is 72\n"
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

    put = "put in a write of seqs 1 to 3"
    ended = [put, "leased by w", "the lease ended, as all of the queue did: restart"]
    assert told(1)[0] == [*ended, "leased by w"]
    assert told(1)[1].startswith("job 1 is in flight: leased by w until 2")
    assert told(2) == ([*ended, "deleted by a purge of the queue"], "job 2 was deleted by a purge")
    assert told(3) == ([put, "deleted by a purge of the queue"], "job 3 was deleted by a purge")
    assert told(4) == (
        ["put, not before " + told_not_before(call, tmp_path), "deleted by a purge of the queue"],
        "job 4 was deleted by a purge",
    )


def told_not_before(call, tmp_path):
    from topics.cli.io.quantities import moment

    (found,) = call("why", "q", "--job", "4", "--json", "--data", str(tmp_path / "d")).lines
    return moment(found["events"][0]["not_before"])


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
        assert "name one record, job or reader" in call("why", *arguments, "--data", root).err
    assert call("why", "nope", "1", "--data", root).code == 1
    assert "name a data directory" in call("why", "nope", "1", "--data", root + "/none").err


@pytest.mark.parametrize("place", ["nope", "empty"])
def test_what_holds_no_store_is_asked_wrongly_of_why_and_of_fsck(call, place):
    Path("empty").mkdir()

    assert [call("fsck", place).code, call("why", "t", "1", "--data", place).code] == [2, 2]


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
    (found,) = call("why", "q", "--job", "1", "--json", "--data", str(root)).lines
    assert "lease_id" not in next(event for event in found["events"] if event["event"] == "acked")


def test_a_job_that_nobody_was_given_is_told_so(call, tmp_path):
    root = tmp_path / "data"
    with topics.open(root) as store:
        store.create("q", type="queue", compression="zstd")
        queue = store.queue("q", node="w")
        queue.put_many([{"data": "x" * 100_000}] * 2)
        assert len(queue.claim(2, max_bytes=150_000)) == 1
    told, _ = words(call("why", "q", "--job", "2", "--data", str(root)).text)
    (found,) = call("why", "q", "--job", "2", "--json", "--data", str(root)).lines

    assert told[-1] == "given back: it was not sent to anybody, and that counts as no delivery"
    given_back = next(event for event in found["events"] if event["event"] == "released")
    assert given_back.keys() == {"ts", "event", "file", "offset", "lease_id", "ready_at"}


def test_what_a_reader_has_not_got_is_told_in_ranges(call, tmp_path):
    root = str(tmp_path / "d")
    with topics.open(root) as store:
        store.create("t", cap_records=3)
        topic = store.topic("t")
        topic.put_many([{"data": i, "tag": "b" if i == 2 else "a", "node": "me"} for i in range(5)])
        topic.delete(match="b")
    lines = call("why", "t", "--reader", "0", "--match", "a", "--data", root).text.splitlines()
    (found,) = call("why", "t", "--reader", "0", "--to", "4", "--node", "me", "--json", "--data", root).lines

    assert [line.split(", 2")[0] for line in lines] == [
        "1 to 2  lost: evicted by the topic's cap",
        '3  lost: deleted: match ["tag","Eq","b"]',
        "4 to 5  delivered",
        "a read from 0 begins with a tombstone up to 3 [cap]",
    ]
    assert [(part["first"], part["last"], part["as"]) for part in found["parts"]] == [
        (1, 2, "lost"), (3, 3, "lost"), (4, 4, "own_node"),
    ]  # fmt: skip
    assert call("why", "t", "1", "--to", "4", "--data", root).code == 2


def test_jobs_that_stand_otherwise_are_told_otherwise(call, tmp_path):
    root = str(tmp_path / "d")
    with topics.open(root) as store:
        store.create("q", type="queue")
        queue = store.queue("q", node="w")
        queue.put_many([{"data": i} for i in range(3)])
        queue.put(3, delay_ms=3_600_000)
        queue.claim(1, lease_ms=3_600_000)
        lines = call("why", "q", "--reader", "0", "--data", root).text.splitlines()

    assert lines == ["1  delivered: in flight", "2 to 3  delivered: ready", "4  delivered: delayed"]


def test_a_server_tells_the_same(call, server):
    with topics.Client(server.url) as client:
        client.create("asked", cap_records=1)
        for i in range(3):
            client.topic("asked").put(i, node="me")
    for arguments in (
        ("asked", "2"),
        ("asked", "--reader", "0"),
        ("asked", "9"),
        ("asked", "--reader", "0", "--node", "me"),
    ):
        by_files = call("why", *arguments, "--data", str(server.data))
        by_server = call("why", *arguments, "--url", server.url)

        assert (by_server.code, by_server.text) == (0, by_files.text)
    (found,) = call("why", "asked", "2", "--json", "--url", server.url).lines
    assert (found["now"]["state"], found["now"]["reason"]) == ("lost", "cap")
    refused = call("why", "asked", "--job", "2", "--url", server.url)
    assert (refused.code, "only a queue has jobs" in refused.err) == (1, True)
    missing = call("why", "none", "2", "--url", server.url)
    assert (missing.code, missing.err.count("\n"), "'none'" in missing.err) == (1, 1, True)


def test_a_last_lease_ran_out_only_of_a_job_of_which_it_did(call, tmp_path):
    """A worker may give the reason `expired` himself."""
    with topics.open(tmp_path / "d") as store:
        store.create("q", type="queue", max_deliveries=1, dead_letter="failed")
        queue = store.queue("q")
        queue.put(1)
        queue.get().nack(reason="expired")
        wait_until(lambda: store.topic("q").state().count == 0)

    told = call("why", "q", "--job", "1", "--data", str(tmp_path / "d"))
    assert told.text.endswith("job 1 was moved to failed as 1: expired\n")
