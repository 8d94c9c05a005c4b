"""Client.backup: the server's store as a directory here, or nothing at all."""

from __future__ import annotations

import itertools
import tarfile
import threading

import pytest

import topics
from tests.support.backups import cold_scene, taken
from tests.support.scene import Scene
from topics.host.backup.live_backup import Backup
from topics.host.backup.tarstream import tar_pieces
from topics.host.backup.unpacking import receive_backup, unpack_backup
from topics.host.backup.verifying import verify_backup
from topics.host.cold.ownership import Whose, whose
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Corrupt
from topics.store.inline import carry_out
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk


def archive_of(disk: SimDisk) -> bytes:
    scene = Scene(disk=disk)
    scene.open()
    scene.put("t", *[b'"%d"' % i for i in range(20)])
    with Backup(scene.opened.checkpointer) as backup:
        carry_out(scene.engine, backup.steps(), scene.drain)
        return b"".join(tar_pieces(backup.contents()))


@pytest.mark.rule("T7.2", "H11.8")
def test_a_backup_of_a_server_holds_every_record_that_was_acknowledged_before_it(client, name, tmp_path):
    stop, acknowledged = threading.Event(), []

    def write():
        while not stop.is_set():
            acknowledged.append(client.topic(name).put_many([{"data": 1}] * 10).last_seq)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(acknowledged) < 5:
            stop.wait(0.001)
        before = acknowledged[-1]
        told = []
        written = client.backup(tmp_path / "b", tell=lambda done, total: told.append((done, total)))
    finally:
        stop.set()
        writer.join()

    heads = {topic.name: topic.head_seq for topic in written.manifest.topics}
    assert before <= heads[name] <= acknowledged[-1]
    assert heads[name] % 10 == 0  # writes are whole
    assert told[-1][0] == told[-1][1] > written.manifest.size
    assert verify_backup(OsDisk(tmp_path / "b"), "b").findings == []
    with topics.open(tmp_path / "b") as store:
        assert len(list(store.topic(name).records())) >= before


def test_nothing_is_left_where_something_was_already(client, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("mine")
    with pytest.raises(topics.Rejected, match="is there already"):
        client.backup(tmp_path / "b")

    assert [path.name for path in tmp_path.rglob("*")] == ["b", "mine"]


@pytest.mark.rule("H11.8")
def test_an_archive_that_ends_early_anywhere_is_refused_and_leaves_nothing(tmp_path):
    archive = archive_of(SimDisk(1))
    for end in [0, 1, 511, 512, 513, *range(600, len(archive) - 1024, 977)]:
        with pytest.raises(Corrupt, match="broken off"):
            receive_backup(iter([archive[:end]]), tmp_path / "b", lambda done: None)

        assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("H11.8")
def test_an_archive_is_taken_in_pieces_of_any_size():
    archive = archive_of(SimDisk(1))
    for size in (1, 7, 512, 100_000):
        target = SimDisk(2)
        unpack_backup((archive[at : at + size] for at in range(0, len(archive), size)), target)

        assert verify_backup(target, "b").findings == []


@pytest.mark.rule("T7.2", "H11.8")
def test_an_archive_of_a_store_with_cold_segments_has_the_note_of_whose_they_are():
    scene = cold_scene()
    target = SimDisk(2)
    with taken(scene) as backup:
        unpack_backup(tar_pieces(backup.contents()), target)

    assert verify_backup(target, "b").findings == []
    assert whose(target, scene.cold) is Whose.BORROWED


def test_an_archive_with_a_wrong_byte_in_a_file_is_refused():
    archive = archive_of(SimDisk(1))
    at = archive.index(b'"19"')
    with pytest.raises(Corrupt, match="does not hold what its manifest says"):
        unpack_backup(iter([archive[:at] + b'"91"' + archive[at + 4 :]]), SimDisk(2))


@pytest.mark.parametrize(
    ("path", "kind"),
    [(b"../FORMAT", b"0"), (b"/etc/passwd", b"0"), (b"FORMAT", b"2"), (b"FORMAT", b"5"), (b"LOCK", b"0")],
    ids=["parent", "root", "symlink", "directory", "lock"],
)
def test_an_archive_that_holds_anything_else_is_refused(path, kind):
    info = tarfile.TarInfo(path.decode())
    info.type, info.size = kind, 0
    target = SimDisk(2)
    with pytest.raises(Corrupt, match=r"no file of a backup|no plain file"):
        unpack_backup(iter([info.tobuf(tarfile.GNU_FORMAT), bytes(4096)]), target)

    assert target.names("") == []


def test_a_file_that_comes_twice_is_refused():
    archive = archive_of(SimDisk(1))
    with pytest.raises(Corrupt, match="twice"):
        unpack_backup(
            iter(itertools.repeat(archive[: 512 * (1 + -(-int(archive[124:135], 8) // 512))], 2)), SimDisk(2)
        )


def test_a_disk_that_fills_up_is_said_in_one_line():
    archive = archive_of(SimDisk(1))
    target = SimDisk(2)
    target.inject("write", FaultKind.ENOSPC, at=3, times=None)
    with pytest.raises(OSError, match="No space left"):
        unpack_backup(iter([archive]), target)

    assert target.size("BACKUP.json") is None
