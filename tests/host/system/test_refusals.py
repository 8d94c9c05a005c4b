"""What the system refused, in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from topics.host.system.refusals import refusal_line


def refused(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "run this as the user that owns it"),
        (errno.EPERM, "run this as the user that owns it"),
        (errno.EROFS, "it is read as it is by topics ls, get, state, tail and fsck"),
        (errno.ENOSPC, "free some"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "see the system's log"),
        (errno.ENOENT, "No such file or directory"),
    ],
    ids=errno.errorcode.get,
)
def test_the_path_and_what_to_do_are_named(tmp_path: Path, code: int, advice: str) -> None:
    line = refusal_line(refused(code, "wal/x"), tmp_path)

    assert line.startswith(f"{tmp_path / 'wal/x'}")
    assert advice in line
    assert "Errno" not in line


def test_a_path_is_below_the_directory_unless_it_is_named_as_the_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may have the name of one that is in it."""
    monkeypatch.chdir(tmp_path)
    Path("topics/topics").mkdir(parents=True)
    Path("topics/topics/seg").touch()
    Path("acks").touch()
    root = Path("topics")

    def named(path: str) -> str:
        return refusal_line(refused(errno.ENOENT, path), root).partition(":")[0]

    assert named("topics/seg") == "topics/topics/seg"
    assert named("topics/LOCK") == "topics/LOCK"
    assert named("topics") == "topics/topics"
    assert named("wal/x") == "topics/wal/x"
    assert named("acks") == "acks"
    assert named("/else/where") == "/else/where"


def test_without_a_path_it_is_the_directory_or_the_streams(tmp_path: Path) -> None:
    assert refusal_line(refused(errno.EIO), tmp_path).startswith(f"{tmp_path}: ")
    assert refusal_line(refused(errno.ENOSPC)) == "input or output failed: No space left on device"
    assert refusal_line(refused(errno.EROFS, "/x/y"), tmp_path / "new").endswith("or choose another place")
