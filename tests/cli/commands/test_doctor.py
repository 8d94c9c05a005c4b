"""`topics doctor`: what it finds of this machine, and what it would say of another one."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import topics
from topics.cli.commands.doctor import CheckVerdict, file_system_of, judged_syncs, sync_times, there
from topics.host.directory.layout import NEXT_FILE
from topics.kernel.limits import MIB


def found(call: Callable[..., Any], *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = call("doctor", "--json", *arguments)
    told = msgspec.json.decode(done.out)
    return done.code, {one["check"]: one for one in told["findings"]}


@pytest.mark.rule("O2.32")
def test_a_machine_that_is_well_is_told_check_by_check_and_nothing_is_left_behind(call, tmp_path):
    code, checks = found(call, "--set", "port=0", "--data", str(tmp_path / "not" / "there"))

    assert code == 0
    assert list(checks) == [
        "python", "extras", "directory", "space", "syncs", "open files", "clock", "port", "java",
    ]  # fmt: skip
    assert {one["verdict"] for one in checks.values()} <= {"ok", "warning"}
    assert "server" in checks["extras"]["found"]
    assert not (tmp_path / "not").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_yet_and_one_in_use_are_called_so(call, tmp_path, server):
    _, checks = found(call, "--set", "port=0", "--data", str(tmp_path / "nope"))
    assert f"it does not exist yet, so {tmp_path} is looked at" in checks["directory"]["found"]
    with topics.open(tmp_path / "data"):
        _, checks = found(call, "--set", "port=0", "--data", str(tmp_path / "data"))
    assert checks["directory"]["found"].endswith(f", in use by process {os.getpid()}")
    _, checks = found(call, "--set", "port=0", "--data", str(server.data))
    assert checks["directory"]["found"].endswith(f", a server at {server.url}")


def test_another_machine_cannot_be_looked_at(call):
    done = call("doctor", "--url", "http://elsewhere:4222")

    assert (done.code, done.out) == (2, b"")
    assert "doctor looks at the machine it runs on" in done.err


def test_people_get_a_table(call):
    done = call("doctor", "--set", "port=0")

    assert done.code == 0
    assert "what to do" in done.text
    assert "open files" in done.text


@pytest.mark.rule("O2.32")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_bad(call, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    code, checks = found(call, "--data", str(locked / "data"), "--set", "port=0")

    assert code == 1
    assert checks["directory"]["verdict"] == "bad"


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_where_the_directory_should_be_is_bad(call, tmp_path, below):
    (tmp_path / "file").touch()
    code, checks = found(call, "--data", str(tmp_path / "file" / below), "--set", "port=0")

    assert (code, checks["directory"]["verdict"]) == (1, "bad")
    assert f"{tmp_path / 'file'} is no directory" in checks["directory"]["found"]


@pytest.mark.rule("O2.32")
def test_too_little_room_is_bad_and_says_from_when_writes_are_refused(call):
    code, checks = found(call, "--set", "min_free_bytes=4611686018427387904", "--set", "port=0")

    assert code == 1
    assert checks["space"]["verdict"] == "bad"
    assert "min_free_bytes" in checks["space"]["advice"]


def test_the_next_log_file_counts_unless_it_is_there(call, tmp_path):
    """A store that nobody has written to yet reserves it before it takes anything (decision 141)."""
    disk = os.statvfs(tmp_path)
    kept = disk.f_bavail * disk.f_frsize - 512 * MIB
    sizes = ("--set", f"min_free_bytes={kept}", "--set", "wal_file_first=1GiB", "--set", "wal_file_max=1GiB")
    code, checks = found(call, *sizes, "--set", "port=0")
    assert (code, checks["space"]["verdict"]) == (1, "bad")
    assert checks["space"]["advice"].endswith(
        ", and at least 1.1 GB for the next log file beside it: make room"
    )

    shard = tmp_path / "topics-data" / "wal" / "gen-0" / "shard-00"
    shard.mkdir(parents=True)
    with (shard / NEXT_FILE).open("wb") as file:
        file.truncate(1024 * MIB)
    _, checks = found(call, *sizes, "--set", "port=0")
    assert checks["space"]["verdict"] == "warning"


def test_a_port_that_somebody_has_is_a_warning(call):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, checks = found(call, "--set", f"port={taken.getsockname()[1]}")

    assert code == 0
    assert checks["port"]["verdict"] == "warning"


def test_a_port_that_the_directorys_own_server_has_is_well(call, server, tmp_path):
    port = server.url.rpartition(":")[2]
    _, checks = found(call, "--data", str(server.data), "--set", f"port={port}")
    _, of_another = found(call, "--data", str(tmp_path), "--set", f"port={port}")

    assert (checks["port"]["verdict"], checks["port"]["found"]) == (
        "ok",
        f"127.0.0.1:{port}: this directory's server runs there",
    )
    assert of_another["port"]["verdict"] == "warning"


def test_a_log_that_is_newer_than_now_tells_of_a_clock_that_was_set_back(call, tmp_path):
    (tmp_path / "data" / "wal").mkdir(parents=True)
    (tmp_path / "data" / "wal" / "gone").symlink_to("nowhere")  # as a file that a server takes away meanwhile
    newest = tmp_path / "data" / "wal" / "file"
    newest.touch()
    _, checks = found(call, "--data", str(tmp_path / "data"), "--set", "port=0")
    assert checks["clock"]["verdict"] == "ok"

    ahead = newest.stat().st_mtime + 5000
    os.utime(newest, (ahead, ahead))
    _, checks = found(call, "--data", str(tmp_path / "data"), "--set", "port=0")
    assert checks["clock"]["verdict"] == "warning"


@pytest.mark.parametrize(
    ("median_s", "verdict", "word"),
    [
        (5e-6, CheckVerdict.WARNING, "has not"),
        (0.001, CheckVerdict.OK, ""),
        (0.2, CheckVerdict.WARNING, "faster disk"),
    ],
)
def test_syncs_that_are_too_fast_to_be_true_are_told(median_s, verdict, word):
    judged = judged_syncs(median_s, median_s * 2)

    assert judged.verdict is verdict
    assert word in judged.advice


def test_the_disk_is_asked_and_keeps_nothing(tmp_path):
    assert all(took > 0 for took in sync_times(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_directory_that_exists_is_what_is_looked_at(tmp_path):
    assert there(tmp_path / "a" / "b") == tmp_path
    assert there(tmp_path) == tmp_path


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
def test_a_file_system_in_memory_is_known():
    assert file_system_of(Path("/dev/shm")) == "tmpfs"
