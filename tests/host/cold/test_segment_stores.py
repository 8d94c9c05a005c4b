"""What every `SegmentStore` does: a folder, real and simulated, and object stores behind fsspec."""

import importlib
import itertools
import subprocess
import sys

import pytest

from tests.support.s3_server import s3_server
from topics.host.cold.fsspec_files import without_secrets
from topics.host.cold.fsspec_store import is_url, open_fsspec
from topics.host.cold.segment_stores import LocalSegmentStore
from topics.host.directory.layout import segment_of, segment_path
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Rejected
from topics.log.regions import SegmentId
from topics.testing.below import Below
from topics.testing.faults import FaultKind, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

ONE, TWO, OTHER = SegmentId(10, 1), SegmentId(10, 10_001), SegmentId(255, 7)
PARTS = {"data": b"the frames" * 100, "idx": b"entries", "col": b""}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3():
    with s3_server() as options:
        files = importlib.import_module("s3fs").S3FileSystem(skip_instance_cache=True, **options)
        files.mkdir("cold")
        yield options


@pytest.fixture(params=["folder", "simulated folder", "memory://", "file://", "s3://"])
def store(request, tmp_path):
    if request.param == "folder":
        disk = OsDisk(tmp_path)
        yield LocalSegmentStore(disk, str(tmp_path))
        disk.close()
    elif request.param == "simulated folder":
        yield LocalSegmentStore(SimDisk(), "simulated")
    elif request.param == "memory://":
        yield open_fsspec(f"memory://cold-{next(_numbers)}/below")
    elif request.param == "file://":
        yield open_fsspec(f"file://{tmp_path}/below")
    else:
        yield open_fsspec(f"s3://cold/run-{next(_numbers)}", request.getfixturevalue("s3"))


@pytest.mark.rule("T6.1", "T6.2")
class TestContract:
    def test_what_was_put_is_read(self, store):
        store.put(ONE, PARTS)

        assert {part: store.read_range(ONE, part, 0, 5000) for part in PARTS} == PARTS
        assert store.read_range(ONE, "data", 4, 6) == b"frames"
        assert store.read_range(ONE, "idx", 5, 100) == b"es"
        assert store.read_range(ONE, "idx", 7, 100) == b""
        assert store.read_range(ONE, "idx", 3, 0) == b""

    def test_parts_are_told_apart(self, store):
        store.put(ONE, {"data": b"d", "idx": b"ii"})
        store.put(ONE, {"del": b"eee"})

        assert [store.exists(ONE, part) for part in ("data", "idx", "col", "del")] == [
            True,
            True,
            False,
            True,
        ]
        assert [store.len(ONE, part) for part in ("data", "idx", "del")] == [1, 2, 3]
        assert not store.exists(TWO, "data")

    def test_putting_again_replaces_a_part(self, store):
        store.put(ONE, PARTS)
        store.put(ONE, {"data": b"less"})

        assert (store.len(ONE, "data"), store.len(ONE, "idx")) == (4, 7)
        assert store.read_range(ONE, "data", 0, 5000) == b"less"

    def test_the_list_is_ascending_over_all_topics(self, store):
        assert store.list() == []
        for segment in (OTHER, TWO, ONE):
            store.put(segment, {"idx": b"x"})

        assert store.list() == [ONE, TWO, OTHER]

    def test_deleting_takes_every_part_and_may_be_repeated(self, store):
        store.put(ONE, {**PARTS, "del": b"x"})
        store.put(TWO, PARTS)
        store.delete(ONE)
        store.delete(ONE)
        store.delete(OTHER)

        assert store.list() == [TWO]
        assert not any(store.exists(ONE, part) for part in ("data", "idx", "col", "del"))

    def test_a_part_that_is_not_there_is_not_found(self, store):
        store.put(ONE, {"idx": b"x"})
        with pytest.raises(FileNotFoundError):
            store.read_range(ONE, "data", 0, 1)
        with pytest.raises(FileNotFoundError):
            store.len(ONE, "data")
        with pytest.raises(FileNotFoundError):
            store.read_range(TWO, "data", 0, 1)

    def test_it_remembers_whose_it_is(self, store):
        assert store.read_owner() is None
        store.write_owner(b"mine")
        store.write_owner(b"still mine")

        assert store.read_owner() == b"still mine"
        assert store.list() == []


@pytest.mark.rule("T1.8")
def test_names_mirror_the_data_directory(tmp_path):
    disk = OsDisk(tmp_path)
    LocalSegmentStore(disk, "cold").put(SegmentId(0xAB, 10_001), PARTS)
    disk.close()
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))

    expected = "topics/00000000000000ab/seg-00000000000000010001"
    assert found == [f"{expected}.col", f"{expected}.data", f"{expected}.idx"]
    assert segment_of(segment_path(*ONE, "data")) == ONE


@pytest.mark.parametrize(
    "path",
    [
        "OWNER",
        "topics/000000000000000a/seg-1.data",
        "topics/000000000000000A/seg-00000000000000000001.data",
        "topics/a/seg-00000000000000000001.data",
        "other/000000000000000a/seg-00000000000000000001.data",
        "topics/000000000000000a/seg-00000000000000000001.txt",
    ],
)
def test_files_of_others_are_no_segments(path):
    """What is in a bucket and not ours is not listed, so it is never removed."""
    assert segment_of(path) is None


@pytest.mark.parametrize("shape", list(Shape))
def test_a_folder_has_a_part_whole_or_as_it_was(shape):
    """Power fails at every call of a `put` that replaces: before it returns either, afterwards the new one."""
    calls = 0
    while True:
        disk = SimDisk(calls)
        store = LocalSegmentStore(disk, "simulated")
        store.put(ONE, PARTS)
        disk.crash_at(calls)
        done = False
        try:
            store.put(ONE, {"data": b"new" * 3000, "idx": b"other"})
            done = True
        except SimCrash:
            pass
        disk.power_loss(shape)
        found = {part: store.read_range(ONE, part, 0, 10_000) for part in ("data", "idx")}

        assert found["data"] in ({PARTS["data"], b"new" * 3000} if not done else {b"new" * 3000})
        assert found["idx"] in ({PARTS["idx"], b"other"} if not done else {b"other"})
        store.delete(ONE)
        assert store.list() == []
        if done:
            break
        calls += 1

    assert calls >= 8


@pytest.mark.parametrize(
    ("op", "kind", "at"),
    [(op, kind, at)
     for op, kind in (("create", FaultKind.ENOSPC), ("write", FaultKind.SHORT), ("write", FaultKind.ENOSPC),
                      ("sync_data", FaultKind.EIO), ("rename", FaultKind.EIO))
     for at in range(3)],
)  # fmt: skip
def test_a_put_that_fails_gives_all_its_room_back(op, kind, at):
    """Whichever part has no room: on a full disk the next try would need as much again."""
    disk = SimDisk(mounts=("cold",))
    store = LocalSegmentStore(Below(disk, "cold"), "simulated")
    store.put(TWO, {"idx": b"x"})  # the topic's folder
    before = disk.free_bytes("cold")
    disk.inject(op, kind, at=disk.counts[op] + at)
    with pytest.raises(OSError, match=r"No space|Input/output|[Ss]hort"):
        store.put(ONE, {"data": b"new" * 3000, "idx": b"other" * 1000, "col": b"c" * 10})
    left = sum(store.len(ONE, part) for part in PARTS if store.exists(ONE, part))

    assert disk.free_bytes("cold") == before - left
    assert left == 0 or op == "rename"


def test_what_did_not_fit_needs_no_more_room_the_next_time():
    disk = SimDisk(mounts=("cold",))
    store = LocalSegmentStore(Below(disk, "cold"), "simulated")
    parts = {"data": b"d" * 16_384, "idx": b"i" * 6000}
    disk.set_free(20_000, "cold")
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            store.put(ONE, parts)
        assert disk.free_bytes("cold") == 20_000
    disk.set_free(22_384, "cold")
    store.put(ONE, parts)

    assert {part: store.read_range(ONE, part, 0, 20_000) for part in parts} == parts
    assert disk.free_bytes("cold") == 0


@pytest.mark.rule("T6.2")
def test_an_unknown_scheme_or_a_missing_package_is_one_clear_line():
    with pytest.raises(Rejected, match=r"cold_dir: nowhere://x cannot be used: Protocol not known"):
        open_fsspec("nowhere://x")


@pytest.mark.rule("T6.2")
def test_without_fsspec_an_object_store_is_refused_and_the_rest_runs():
    """The product is imported and a folder is used with no package of the extra there."""
    code = """
import sys
for name in ("fsspec", "s3fs"):
    sys.modules[name] = None  # as if it were not installed
from topics.embed.store import Store
from topics.host.cold.fsspec_store import open_fsspec
from topics.kernel.errors import Rejected
try:
    open_fsspec("s3://user:secret@bucket/x")
except Rejected as refused:
    print(refused.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("cold_dir: s3://bucket/x cannot be used: ")
    assert done.stdout.endswith("; pip install 'topics-log[s3]'\n")
    assert done.stdout.count("\n") == 1


def test_a_store_is_imported_only_when_it_is_used():
    imports = "import sys, topics.embed.store, topics.host.cold.fsspec_store, topics.cli.main"
    code = f"{imports}; print('fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_messages_hold_no_secret():
    assert without_secrets("s3://user:secret@bucket/a/b?token=x#y") == "s3://bucket/a/b"
    assert is_url("s3://bucket")
    assert not is_url("/var/lib/cold")


def test_errors_of_other_libraries_are_os_errors(s3):
    """No such bucket, and no server: each is an OSError that names the place."""
    gone = open_fsspec("s3://no-such-bucket/x", s3)
    with pytest.raises(OSError, match="no-such-bucket"):
        gone.put(ONE, PARTS)
    unreachable = {**s3, "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
    with pytest.raises(OSError, match=r"s3://cold/x/topics/"):
        open_fsspec("s3://cold/x", unreachable).read_range(ONE, "data", 0, 1)
