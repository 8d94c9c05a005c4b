"""`topics queue history` as a user calls it."""

from __future__ import annotations

import json

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
