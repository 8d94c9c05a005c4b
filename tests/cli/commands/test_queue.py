"""`topics queue …`: the same on a directory and at a server."""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import topics
from tests.support.embedded import wait_until
from topics.cli.demo.private_server import PrivateServer

Call = Callable[..., Any]


@pytest.mark.rule("Q4.13", "Q4.15", "Q4.16", "O2.9")
def test_a_queue_is_looked_at_paused_and_emptied(at: Call) -> None:
    backoff = '{"base_ms":1000,"factor":2,"max_ms":9000}'
    at("create", "q", "type=queue", "dead_letter=dead", "max_deliveries=9", f"retry_backoff={backoff}")
    at("create", "log")
    at("put", "q", "--key", "k", stdin=b"1\n2\n")
    at("put", "q", "--priority", "7", stdin=b'{"a": 1}\n')
    at("put", "q", "--delay", "1h", stdin=b"4\n")

    assert at("queue", "ls", "--json").lines == [
        {"topic": "q", "ready": 3, "in_flight": 0, "delayed": 1, "dead_lettered": 0, "paused": False}
    ]
    table = at("queue", "ls").text.splitlines()
    assert table[0].split() == ["queue", "ready", "in", "flight", "delayed", "given", "up"]
    assert table[-1].split() == ["q", "3", "0", "1", "0"]
    assert "no queues whose name begins with 'l'" in at("queue", "ls", "--prefix", "l").text
    stats = at("queue", "stats", "q", "--json").lines[0]
    assert (stats["ready"], stats["config"]["dead_letter"], stats["config"]["max_deliveries"]) == (
        3,
        "dead",
        9,
    )
    assert '{"base_ms":1000,"factor":2.0,"max_ms":9000}' in at("queue", "stats", "q").text
    assert "given up 0 in all, to dead" in " ".join(at("queue", "stats", "q").text.split())

    ready = at("queue", "peek", "q", "--json").lines
    assert [(job["$seq"], job["data"], job["priority"], job["state"]) for job in ready] == [
        (3, {"a": 1}, 7, "ready"), (1, 1, 0, "ready"), (2, 2, 0, "ready"),
    ]  # fmt: skip
    assert len(at("queue", "peek", "q", "-n", "1", "--json").lines) == 1
    (delayed,) = at("queue", "peek", "q", "--state", "delayed", "--json").lines
    assert delayed["ready_at"] == delayed["$ts"] + 3_600_000
    assert at("queue", "peek", "q", "--state", "in_flight").text == "q: no jobs are in_flight\n"
    assert '{"a": 1}' in at("queue", "peek", "q").text

    assert at("queue", "pause", "q").text == "q: paused\n"
    assert at("queue", "ls", "--json").lines[0]["paused"] is True
    assert at("work", "q", "--until-empty", "--json", "--", "true").out == b""
    assert at("queue", "resume", "q", "--json").lines == [{"topic": "q", "paused": False}]

    asked = at("queue", "purge", "q").err
    assert "so purge cannot ask: pass --yes to delete the jobs of 'q'" in asked
    assert (at("queue", "purge", "q").code, at("queue", "purge", "q", "--yes", "--json").lines) == (
        2, [{"topic": "q", "purged": 4}],
    )  # fmt: skip
    assert at("queue", "drain", "q").text == "q: drained\n"


@pytest.mark.rule("O2.28")
def test_jobs_are_done_by_hand_in_calls_of_their_own(at: Call) -> None:
    at("create", "q", "type=queue", "leases_durable=true", "durability=fsync", "lease_ms=60000")
    at("put", "q", stdin=b'{"a": 1}\n2\n3\n4\n')

    seq, lease, data = at("queue", "claim", "q").text.split(maxsplit=2)
    assert (seq, lease[:6], data) == ("1", "lease_", '{"a": 1}\n')
    jobs = at("queue", "claim", "q", "--max", "2", "--lease", "10s", "--json").lines
    assert [(job["$seq"], job["data"], job["deliveries"], job["priority"]) for job in jobs] == [
        (2, 2, 1, 0), (3, 3, 1, 0),
    ]  # fmt: skip
    told = at("queue", "peek", "q", "--state", "in_flight", "--json").lines
    assert [job["deadline"] for job in told[1:]] == [job["deadline"] for job in jobs]
    assert {job["node"] for job in told} == {f"cli-{getpass.getuser()}@{socket.gethostname()}"}

    (extended,) = at("queue", "extend", "q", "2", "--lease", "1h", "--json").lines
    assert (extended["extended"], extended["skipped"]) == ([2], [])
    assert extended["deadline"] > jobs[0]["deadline"]
    assert " until 2" in at("queue", "extend", "q", "2", "--lease", "1h").text
    assert at("queue", "nack", "q", "2", "--delay", "0").text == "q: 1 job nacked\n"
    assert at("queue", "claim", "q").text.split()[0] == "2"
    nacked = at("queue", "nack", "q", "2", "3", "--delay", "1h", "--reason", "no paper")
    assert (nacked.code, nacked.text) == (0, "q: 2 jobs nacked\n")
    delayed = at("queue", "peek", "q", "--state", "delayed", "--json").lines
    assert {(job["$seq"], job["reason"]) for job in delayed} == {(2, "no paper"), (3, "no paper")}

    assert at("queue", "ack", "q", "1", "--node", "other").code == 1
    assert at("queue", "ack", "q", "1", "--lease-id", jobs[0]["lease_id"]).code == 1
    some = at("queue", "ack", "q", "1", "3", "77")
    assert (some.code, some.text) == (1, "q: 1 job acked\n")
    assert some.err.startswith("topics: q: skipped 3: cli-")
    assert some.err.endswith(" has no such lease (any more); 77: not put yet (topics why q --job 3)\n")
    done = at("queue", "ack", "q", "1")
    assert (done.code, done.err) == (
        1,
        "topics: q: skipped 1: no job any more: done, given up or deleted (topics why q --job 1)\n",
    )
    assert at("queue", "claim", "q", "--json", "--node", "w").lines[0]["$seq"] == 4
    rows = at("queue", "ack", "q", "3", "4", "--node", "w", "--json")
    assert (rows.code, rows.err, rows.lines) == (1, "", [{"topic": "q", "acked": [4], "skipped": [3]}])
    none = at("queue", "claim", "q", "--wait", "1ms")
    assert (none.code, none.out, "no job is ready" in none.err) == (0, b"", True)


def test_a_lease_that_would_end_with_the_command_is_not_taken(call: Call) -> None:
    call("create", "q", "type=queue")
    call("put", "q", stdin=b"1\n")
    answer = call("queue", "claim", "q")
    assert (answer.code, answer.out) == (1, b"")
    assert "topics configure q leases_durable=true" in answer.err
    assert call("queue", "peek", "q", "--json").lines[0]["deliveries"] == 0
    assert call("configure", "q", "leases_durable=true").code == 0
    assert call("queue", "claim", "q", "--json").lines[0]["deliveries"] == 1


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("claim", "q", "--lease", "1ms"), "--lease: must be from 100ms to 1d, not 1ms"),
        (("extend", "q", "1", "--lease", "2d"), "--lease: must be from 100ms to 1d, not 2d"),
        (("nack", "q", "1", "--delay", "9999w"), "--delay: must be from 0 to 36600d, not 9999w"),
        (("claim", "q", "--max", "1001"), "--max: must be from 1 to 1000, not 1001 (see topics queue claim"),
        (("ack", "q", "-15"), "SEQ: must be at least 1, not negative (see topics queue ack"),
        (("ack", "q", "0"), "SEQ: must be at least 1, not 0 (see topics queue ack"),
        (("claim", "q", "--wait", "soon"), "--wait: 'soon' is not a number"),
        (("claim", "q", "--node", "n" * 200), "--node: 200 bytes are more"),
        (("ack", "q"), "Missing argument 'SEQ"),
        (("ack", "q", "1", "2", "--lease-id", ""), "--lease-id: must have one for each of the 2 seqs, not 1"),
        (("nack", "q", "1", "--reason", "r" * 2000), "--reason: 2000 bytes are more"),
        (("extend", "q", "1"), "Missing option '--lease'"),
    ],
)
def test_a_bad_flag_is_named(call: Call, flags: tuple[str, ...], why: str) -> None:
    call("create", "q", "type=queue", "leases_durable=true")
    answer = call("queue", *flags)
    assert (answer.code, why in answer.err) == (2, True), answer.err


@pytest.mark.rule("Q4.14")
def test_what_is_put_back_in_a_directory_has_arrived_when_the_command_ends(call: Call) -> None:
    call("create", "q", "type=queue", "dead_letter=dead")
    call("put", "dead", stdin=b"1\n" * 500)

    assert call("queue", "redrive", "q").code == 0
    with topics.open("topics-data", read_only=True) as store:
        assert [store.topic(name).state().count for name in ("dead", "q")] == [0, 500]


@pytest.mark.rule("Q4.14")
def test_dead_letters_are_put_back(at: Call) -> None:
    at("create", "q", "type=queue", "dead_letter=dead")
    at("create", "other", "type=queue")
    at("put", "dead", stdin=b"1\n2\n3\n")

    assert at("queue", "redrive", "q", "--seq", "2", "--json").lines == [
        {"topic": "q", "source": "dead", "redriven": [2], "skipped": []}
    ]
    first = at("queue", "redrive", "q", "-n", "1")
    assert first.text == "q: 1 job on the way from dead\n"
    assert "topics: dead holds more: ask again for the next\n" in first.err
    last = at("queue", "redrive", "other", "dead", "-n", "1")
    assert last.text == "other: 1 job on the way from dead\n"
    assert "holds more" not in last.err
    assert at("queue", "redrive", "q").text == "q: 0 jobs on the way from dead\n"

    def jobs(name: str) -> list[int]:
        return sorted(job["data"] for job in at("queue", "peek", name, "--json").lines)

    assert wait_until(lambda: (jobs("q"), jobs("other")) == ([1, 2], [3]))
    refused = at("queue", "redrive", "other")
    assert (refused.code, "queue 'other' has no dead_letter of its own" in refused.err) == (2, True), (
        refused.err
    )


def test_seqs_that_are_no_dead_letters_are_named(at: Call) -> None:
    at("create", "q", "type=queue", "dead_letter=dead")
    at("put", "dead", stdin=b"1\n2\n")

    some = at("queue", "redrive", "q", "--seq", "77", "--seq", "1")
    assert (some.code, some.text) == (0, "q: 1 job on the way from dead\n")
    assert "q: skipped 77: no dead letter of dead" in some.err
    none = at("queue", "redrive", "q", "--seq", "77", "--seq", "78")
    assert (none.code, none.out, "q: skipped 77, 78: no dead letter of dead" in none.err) == (1, b"", True)
    rows = at("queue", "redrive", "q", "--seq", "77", "--json")
    assert (rows.code, rows.err, rows.lines) == (
        1, "", [{"topic": "q", "source": "dead", "redriven": [], "skipped": [77]}],
    )  # fmt: skip


def test_what_is_no_queue_is_refused_in_one_line(at: Call) -> None:
    at("create", "t")
    for command in ("stats", "peek", "pause", "resume", "purge", "drain", "redrive", "claim"):
        answer = at("queue", command, "t", *(["--yes"] if command == "purge" else []))
        assert (answer.code, answer.out, len(answer.err.splitlines())) == (1, b"", 1)
        assert "topic 't' is a log; only a queue has jobs" in answer.err, command
        assert "does not exist" in at("queue", command, "nope").err
    assert "is a log; only a queue has jobs" in at("work", "t", "--", "true").err
    for option, value in (("--priority", "1"), ("--delay", "1s")):
        refused = at("put", "t", option, value, stdin=b"1\n")
        assert refused.code == 2
        assert refused.err.startswith(f"topics: {option}: topic 't' is a log; only a queue takes ")
        assert refused.err.endswith("; nothing is stored\n")
    assert "topics create nope type=queue" in at("put", "nope", "--delay", "1s", stdin=b"1\n").err
    assert "nope" not in at("ls").text


def test_a_job_is_not_put_off_for_less_than_was_asked(at: Call) -> None:
    at("create", "q", "type=queue")
    refused = at("put", "q", "--delay", "9999w", stdin=b"1\n")
    assert (refused.code, refused.err) == (2, "topics: --delay: must be from 0 to 36600d, not 9999w\n")
    assert at("queue", "stats", "q", "--json").lines[0]["delayed"] == 0


def test_a_dedup_id_is_of_one_record(at: Call) -> None:
    at("create", "q", "type=queue")
    for expected in (1, 0):
        assert at("put", "q", "--dedup-id", "d", "--json", stdin=b"1\n").lines[0]["count"] == expected
    refused = at("put", "q", "--dedup-id", "e", stdin=b"1\n2\n")
    assert (refused.code, "line 2: is another record" in refused.err) == (1, True)
    assert at("queue", "stats", "q", "--json").lines[0]["ready"] == 2


def test_drain_ends_when_the_workers_are_through(call: Call, server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        client.create("draining", type="queue")
        queue = client.queue("draining", node="w")
        queue.put_many([{"data": i} for i in range(20)])
        queue.put(1, delay_ms=3_600_000)
        late = call("queue", "drain", "draining", "--timeout", "1ms", "--url", server.url)
        assert (late.code, "20 ready, 0 in flight, 1 delayed" in late.err) == (1, True)

        def work() -> None:
            while jobs := queue.claim(3):
                queue.ack(jobs)

        worker = threading.Thread(target=work)
        worker.start()
        answer = call("queue", "drain", "draining", "--json", "--url", server.url)
        worker.join()
    assert answer.code == 0
    assert {name: answer.lines[0][name] for name in ("drained", "ready", "in_flight", "delayed")} == {
        "drained": True, "ready": 0, "in_flight": 0, "delayed": 1,
    }  # fmt: skip


def test_nobody_can_drain_a_directory_that_a_command_has_open(call: Call) -> None:
    call("create", "q", "type=queue")
    call("put", "q", stdin=b"1\n")
    answer = call("queue", "drain", "q")
    assert (answer.code, "topics work q --until-empty" in answer.err) == (1, True)
