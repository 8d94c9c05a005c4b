"""What a process wrote and did not sync may be gone though the machine goes on: a failed write or sync drops pages, and
a file system that was taken away and mounted again has what was synced. Both count as a restart (storage 4).
"""

import pytest

from tests.support.scene import Scene, append
from topics.host.directory.owner import LOCK_NAME, OwnerRecord
from topics.testing.faults import FaultKind
from topics.testing.survival import Shape


@pytest.fixture
def scene():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, sync=True)
    scene.put("t", 3, 4)  # acknowledged, and not synced
    return scene


def boot_id_in(scene):
    return OwnerRecord.decode(scene.disk.content(LOCK_NAME)).boot_id


def nothing_vanished_in_silence(scene):
    """Records 3 and 4 were acknowledged: they are there, or told as lost, and their seqs are nobody else's."""
    assert scene.state("t").head_seq >= 4
    gone = {
        seq for first, last, reason in scene.lost("t") for seq in range(first, last + 1) if reason == "crash"
    }
    there = scene.read("t")
    assert {seq for seq in (3, 4) if seq not in there} <= gone
    reply = scene.put("t", 9)
    assert min(reply.seqs) > 4
    assert scene.read("t") == {**there, min(reply.seqs): b"9"}


@pytest.mark.rule("T4.24", "S2.6", "S2.8", "T4.32")
@pytest.mark.invariant("I-08")
@pytest.mark.parametrize("op", ["write", "sync_data"])
def test_pages_dropped_behind_a_failed_write_are_no_mere_end_of_the_process(scene, op):
    scene.disk.inject(op, FaultKind.DROPS_PAGES)
    scene.propose(append("t", 5), sync=True)
    scene.drain()
    assert scene.opened.writers[0].failed is not None
    scene.process_death()
    scene.disk.drop_caches()
    scene.open()

    nothing_vanished_in_silence(scene)


@pytest.mark.rule("T4.26", "S2.6", "S2.8")
@pytest.mark.invariant("I-08")
@pytest.mark.parametrize("shape", [Shape.NOTHING, Shape.ZEROS, Shape.EVERYTHING])
def test_a_file_system_mounted_again_is_no_mere_end_of_the_process(scene, shape):
    scene.disk.mount_again(shape)
    scene.open()

    nothing_vanished_in_silence(scene)
    assert boot_id_in(scene) == scene.disk.boot_id
    scene.process_death().open()  # the next end is a mere one again
    assert not scene.disk.down


@pytest.mark.rule("T4.23", "T4.24")
def test_pages_dropped_behind_a_recovery_that_failed_are_no_mere_end_of_the_process_either(scene):
    """What the process before wrote and never synced is written again; should the sync of that fail, it may be gone."""
    scene.process_death()
    scene.disk.inject("sync_data", FaultKind.DROPS_PAGES)
    with pytest.raises(OSError, match="Input/output error"):
        scene.open()
    scene.process_death()
    scene.disk.drop_caches()
    scene.open()

    nothing_vanished_in_silence(scene)


@pytest.mark.rule("T3.24", "T4.24", "T4.32")
def test_the_boot_id_leaves_lock_before_the_failure_is_told(scene):
    assert boot_id_in(scene) is not None
    scene.disk.inject("sync_data")
    ticket = scene.propose(append("t", 5), sync=True)
    scene.drain()

    assert OwnerRecord.decode(scene.disk.synced_bytes(LOCK_NAME)).boot_id is None
    assert "LOCK" not in ticket.error.message


def test_a_lock_that_cannot_be_written_either_is_told(scene):
    scene.disk.inject("sync_data", times=2)
    ticket = scene.propose(append("t", 5), sync=True)
    scene.drain()

    assert "nor could LOCK be written" in ticket.error.message
    assert "restart the machine before you open the store again" in ticket.error.message


@pytest.mark.rule("T4.24")
def test_a_reserve_that_fails_leaves_the_boot_id(scene):
    """Nothing acknowledged lies in the next file."""
    scene.disk.free = 0
    scene.opened.writers[0].keep_reserve(1 << 20)

    assert boot_id_in(scene) == scene.disk.boot_id
