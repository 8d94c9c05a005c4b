"""Behind a repair no seq that was acknowledged is given out again, whatever of the log is gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planting import plant
from tests.support.repaired import mended, open_it, view
from tests.support.sample_store import CAPPED, CLICKS, ORDERS, build, disk_of, files_of
from tests.support.scene import Scene
from topics.engine.commands import Append
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import CannotOpen
from topics.kernel.limits import Limits

SAMPLE = build(records=8)
WHOLE = view(disk_of(SAMPLE.files))
LOGS = sorted(path for path in SAMPLE.files if path.endswith(".log"))
ACKED = {name: {ack.seq for ack in SAMPLE.acks if ack.topic == name} for name in (ORDERS, CLICKS, CAPPED)}


def remove(files, path, at):
    files.pop(path)


def remove_from(files, path, at):
    """It and all later files of its shard."""
    folder = path.rpartition("/")[0]
    for one in [one for one in LOGS if one.startswith(folder) and one >= path]:
        files.pop(one, None)


def remove_shard(files, path, at):
    folder = path.rpartition("/")[0]
    for one in [one for one in files if one.startswith(f"{folder}/")]:
        files.pop(one, None)


def truncate(files, path, at):
    files[path] = files[path][:at]


def truncate_and_forget(files, path, at):
    """And all later files of its shard are gone."""
    remove_from(files, path, at)
    files[path] = SAMPLE.files[path][:at]


def flip(files, path, at):
    files[path] = files[path][:at] + bytes([files[path][at] ^ 4]) + files[path][at + 1 :]


def zero(files, path, at):
    files[path] = files[path][:at] + bytes(len(files[path][at : at + 700])) + files[path][at + 700 :]


def cut_out(files, path, at):
    files[path] = files[path][:at] + files[path][at + 1 :]


HURTS = (remove, remove_from, remove_shard, truncate, truncate_and_forget, flip, zero, cut_out)


def check_promise(files):
    """Repair, write, and hold all that was acknowledged against what is there. False if nothing is known of damage."""
    disk = disk_of(files)
    done = mended(disk)
    if not done.aside:
        return False
    shown = view(disk)
    for name, acked in ACKED.items():
        served, _, floors, _ = shown[name]
        told = done.lost.get(name, [])
        for seq, data in WHOLE[name][0].items():
            if seq in acked and served.get(seq) != data:
                assert seq not in served
                assert any(first <= seq <= last for first, last in told), (name, seq, told, floors)
    opened = open_it(disk)
    for name, acked in ACKED.items():
        ticket = opened.engine.propose(Append(topic=name, records=RecordColumns([b"1"])))
        for _ in range(3):
            for writer in opened.writers:
                writer.drain()
        assert ticket.result().first_seq > max(acked), name
    return True


@pytest.mark.rule("T4.11")
@settings(max_examples=50)
@given(hurt=st.sampled_from(HURTS), path=st.sampled_from(LOGS), share=st.floats(0, 0.99))
def test_no_seq_that_was_acknowledged_is_given_out_again_behind_a_repair(hurt, path, share):
    """Of one hurt: a tail that no mark covers and that a second one takes passes for a write that was cut off."""
    files = dict(SAMPLE.files)
    hurt(files, path, int(share * len(files[path])))
    check_promise(files)


def behind_a_checkpoint(count):
    """A store whose one log file goes on behind a snapshot with so many records of a topic; and that file's path."""
    scene = Scene()
    scene.open()
    scene.put("t", b"1", b"2")
    scene.sync()
    scene.checkpoint()
    scene.put("t", *[b"%d" % n for n in range(count)])
    scene.sync()
    scene.process_death()
    (path,) = [path for path in files_of(scene.disk) if path.endswith(".log")]
    return files_of(scene.disk), path


def test_a_log_that_ends_in_front_of_a_snapshot_s_place_may_have_held_as_many_records_as_fit():
    files, path = behind_a_checkpoint(20)
    files[path] = files[path][:60]
    done = mended(disk_of(files))

    assert done.lost["t"][-1][1] >= 22


def test_of_a_file_in_between_the_names_say_how_many_frames_are_missing():
    scene = Scene(limits=Limits(wal_file_first=1200, wal_file_max=2400, wal_reserve=256))
    scene.open()
    for number in range(40):
        scene.put("t", *[b"%d" % number] * 5)
    scene.sync()
    scene.process_death()
    files = files_of(scene.disk)
    logs = sorted(path for path in files if path.endswith(".log"))
    firsts = [int(path[-24:-4]) for path in logs]
    assert len(logs) > 4
    for at in range(1, len(logs) - 1):
        done = mended(disk_of({name: data for name, data in files.items() if name != logs[at]}))

        assert [(hole.path, hole.frames) for hole in done.holes] == [
            (logs[at + 1], firsts[at + 1] - firsts[at])
        ]
        assert done.in_doubt == ["t"]
        assert not done.missing  # there are records behind, so each that is lost is known


def test_what_is_missing_with_the_newest_log_is_told_as_an_upper_bound_and_named_with_the_deletes_in_it():
    files = dict(SAMPLE.files)
    newest = [path for path in LOGS if "shard-00" in path][-1]
    files.pop(newest)
    disk = disk_of(files)
    head = view(disk)[ORDERS][2][0]
    done = mended(disk)
    behind = (head + 1, head + done.missing[ORDERS])

    assert done.lost[ORDERS][-1] == behind
    assert behind[1] > max(ACKED[ORDERS])
    assert [hole.path for hole in done.holes] == [newest]
    assert ORDERS in done.in_doubt
    assert CLICKS not in done.in_doubt  # of the other shard
    assert CLICKS not in done.missing


def test_one_record_whose_head_says_which_it_is_costs_no_other_topic_a_seq():
    files = dict(SAMPLE.files)
    planted = plant(files, "wal.damage: a flipped bit")
    done = mended(disk_of(files))

    assert done.lost == {CLICKS: [(planted.seq, planted.seq)]}
    assert not done.missing
    assert not done.holes


def test_a_store_of_which_neither_log_nor_snapshot_is_left_is_not_repaired():
    files = {path: data for path, data in SAMPLE.files.items() if not path.startswith(("wal/", "meta/"))}
    with pytest.raises(CannotOpen, match="there is no snapshot"):
        mended(disk_of(files))
