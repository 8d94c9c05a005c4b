"""A pipe, a socket, a link or a directory with the name of a file of topics: refused by name, and never waited for."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

import topics
from tests.support.sample_store import build
from topics.audit.fsck import Options, fsck
from topics.audit.repair.offline import repair_directory
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.fsspec_files import open_files
from topics.host.directory.owner import same_boot_at
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import CannotOpen, Unusable
from topics.spark.directory import FsspecDisk
from topics.store.opened import StoreOptions

SEGMENT = "topics/0000000000000001/seg-00000000000000000001"
FILES = (
    "FORMAT",
    "LOCK",
    "meta/snapshot.0002.bin",
    f"{SEGMENT}.data",
    f"{SEGMENT}.idx",
    "wal/gen-0/shard-00/wal-00000000000000000001.log",
    "wal/gen-0/shard-00/CURRENT",
)
DIRECTORIES = ("meta", "topics", "topics/0000000000000001", "wal", "wal/gen-0", "wal/gen-0/shard-00")
KINDS = ("pipe", "socket", "directory", "symbolic link")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "d"
    options = StoreOptions(segments=SegmentRules(records_max=8), min_free_bytes=0)
    with topics.open(path, options=options) as store:
        for count in (20, 1):
            store.topic("t").put_many([{"data": n} for n in range(count)])
            store.sync()
            store.checkpoint()
    return path


def replaced(filled, tmp_path, monkeypatch, name, kind):
    """A copy of the directory in which something else has this name."""
    root = tmp_path / "d"
    shutil.copytree(filled, root)
    path = root / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "symbolic link":
        path.symlink_to("/dev/null")
    elif kind == "link to nothing":
        path.symlink_to("not-mounted")
    elif kind == "file":
        path.write_bytes(b"x")
    else:
        monkeypatch.chdir(path.parent)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as place:
            place.bind(path.name)
    return root


def looked(root):
    return fsck(ReadOnlyDisk(root), where="d", options=Options(settled=True, same_boot=same_boot_at(root)))


@pytest.mark.rule("T4.10")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_named_by_a_start_and_by_fsck(filled, tmp_path, monkeypatch, name, kind):
    root = replaced(filled, tmp_path, monkeypatch, name, kind)
    report = looked(root)
    with pytest.raises(CannotOpen) as refused:
        topics.open(root)

    (told,) = [one for one in report.errors if (one.file, one.check) == (name, "leftover")]
    assert told.detail.startswith(f"it is a {kind} where a file of topics should be: remove it")
    assert report.exit_code == 1
    assert name in str(refused.value)
    assert "remove it" in str(refused.value)


@pytest.mark.rule("T4.10")
@pytest.mark.parametrize("kind", ["pipe", "file", "symbolic link"])
@pytest.mark.parametrize("name", DIRECTORIES)
def test_what_is_no_directory_is_named_too(filled, tmp_path, monkeypatch, name, kind):
    root = replaced(filled, tmp_path, monkeypatch, name, kind)
    report = looked(root)
    with pytest.raises(CannotOpen) as refused:
        topics.open(root)

    (told,) = [one for one in report.errors if (one.file, one.check) == (name, "leftover")]
    assert "of topics should be: remove it" in told.detail
    assert report.exit_code == 1
    assert "remove it" in str(refused.value)
    assert str(refused.value).startswith(f"{root / name}: ")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_named_also_where_no_start_needs_one(filled, tmp_path, monkeypatch, kind):
    root = replaced(filled, tmp_path, monkeypatch, "RESTORED", kind)

    (told,) = [one for one in looked(root).violations if one.file == "RESTORED"]
    assert told.detail.startswith(f"it is a {kind} where a file of topics should be: remove it")
    with topics.open(root) as store:
        assert store.topic("t").state().count == 21


def test_a_link_to_a_directory_is_one(filled, tmp_path):
    root = tmp_path / "d"
    shutil.copytree(filled, root)
    (root / "topics").rename(tmp_path / "elsewhere")
    (root / "topics").symlink_to(tmp_path / "elsewhere")

    assert not looked(root).errors
    with topics.open(root) as store:
        assert store.topic("t").state().count == 21


@pytest.mark.rule("T4.10", "T4.11")
@pytest.mark.parametrize("name", ["meta", "wal", "wal/gen-0", "wal/gen-0/shard-00"])
def test_a_link_to_a_directory_that_is_away_is_named_and_no_repair_takes_it_for_lost(
    filled, tmp_path, monkeypatch, name
):
    root = replaced(filled, tmp_path, monkeypatch, name, "link to nothing")
    before = {path: path.lstat().st_size for path in root.rglob("*")}
    (told,) = [one for one in looked(root).errors if (one.file, one.check) == (name, "leftover")]
    with pytest.raises(CannotOpen, match="bring back what it leads to") as refused:
        topics.open(root)
    with pytest.raises(NotADirectoryError):
        repair_directory(root)

    assert told.detail.endswith("or bring back what it leads to")
    assert str(refused.value).startswith(f"{root / name}: ")
    assert {path: path.lstat().st_size for path in root.rglob("*")} == before


@pytest.mark.rule("T4.11")
def test_a_repair_says_nothing_of_a_directory_for_what_it_cannot_put_aside(filled, tmp_path):
    root = tmp_path / "d"
    shutil.copytree(filled, root)
    (root / "meta" / "snapshot.tmp").mkdir()

    assert not repair_directory(root).aside


@pytest.mark.rule("T4.10")
def test_the_directories_of_one_behind_a_url_are_none_of_these():
    """An object store has no directories, and is asked nothing for an empty read."""
    files = open_files("memory://sample", "path")
    for path, data in build().files.items():
        files.write(path, data)
    report = fsck(FsspecDisk(files), where="memory://sample", options=Options(settled=True))

    assert report.exit_code == 0
    assert report.records


@pytest.mark.usefixtures("filled", "no_superuser")
@pytest.mark.parametrize("name", ["FORMAT", "wal/gen-0/shard-00/CURRENT"])
def test_a_file_that_this_user_may_not_read_is_named(name):
    """As a rule somebody ran a command as root."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "d"
        with topics.open(root, options=StoreOptions(min_free_bytes=0)) as store:
            store.topic("t").put(1)
        (root / name).chmod(0)
        with pytest.raises(CannotOpen) as refused:
            topics.open(root)

    assert refused.value.reason is Unusable.UNWRITABLE
    assert f"{root / name} cannot be read and written by this user" in str(refused.value)
