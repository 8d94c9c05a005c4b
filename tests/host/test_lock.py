"""One owner per directory; a restart of the machine is noticed, and forgotten only after recovery is complete."""

import json
import os
import shutil
import subprocess
import sys

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.host.boot import BOOT_ID_CHARS_MAX
from topics.host.layout import Format
from topics.host.lock import (
    BEGUN_MAX,
    RECORD_SIZE,
    RECORD_SIZE_BEFORE,
    URL_CHARS_MAX,
    DirectoryLock,
    OwnerRecord,
    read_owner,
    same_boot,
)
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import U32_MAX, U64_MAX, WAL_SHARDS_MAX
from topics.testing.simdisk import SimDisk

LOGS = [Format(1, 0)]
RECORD = OwnerRecord(pid=4711, boot_id="5e4f8a1c-boot", device=66, inode=1234567)

HOLD = """
import sys
from topics.host.lock import DirectoryLock
lock = DirectoryLock.acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

TRY = """
import sys
from topics.host.lock import DirectoryLock
from topics.kernel.errors import CannotOpen
try:
    DirectoryLock.acquire(sys.argv[1])
    print("acquired")
except CannotOpen as error:
    print(error.reason.value, error.detail["owner_pid"], error)
"""

FORK = """
import os, sys
from topics.host.lock import DirectoryLock
from topics.kernel.errors import CannotOpen
lock = DirectoryLock.acquire(sys.argv[1])
child = os.fork()
if child == 0:
    assert not lock.held
    lock.release()
    try:
        DirectoryLock.acquire(sys.argv[1])
        os._exit(1)
    except CannotOpen as error:
        os._exit(0 if error.detail["owner_pid"] == os.getppid() else 2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
try:
    DirectoryLock.acquire(sys.argv[1])
except CannotOpen:
    print("still held", flush=True)
ready, tell = os.pipe()
if os.fork() == 0:
    os.close(1)
    os.write(tell, b"!")
    sys.stdin.read()
    os._exit(0)
os.read(ready, 1)
os.kill(os.getpid(), 9)
"""


def python(code, root):
    arguments = [sys.executable, "-c", code, str(root)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def acquire(root, boot_id="boot-1", mount=7):
    return DirectoryLock.acquire(root, find_boot_id=lambda: boot_id, find_mount=lambda _: mount)


@pytest.mark.rule("T1.2")
def test_a_second_process_is_refused_and_told_who_owns(tmp_path):
    with python(HOLD, tmp_path) as owner:
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(CannotOpen, match=f"in use by process {owner.pid}: ") as caught:
            acquire(tmp_path)
        assert caught.value.reason is Unusable.IN_USE
        assert caught.value.detail["owner_pid"] == owner.pid

        with python(TRY, tmp_path) as third:
            assert third.stdout.readline().startswith(f"in_use {owner.pid} ")
        owner.kill()
        owner.wait()
        acquire(tmp_path).release()


@pytest.mark.rule("T1.2")
def test_the_same_process_is_refused(tmp_path):
    lock = acquire(tmp_path)
    with pytest.raises(CannotOpen, match=rf"in use by this process \({os.getpid()}\)"):
        acquire(tmp_path)
    lock.release()
    lock.release()

    assert not lock.held
    acquire(tmp_path).release()


@pytest.mark.rule("T1.2")
def test_a_forked_child_neither_gets_the_lock_nor_keeps_it(tmp_path):
    with python(FORK, tmp_path) as parent:
        assert parent.stdout.readline() == "still held\n"
        assert parent.wait() == -9
        acquire(tmp_path).release()  # while a child of the dead owner still runs


def test_a_refused_opener_changes_nothing(tmp_path):
    lock = acquire(tmp_path)
    before = (tmp_path / "LOCK").read_bytes()
    with pytest.raises(CannotOpen):
        acquire(tmp_path, "boot-2")

    assert (tmp_path / "LOCK").read_bytes() == before
    lock.release()


@pytest.mark.rule("T1.1")
def test_lock_names_owner_and_machine(tmp_path):
    lock = acquire(tmp_path)
    lock.confirm(LOGS)
    status = (tmp_path / "LOCK").stat()
    expected = OwnerRecord(
        pid=os.getpid(), boot_id="boot-1", device=status.st_dev, inode=status.st_ino, begun=((0, 1),), mount=7
    )

    assert read_owner(tmp_path) == expected
    assert (tmp_path / "LOCK").read_bytes().count(b"\n") == 1
    lock.release()


@pytest.mark.rule("T4.24")
def test_a_new_directory_counts_as_a_restart(tmp_path):
    lock = acquire(tmp_path)

    assert lock.previous is None
    assert lock.machine_restarted
    lock.release()


@pytest.mark.rule("T4.24")
@pytest.mark.parametrize(
    ("before", "now", "restarted"),
    [
        ("boot-1", "boot-1", False),
        ("boot-1", "boot-2", True),
        ("boot-1", None, True),
        (None, "boot-1", True),
        (None, None, True),
    ],
)
def test_a_changed_or_unknown_boot_id_counts_as_a_restart(tmp_path, before, now, restarted):
    first = acquire(tmp_path, before)
    first.confirm(LOGS)
    first.release()
    second = acquire(tmp_path, now)

    assert second.previous.boot_id == before
    assert second.machine_restarted == restarted
    second.release()


@pytest.mark.rule("T4.26")
@pytest.mark.parametrize(
    ("before", "now", "restarted"),
    [(7, 7, False), (7, 8, True), (7, None, True), (None, 7, True), (None, None, True)],
)
def test_another_mount_or_an_unknown_one_counts_as_a_restart(tmp_path, before, now, restarted):
    """A file system that was taken away, repaired and mounted again keeps boot id, device and inode."""
    first = acquire(tmp_path, mount=before)
    first.confirm(LOGS)
    first.release()
    second = acquire(tmp_path, mount=now)

    assert second.machine_restarted == restarted
    second.release()


@pytest.mark.rule("T4.26")
def test_a_line_of_an_earlier_version_names_no_mount_so_it_counts_as_a_restart_once(tmp_path):
    status = tmp_path.stat()
    path = tmp_path / "LOCK"
    path.touch()
    line = (
        f'{{"pid": 1, "boot_id": "boot-1", "device": {status.st_dev}, "inode": {path.stat().st_ino}, "begun": [[0, 2]],'
        ' "sum": "8ac872488a445bc5"}'
    )
    path.write_bytes(line.encode().ljust(RECORD_SIZE_BEFORE - 1) + b"\n")
    lock = acquire(tmp_path)
    assert (lock.previous.boot_id, lock.previous.begun, lock.previous.mount) == ("boot-1", ((0, 2),), None)
    assert lock.machine_restarted
    lock.confirm(LOGS)
    lock.release()
    again = acquire(tmp_path)

    assert not again.machine_restarted
    again.release()


def test_a_line_of_an_earlier_version_over_one_of_this_is_read():
    """It writes its 256 bytes and leaves what is behind them."""
    line = json.dumps({"pid": 3, "boot_id": "boot-1", "device": 1, "inode": 2}).encode()
    data = line.ljust(RECORD_SIZE_BEFORE - 1) + b"\n" + RECORD.encode()[RECORD_SIZE_BEFORE:]

    assert OwnerRecord.decode(data) == OwnerRecord(pid=3, boot_id="boot-1", device=1, inode=2)


@pytest.mark.rule("T1.1")
def test_a_server_notes_its_url_and_who_is_refused_is_told(tmp_path):
    lock = acquire(tmp_path)
    lock.note_url("http://127.0.0.1:4000")
    lock.confirm(LOGS)
    assert (read_owner(tmp_path).pid, read_owner(tmp_path).url) == (os.getpid(), "http://127.0.0.1:4000")
    with python(TRY, tmp_path) as other:
        assert (
            f"in use by process {os.getpid()}, a server at http://127.0.0.1:4000: " in other.stdout.readline()
        )
    with pytest.raises(CannotOpen) as refused:
        acquire(tmp_path)
    assert refused.value.detail["owner_url"] == "http://127.0.0.1:4000"
    lock.release()
    lock = acquire(tmp_path)  # of one that has not said where it listens

    assert read_owner(tmp_path).url is None
    lock.release()


@pytest.mark.parametrize("url", ["http://" + "h" * URL_CHARS_MAX + ":1", 'http://"quoted":1', ""])
def test_a_url_that_does_not_fit_the_line_is_left_out(tmp_path, url):
    lock = acquire(tmp_path)
    lock.note_url(url)
    lock.confirm(LOGS)

    assert read_owner(tmp_path) is not None
    assert read_owner(tmp_path).url is None
    lock.release()


def test_the_boot_id_changes_only_when_recovery_is_confirmed(tmp_path):
    first = acquire(tmp_path, "boot-1")
    first.confirm(LOGS)
    first.release()
    for _ in range(3):  # a recovery that does not get to its end
        lock = acquire(tmp_path, "boot-2")
        assert lock.machine_restarted
        assert read_owner(tmp_path).boot_id == "boot-1"
        assert read_owner(tmp_path).pid == os.getpid()
        lock.release()
    lock = acquire(tmp_path, "boot-2")
    lock.confirm(LOGS)
    lock.release()

    lock = acquire(tmp_path, "boot-2")
    assert not lock.machine_restarted
    lock.release()


def test_a_confirmation_that_cannot_be_synced_says_so(tmp_path):
    lock = acquire(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        lock.confirm(LOGS, sync=lambda _: os.close(-1))
    lock.confirm(LOGS)
    lock.release()


@pytest.mark.rule("T4.24")
def test_a_boot_that_is_forgotten_counts_as_a_restart_and_is_tried_again_at_the_end(tmp_path):
    lock = acquire(tmp_path)
    lock.confirm(LOGS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        lock.forget_boot(sync=lambda _: os.close(-1))
    (tmp_path / "LOCK").write_bytes(
        attrs.evolve(read_owner(tmp_path), boot_id="boot-1").encode()
    )  # what the disk has
    lock.release()
    again = acquire(tmp_path)

    assert (again.previous.boot_id, again.previous.begun) == (None, ((0, 1),))
    assert again.machine_restarted
    again.release()


@pytest.mark.rule("T4.26")
def test_a_copied_directory_counts_as_a_restart(tmp_path):
    (tmp_path / "a").mkdir()
    lock = acquire(tmp_path / "a")
    lock.confirm(LOGS)
    lock.release()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "moved")
    copied, moved = acquire(tmp_path / "b"), acquire(tmp_path / "moved")

    assert copied.previous == moved.previous
    assert copied.machine_restarted
    assert not moved.machine_restarted
    copied.release()
    moved.release()


@pytest.mark.rule("T4.24")
@pytest.mark.parametrize("content", [b"", b"4711\n", b"\0" * RECORD_SIZE, b"[1]", b"\xff\xfe", b'{"pid": 1}'])
def test_an_unreadable_lock_counts_as_a_restart(tmp_path, content):
    (tmp_path / "LOCK").write_bytes(content)
    lock = acquire(tmp_path)

    assert lock.previous is None
    assert lock.machine_restarted
    lock.release()


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda root: None, Unusable.MISSING),
        (lambda root: root.write_bytes(b""), Unusable.NOT_A_DIRECTORY),
        (lambda root: (root / "LOCK").mkdir(parents=True), Unusable.FOREIGN),
        (lambda root: root.mkdir() or (root / "LOCK").symlink_to("/dev/null"), Unusable.FOREIGN),
    ],
)
def test_a_directory_that_cannot_be_locked_says_why(tmp_path, prepare, reason):
    root = tmp_path / "data"
    prepare(root)
    with pytest.raises(CannotOpen, match=f"cannot open {root}: ") as caught:
        acquire(root)

    assert caught.value.reason is reason


@pytest.mark.usefixtures("no_superuser")
def test_an_unwritable_directory_says_so():
    with pytest.raises(
        CannotOpen, match=r"^cannot open /: /LOCK cannot be read and written by this user"
    ) as caught:
        acquire("/")

    assert caught.value.reason is Unusable.UNWRITABLE


def test_a_record_has_one_size_and_comes_back():
    long = attrs.evolve(
        RECORD, boot_id="x" * BOOT_ID_CHARS_MAX, pid=U32_MAX, device=U64_MAX, inode=U64_MAX,
        begun=((U32_MAX, WAL_SHARDS_MAX),) * BEGUN_MAX, mount=U64_MAX, url="u" * URL_CHARS_MAX,
    )  # fmt: skip
    for record in (RECORD, long, attrs.evolve(RECORD, boot_id=None)):
        assert len(record.encode()) == RECORD_SIZE
        assert OwnerRecord.decode(record.encode()) == record


@pytest.mark.parametrize("name", ["pid", "boot_id", "device", "inode", "mount", "url"])
@pytest.mark.parametrize(
    "value", ["true", "1.5", "-1", "1" + "0" * 20, r'"\\"', r'"\""', '""', '"x' + "y" * 200 + '"', "[]", "{}"]
)
def test_a_record_with_a_wrong_value_is_none(name, value):
    good = attrs.evolve(RECORD, mount=77, url="http://h:1").encode().decode()
    fields = {
        "pid": "4711", "boot_id": '"5e4f8a1c-boot"', "device": "66", "inode": "1234567", "mount": "77", "url": '"http://h:1"',
    }  # fmt: skip
    bad = good.replace(f'"{name}": {fields[name]}', f'"{name}": {value}')

    assert bad != good
    assert OwnerRecord.decode(bad.encode()) is None


_NUMBERS = st.sampled_from([0, 1, U32_MAX, U64_MAX]) | st.integers() | st.integers(0, 10**180)
_TEXTS = st.none() | st.text(max_size=BOOT_ID_CHARS_MAX + 1) | st.text('x"\\', max_size=BOOT_ID_CHARS_MAX)
_LOGS = st.lists(
    st.lists(st.sampled_from([1, U32_MAX, WAL_SHARDS_MAX]) | st.integers(), max_size=3), max_size=4
)
_LINES = st.fixed_dictionaries(
    {"pid": _NUMBERS, "boot_id": _TEXTS, "device": _NUMBERS, "inode": _NUMBERS},
    optional={"begun": _LOGS, "mount": _NUMBERS, "url": _TEXTS},
).map(lambda line: json.dumps(line).encode())


@given(_LINES | st.binary(max_size=RECORD_SIZE))
@example(b'{"pid": 1, "boot_id": null, "device": 1' + b"0" * 179 + b', "inode": 1}')
@example(b'{"pid": 1, "boot_id": "' + rb"\"" * BOOT_ID_CHARS_MAX + b'", "device": 1, "inode": 1}')
def test_whatever_is_in_lock_is_no_record_or_one_that_fits_its_line_again(data):
    """The next owner writes the line anew with its own pid."""
    found = OwnerRecord.decode(data)
    if found is not None:
        anew = attrs.evolve(found, pid=U32_MAX).begin([Format(WAL_SHARDS_MAX, U32_MAX - n) for n in range(3)])
        assert len(anew.encode()) == RECORD_SIZE
        assert OwnerRecord.decode(anew.encode()) == anew


@pytest.mark.rule("T4.24")
@pytest.mark.parametrize("number", ["1" + "0" * 179, "-1"])
def test_a_lock_whose_numbers_cannot_be_counts_as_a_restart(tmp_path, number):
    line = f'{{"pid": 1, "boot_id": "boot-1", "device": {number}, "inode": 1}}'
    (tmp_path / "LOCK").write_bytes(line.encode())
    lock = acquire(tmp_path)

    assert lock.previous is None
    assert lock.machine_restarted
    lock.release()


@pytest.mark.parametrize(
    "value",
    ["null", "{}", "[1]", "[[1]]", "[[1, 2, 3]]", "[[-1, 1]]", "[[0, 0]]", "[[0, 65]]", "[[4294967296, 1]]",
     "[[0, true]]", "[[0, 1.0]]", "[[0, 1], [1, 1], [2, 1], [3, 1], [4, 1]]"],
)  # fmt: skip
def test_a_record_that_names_logs_which_cannot_be_is_none(value):
    good = RECORD.begin([Format(2, 3)]).encode().decode()
    bad = good.replace('"begun": [[3, 2]]', f'"begun": {value}')

    assert bad != good
    assert OwnerRecord.decode(bad.encode()) is None


@pytest.mark.rule("T1.1")
def test_the_logs_that_have_begun_are_named_the_newest_first_and_stay_until_others_take_their_place(tmp_path):
    for generation in range(6):
        lock = acquire(tmp_path)
        for shards in (generation + 2, generation + 1):
            lock.confirm([Format(shards, generation)])
        assert read_owner(tmp_path).begun[0] == (generation, generation + 1)
        lock.release()
    acquire(tmp_path, "boot-2").release()  # a recovery that does not get to its end

    assert read_owner(tmp_path).begun == ((5, 6), (4, 5), (3, 4))


def test_one_wrong_bit_names_no_log_that_there_never_was_and_no_other_server():
    """The log would be missed: the store would be read-only, and a repair would take its records for lost."""
    record = attrs.evolve(RECORD, url="http://[::1]:4000").begin([Format(2, 3)])
    line, logs = record.encode(), record.begun
    for bit in range(len(line) * 8):
        turned = bytearray(line)
        turned[bit // 8] ^= 1 << bit % 8
        found = OwnerRecord.decode(bytes(turned))

        assert found is None or found.begun in ((), logs)
        assert found is None or found.url in (None, record.url)


@pytest.mark.rule("T4.26")
def test_only_the_same_boot_mount_device_and_inode_are_the_same():
    record = attrs.evolve(RECORD, mount=77)
    same = {"boot_id": RECORD.boot_id, "device": RECORD.device, "inode": RECORD.inode, "mount": 77}

    assert same_boot(record, **same)
    for change in (
        {"boot_id": "other"},
        {"boot_id": None},
        {"device": 1},
        {"inode": 1},
        {"mount": 78},
        {"mount": None},
    ):
        assert not same_boot(record, **{**same, **change})
    assert not same_boot(None, **same)
    assert not same_boot(attrs.evolve(record, boot_id=None), **{**same, "boot_id": None})
    assert not same_boot(attrs.evolve(record, mount=None), **{**same, "mount": None})


def test_the_simulated_disk_can_run_the_same_logic():
    disk = SimDisk()
    disk.create("LOCK", RECORD_SIZE)
    record = OwnerRecord(
        pid=1, boot_id=disk.boot_id, device=disk.device, inode=disk.inode("LOCK"), mount=disk.mount
    )
    disk.write("LOCK", 0, [record.encode()])
    disk.sync_data("LOCK")
    disk.sync_dir("")

    def restarted() -> bool:
        found = OwnerRecord.decode(disk.read("LOCK", 0, RECORD_SIZE))
        return not same_boot(
            found, boot_id=disk.boot_id, device=disk.device, inode=disk.inode("LOCK"), mount=disk.mount
        )

    disk.process_death()
    assert not restarted()
    disk.power_loss()
    assert restarted()
