"""Files behind a URL are what the Disk port says of files, whatever store has them."""

import importlib
import traceback

import pytest

from tests.support.s3_server import s3_server
from topics.host.cold.fsspec_files import open_files
from topics.kernel.errors import CannotOpen, Rejected
from topics.spark.directory import DirectoryPlace, FsspecDisk, open_disk


@pytest.fixture(scope="module")
def s3():
    with s3_server() as options:
        importlib.import_module("s3fs").S3FileSystem(skip_instance_cache=True, **options).mkdir("backup")
        yield options


@pytest.fixture(params=["memory://", "s3://", "file://"])
def disk(request, tmp_path):
    url, options = "memory://files/one", None
    if request.param == "s3://":
        url, options = "s3://backup/one", request.getfixturevalue("s3")
    elif request.param == "file://":
        url = f"file://{tmp_path}/backup/one"
    files = open_files(url, "path", options)
    files.write("FORMAT", b"topics 1")
    files.write("wal/0/wal-1.log", b"the log")
    return FsspecDisk(files)


@pytest.mark.rule("P3.1")
def test_files_are_read_as_a_disk_has_them(disk):
    assert disk.names("") == ["FORMAT", "wal"]
    assert disk.names("wal/0") == ["wal-1.log"]
    assert disk.names("nowhere") == []
    assert [disk.size(path) for path in ("FORMAT", "wal", "nothing")] == [8, None, None]
    assert [disk.links(path) for path in ("FORMAT", "nothing")] == [1, 0]
    assert disk.read("FORMAT", 0, 100) == b"topics 1"
    assert disk.read("FORMAT", 3, 3) == b"ics"
    assert disk.read("FORMAT", 3, 0) == b""  # as bytes=3-2 an object store refuses it, or sends everything
    assert disk.read("FORMAT", 8, 10) == b""
    assert disk.read("FORMAT", 20, 10) == b""
    with pytest.raises(FileNotFoundError, match="nothing"):
        disk.read("nothing", 0, 1)


def test_errors_are_os_errors_and_hold_no_secret(s3):
    secret = "s3cret"
    unreachable = {**s3, "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
    with pytest.raises(OSError, match=r"s3://backup/one/FORMAT") as told:
        FsspecDisk(open_files(f"s3://me:{secret}@backup/one", "path", unreachable)).read("FORMAT", 0, 1)
    assert secret not in "".join(traceback.format_exception(told.value))
    with pytest.raises(Rejected, match=r"path: nowhere://x cannot be used: Protocol not known") as refused:
        open_disk(f"nowhere://me:{secret}@x")
    assert secret not in str(refused.value)
    with pytest.raises(CannotOpen, match="memory://nowhere/x is no topics directory") as absent:
        DirectoryPlace(path=f"memory://me:{secret}@nowhere/x", internal=False).look()
    assert secret not in str(absent.value)
