"""`topics work`: a command for each job, and every way in which one of the two ends."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from topics.cli.demo.private_server import PrivateServer
from topics.cli.io.quantities import moment

Call = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]
PATIENCE_S = 30


@pytest.fixture
def queue(server: PrivateServer, request: pytest.FixtureRequest) -> Iterator[topics.Queue]:
    """A queue at a server, of this test alone."""
    with topics.Client(server.url) as client:
        name = request.node.name.partition("[")[0]
        client.create(name, type="queue", lease_ms=1000)
        yield client.queue(name, node="test")
        client.delete(name)


def until(holds: Callable[[], Any]) -> None:
    """What other processes do, which have this machine's processors, too."""
    late = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < late
        os.sched_yield()


def script(path: pathlib.Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.rule("O2.9")
@pytest.mark.parametrize("where", ["directory", "server"])
def test_a_command_has_the_payload_and_its_end_settles_the_job(
    call: Call, server: PrivateServer, where: str, capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    place = ("--data", "d") if where == "directory" else ("--url", server.url)
    call("create", "done", "type=queue", *place)
    call("put", "done", "--key", "k", *place, stdin=b'{"b": 1.50}\n"poison"\n')
    with topics.open("d") if where == "directory" else topics.Client(server.url) as store:
        store.queue("done").put(b"\x00\xff", content_type="image/png", meta={"who": "ann"})
    command = script(
        tmp_path / "run",
        'cat > "$TOPICS_JOB_SEQ.in"; env | grep ^TOPICS_JOB > "$TOPICS_JOB_SEQ.env"; echo out\n'
        'if grep -q poison "$TOPICS_JOB_SEQ.in"; then echo "first\nno cure" >&2; exit 7; fi',
    )
    answer = call("work", "done", "--until-empty", "--node", "w", *place, "--", command)

    assert answer.code == 0
    assert pathlib.Path("1.in").read_bytes() == b'{"b": 1.50}'
    assert "TOPICS_JOB_KEY=k\n" in pathlib.Path("1.env").read_text()
    assert answer.err.startswith("first\nno cure\n") or "\nfirst\nno cure\n" in answer.err
    assert "done: job 2 failed, delivery 1: exit 7: first\\nno cure" in answer.err
    assert capfd.readouterr().out.startswith("out\n")
    (failed,) = call("queue", "peek", "done", "--state", "delayed", "--json", *place).lines
    assert (failed["$seq"], failed["reason"], failed["deliveries"]) == (2, "exit 7: first\nno cure", 1)
    assert pathlib.Path("3.in").read_bytes() == b"\x00\xff"
    assert "TOPICS_JOB_META_WHO=ann\n" in pathlib.Path("3.env").read_text()
    assert call("queue", "stats", "done", "--json", *place).lines[0]["ready"] == 0


def test_what_is_told_of_a_job_begins_a_line_however_its_command_ended_its_own(call: Call) -> None:
    call("create", "q", "type=queue", "max_deliveries=1", "dead_letter=failed")
    call("put", "q", stdin=b"1\n2\n")
    answer = call("work", "q", "--until-empty", "--", "sh", "-c", "printf no >&2; exit 1")

    assert [line for line in answer.err.splitlines() if "job" in line or line == "no"] == [
        "no", "topics: q: job 1 failed, delivery 1: exit 1: no",
        "no", "topics: q: job 2 failed, delivery 1: exit 1: no", "topics: q: 0 jobs done, 2 failed",
    ]  # fmt: skip


def test_what_is_left_behind_an_empty_queue_is_told(call: Call) -> None:
    call("create", "q", "type=queue", "leases_durable=true")
    call("put", "q", stdin=b"1\n2\n")
    failed = call("work", "q", "--until-empty", "--", "sh", "-c", "test $TOPICS_JOB_SEQ = 1")
    (job,) = call("queue", "peek", "q", "--state", "delayed", "--json").lines

    assert (
        f"q: 1 job done, 1 failed; left: 1 delayed, the first until {moment(job['ready_at'])}\n" in failed.err
    )

    assert "q: left: 1 delayed" in call("work", "q", "--until-empty", "--json", "--", "true").err
    call("put", "q", stdin=b"3\n")
    call("queue", "claim", "q", "--lease", "5m")
    assert "; left: 1 in flight, 1 delayed" in call("work", "q", "--until-empty", "--", "true").err
    call("put", "q", stdin=b"4\n")
    call("queue", "pause", "q")
    assert "q: 0 jobs done, 0 failed; left: 1 ready, for it is paused, 1 in flight, 1 delayed" in (
        call("work", "q", "--until-empty", "--", "true").err
    )


def test_dead_letters_have_arrived_when_a_worker_ends(call: Call) -> None:
    call("create", "q", "type=queue", "max_deliveries=1", "dead_letter=failed")
    call("put", "q", stdin=b"1\n")

    assert call("work", "q", "--until-empty", "--", "false").err.endswith("q: 0 jobs done, 1 failed\n")
    with topics.open("topics-data", read_only=True) as store:
        assert [store.topic(name).state().count for name in ("q", "failed")] == [0, 1]


def test_json_has_a_line_a_job_and_nothing_that_commands_print(
    call: Call, capfd: pytest.CaptureFixture[str]
) -> None:
    call("create", "q", "type=queue")
    call("put", "q", stdin=b"1\n2\n")
    rows = call(
        "work", "q", "--until-empty", "--json", "--", "sh", "-c", "cat; test $TOPICS_JOB_SEQ = 1"
    ).lines

    assert [(row["seq"], row["state"], row["reason"]) for row in rows] == [
        (1, "acked", None), (2, "nacked", "exit 1"),
    ]  # fmt: skip
    assert capfd.readouterr() == ("", "12")  # descriptors, which commands write to; ours are elsewhere here


def test_a_command_may_call_topics_itself(call: Call, spawn: Spawn, queue: topics.Queue) -> None:
    queue.put({"n": 1})
    line = f"{os.sys.executable} -m topics put results --json --url {queue.store.where}"
    assert (
        call("work", queue.name, "--until-empty", "--url", queue.store.where, "--", *line.split()).code == 0
    )
    assert [record.data for record in queue.store.topic("results").records()] == [{"n": 1}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("q", "--", "no-such-command"), "there is no command 'no-such-command'"),
        (("q", "--lease", "1ms", "--", "true"), "--lease: must be from 100ms to 1d, not 1ms"),
        (("nosuch", "--lease", "1ms", "--", "true"), "--lease: must be from 100ms to 1d, not 1ms"),
        (("q", "--lease", "soon", "--", "true"), "--lease: 'soon' is not"),
        (("q", "--grace", "-1", "--", "true"), "--grace: '-1' is not"),
        (("q",), "Missing argument '-- COMMAND"),
        (("q", "--node", "x" * 129, "--", "true"), "--node: 129 bytes are more than the limit of 128"),
    ],
)
def test_what_was_asked_wrongly_takes_no_job(call: Call, arguments: tuple[str, ...], message: str) -> None:
    call("create", "q", "type=queue")
    call("put", "q", stdin=b"1\n")
    answer = call("work", *arguments)

    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert call("queue", "peek", "q", "--json").lines[0]["deliveries"] == 0


@pytest.fixture
def worker(spawn: Spawn, queue: topics.Queue) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Begins one at the queue, in a process of its own."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        place = ("--url", queue.store.where, *arguments)
        children.append(spawn("work", queue.name, *place, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.wait()
        for stream in (child.stdout, child.stderr):  # which a command of its may hold, too
            assert stream is not None
            stream.close()


def test_sigterm_lets_running_commands_end(worker: Any, queue: topics.Queue, tmp_path: pathlib.Path) -> None:
    queue.put_many([{"data": i} for i in range(3)])
    for seq in (1, 2):  # one each: of two readers of one, the second may find nobody who writes
        os.mkfifo(f"go-{seq}")
    child = worker("--concurrency", "2", "--", "sh", "-c", "read word < go-$TOPICS_JOB_SEQ; echo $word")
    until(lambda: len(queue.peek("in_flight")) == 2)
    child.send_signal(signal.SIGTERM)
    assert b"taking no more jobs" in child.stderr.readline()
    for seq in (1, 2):
        pathlib.Path(f"go-{seq}").write_text("ended\n")
    out, err = child.communicate(timeout=PATIENCE_S)

    assert (child.returncode, out) == (0, b"ended\nended\n")
    assert b"2 jobs done, 0 failed" in err
    assert [job.seq for job in queue.peek()] == [3]


@pytest.mark.parametrize("how", ["grace", "twice"])
def test_what_does_not_end_is_stopped_and_handed_out_again(
    worker: Any, queue: topics.Queue, how: str
) -> None:
    queue.put(1)
    grace = "0s" if how == "grace" else "1h"
    child = worker(
        "--grace",
        grace,
        "--",
        "sh",
        "-c",
        "trap 'echo bye >&2; exit 9' TERM; echo up >&2; while :; do sleep 1; done",
    )
    assert child.stderr.readline() == b"up\n"
    child.send_signal(signal.SIGINT)
    if how == "twice":
        assert b"taking no more" in child.stderr.readline()
        child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=PATIENCE_S)

    assert (child.returncode, b"bye" in err, b"0 jobs done, 1 failed" in err) == (0, True, True)
    (again,) = queue.peek()
    assert (again.reason, again.deliveries) == ("its worker was stopped", 1)


def test_a_worker_that_waits_for_jobs_ends_at_once(worker: Any, queue: topics.Queue) -> None:
    queue.put(1)
    child = worker("--", "sh", "-c", "echo ran >&2")
    assert child.stderr.readline() == b"ran\n"
    until(lambda: queue.state().count == 0)
    child.send_signal(signal.SIGTERM)
    began = time.monotonic()
    child.communicate(timeout=PATIENCE_S)

    assert child.returncode == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_worker_says_that_it_waits_where_no_job_is_handed_out(
    worker: Any, queue: topics.Queue, is_paused: bool
) -> None:
    if is_paused:
        queue.pause()
        queue.put(1)
    child = worker("--", "sh", "-c", "echo ran >&2")
    of = f"{queue.name}, which is paused," if is_paused else queue.name
    said = f"topics: waiting for jobs of {of} at {queue.store.where}; Ctrl-C ends this\n"
    assert child.stderr.readline().decode() == said
    if is_paused:
        queue.resume()
    else:
        queue.put(1)
    assert child.stderr.readline() == b"ran\n"
    until(lambda: queue.state().count == 0)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0


def test_jobs_of_a_worker_that_was_killed_are_done_by_another(
    worker: Any, call: Call, queue: topics.Queue, tmp_path: pathlib.Path
) -> None:
    """A real script, SIGKILL in the midst of jobs: every job is done, those that were held once more."""
    count = 12
    queue.put_many([{"data": i} for i in range(count)])
    command = script(
        tmp_path / "run",
        'echo "$TOPICS_JOB_DELIVERIES" >> "$TOPICS_JOB_SEQ.log"\n'
        'if [ -e hold ] && [ "$TOPICS_JOB_SEQ" -gt 4 ]; then while [ -e hold ]; do sleep 0.05; done; exit 1; fi',
    )
    hold = pathlib.Path("hold")
    hold.touch()
    first = worker("--concurrency", "4", "--", command)
    until(lambda: all(pathlib.Path(f"{seq}.log").exists() for seq in (5, 6, 7, 8)))
    first.kill()
    first.wait()
    second = worker("--concurrency", "4", "--json", "--", command)
    hold.unlink()
    answer = call("queue", "drain", queue.name, "--timeout", "30s", "--url", queue.store.where)
    assert answer.code == 0, answer.err
    until(lambda: queue.state().count == 0)
    second.send_signal(signal.SIGTERM)
    rows = [json.loads(line) for line in second.communicate(timeout=PATIENCE_S)[0].splitlines()]

    assert {row["state"] for row in rows} == {"acked"}
    deliveries = {seq: pathlib.Path(f"{seq}.log").read_text().split() for seq in range(1, count + 1)}
    assert all(deliveries[seq] == ["1", "2"] for seq in (5, 6, 7, 8))
    assert all(deliveries[seq] == ["1"] for seq in range(9, count + 1))


def test_a_worker_goes_on_over_a_restart(spawn: Spawn, tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as own, topics.Client(own.url) as client:
        client.create("q", type="queue")
        queue = client.queue("q", node="test")
        queue.put(1)
        child = spawn("work", "q", "--url", own.url, "--", "sh", "-c", "echo ran >&2", stderr=subprocess.PIPE)
        assert child.stderr is not None
        assert child.stderr.readline() == b"ran\n"
        until(lambda: queue.state().count == 0)
        own.kill()
        own.start()
        queue.put(2)
        while (line := child.stderr.readline()) != b"ran\n":
            assert line
        until(lambda: queue.state().count == 0)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0
