"""What a command is given of a job, and why one failed."""

from __future__ import annotations

import pathlib
import signal

import pytest

import topics
from topics.cli.work.running import environment, failure_reason


def test_the_environment_has_what_the_job_has(tmp_path: pathlib.Path) -> None:
    with topics.open(tmp_path / "d") as store:
        store.create("q", type="queue")
        queue = store.queue("q", node="w")
        queue.put(1, key="k", tag="a\0b", meta={"retry-of": "x", "Trace.Id": "7"}, priority=4)
        (job,) = queue.claim()
    told = environment(job, {"PATH": "/bin", "TOPICS_JOB_TAG": "of an outer job", "TOPICS_URL": "u"})

    assert told == {
        "PATH": "/bin", "TOPICS_URL": "u", "TOPICS_JOB_TOPIC": "q", "TOPICS_JOB_SEQ": "1",
        "TOPICS_JOB_TS": str(job.ts), "TOPICS_JOB_DELIVERIES": "1", "TOPICS_JOB_PRIORITY": "4",
        "TOPICS_JOB_LEASE_ID": job.lease_id, "TOPICS_JOB_DEADLINE": str(job.deadline), "TOPICS_JOB_WORKER": "w",
        "TOPICS_JOB_KEY": "k", "TOPICS_JOB_META_RETRY_OF": "x", "TOPICS_JOB_META_TRACE_ID": "7",
    }  # fmt: skip


@pytest.mark.rule("Q4.10")
@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (3, b"", "exit 3"),
        (1, b"\n  no disk\n", "exit 1: no disk"),
        (-signal.SIGKILL, b"", "killed by SIGKILL"),
        (-99, b"x", "killed by signal 99: x"),
        (1, b"\xff", "exit 1: \ufffd"),
    ],
)
def test_a_reason_is_how_it_ended_and_what_it_said_last(code: int, stderr: bytes, reason: str) -> None:
    assert failure_reason(code, stderr) == reason


def test_a_reason_fits_whatever_was_said() -> None:
    for said in (b"x" * 1024, "é".encode() * 512, b"\xff" * 1024):
        reason = failure_reason(1, said)
        assert 1000 < len(reason.encode()) <= 1024
        assert reason[-1] == said.decode(errors="replace")[-1]
