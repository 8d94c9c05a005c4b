"""One owner per directory; a restart of the machine is noticed, and forgotten only after recovery is complete."""

import os
import shutil
import subprocess
import sys

import attrs
import pytest

from topics.host.directory.layout import Format
from topics.host.directory.lock import DirectoryLock
from topics.host.directory.owner import (
    RECORD_SIZE,
    RECORD_SIZE_BEFORE,
    URL_CHARS_MAX,
    OwnerRecord,
    read_owner,
)
from topics.kernel.errors import CannotOpen, Unusable

LOGS = [Format(1, 0)]

HOLD = """
import sys
from topics.host.directory.lock import DirectoryLock
lock = DirectoryLock.acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

TRY = """
import sys
from topics.host.directory.lock import DirectoryLock
from topics.kernel.errors import CannotOpen
try:
    DirectoryLock.acquire(sys.argv[1])
    print("acquired")
except CannotOpen as error:
    print(error.reason.value, error.detail["owner_pid"], error)
"""

FORK = """
import os, sys
from topics.host.directory.lock import DirectoryLock
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


@pytest.mark.rule("T4.24")
@pytest.mark.parametrize("number", ["1" + "0" * 179, "-1"])
def test_a_lock_whose_numbers_cannot_be_counts_as_a_restart(tmp_path, number):
    line = f'{{"pid": 1, "boot_id": "boot-1", "device": {number}, "inode": 1}}'
    (tmp_path / "LOCK").write_bytes(line.encode())
    lock = acquire(tmp_path)

    assert lock.previous is None
    assert lock.machine_restarted
    lock.release()


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
