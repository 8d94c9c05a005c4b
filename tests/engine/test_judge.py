"""Torn tail or corruption: every case of the decision (storage 4), on logs that the writer made."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.support.scene import SMALL, Scene
from topics.codec.log.control import MARK_FRAME, CommitMark, Control, encode_mark
from topics.codec.log.frame import Run
from topics.codec.log.layout import CHECKSUM_SIZE, EXT_HEAD, FRAME_HEAD, FRAME_LEN_SIZE
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.primitives import U16, U32, U64, checksum
from topics.engine.recovery.judge import LogState, examine_log_file, judge
from topics.log.regions import WalFileId

FILE = WalFileId(0, 0, 1)


def log_of(*, puts=6, closing=False, durability="fsync"):
    """The bytes of a first file: topic `t`, one synced write after another."""
    scene = Scene()
    scene.open()
    scene.create("t", durability=durability)
    for i in range(puts):
        scene.put("t", i)
    if closing:
        scene.opened.writers[0].mark()
    return bytearray(scene.disk.content(scene.files()[0]))


def offsets(data):
    """{seq: offset} of the records, and where the frames end."""
    seen = examine_log_file(FILE, bytes(data))
    found = {}
    for item in seen.items:
        if isinstance(item, Run):
            starts = accumulate(item.lengths, initial=item.offset)
            found.update(zip(range(item.seq_start, item.seq_stop), starts, strict=False))
    return found, seen.end


def verdict(data, *, same_boot=False, file=FILE):
    return judge([examine_log_file(file, bytes(data))], same_boot=same_boot)


def seqs_of(verdict):
    return [
        seq
        for item, _ in verdict.items()
        if isinstance(item, Run)
        for seq in range(item.seq_start, item.seq_stop)
    ]


def test_a_whole_log_is_clean_and_goes_on_behind_its_last_frame():
    data = log_of()
    _, end = offsets(data)

    found = verdict(data)
    assert LogState.CLEAN is found.state
    assert (end, FILE) == (found.tail.end, found.tail.file)
    assert seqs_of(found) == [1, 2, 3, 4, 5, 6]


@pytest.mark.rule("T4.8", "T4.9")
def test_a_flipped_byte_that_a_mark_covers_is_corruption_and_every_other_record_is_kept():
    data = log_of()
    at, _ = offsets(data)
    data[at[3] + 45] ^= 1  # inside the payload of seq 3; the marks behind seqs 4 to 6 cover it

    found = verdict(data)
    assert LogState.CORRUPT is found.state
    assert [(at[3], (1, 3))] == [(d.offset, d.plausible) for d in found.damages]
    assert seqs_of(found) == [1, 2, 4, 5, 6]


@pytest.mark.rule("T4.8", "T4.12")
def test_the_same_flip_in_the_last_record_is_a_torn_tail_until_the_closing_mark_covers_it():
    open_end, closed = log_of(), log_of(closing=True)
    at, _ = offsets(closed)
    assert at == offsets(open_end)[0]
    open_end[at[6] + 45] ^= 1
    closed[at[6] + 45] ^= 1

    torn = verdict(open_end)
    assert LogState.TORN is torn.state
    assert seqs_of(torn) == [1, 2, 3, 4, 5]
    assert at[6] >= torn.tail.end
    corrupt = verdict(closed)
    assert LogState.CORRUPT is corrupt.state
    assert [damage.plausible for damage in corrupt.damages] == [(1, 6)]


@pytest.mark.rule("T4.12")
def test_a_cut_begins_at_the_first_frame_of_the_write_that_is_not_whole():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1)
    before = examine_log_file(FILE, scene.disk.content(scene.files()[0])).end
    scene.put("t", 2, 3, 4)
    data = bytearray(scene.disk.content(scene.files()[0]))
    end = examine_log_file(FILE, bytes(data)).end
    data[end - 20] ^= 1  # the last of three frames

    found = verdict(data)
    assert LogState.TORN is found.state
    assert before == found.tail.end
    assert seqs_of(found) == [1]


@pytest.mark.rule("T4.8", "T4.9")
def test_a_write_that_a_mark_covers_and_that_lacks_records_is_corruption_though_every_frame_is_whole():
    scene = Scene()
    scene.open()
    scene.create("t", durability="fsync")
    scene.put("t", 1)
    scene.put("t", 2, 3, 4)
    scene.put("t", 5)
    scene.opened.writers[0].mark()
    data = bytearray(scene.disk.content(scene.files()[0]))
    (first, offset, length) = next(
        (item.seq_start, item.offset, item.lengths[0])
        for item in examine_log_file(FILE, bytes(data)).items
        if isinstance(item, Run) and len(item) == 3
    )
    at = offset + FRAME_HEAD.size + U16.size + EXT_HEAD.size
    assert U32.unpack_from(data, at) == (3,)
    data[at : at + U32.size] = U32.pack(100)
    stop = offset + length - CHECKSUM_SIZE
    data[stop : stop + CHECKSUM_SIZE] = U64.pack(checksum(bytes(data[offset + FRAME_LEN_SIZE : stop])))

    found = verdict(data)
    assert first == 2
    assert LogState.CORRUPT is found.state
    assert [(damage.offset, damage.why) for damage in found.damages] == [
        (offset, "a write that was synced is not whole")
    ]
    assert seqs_of(found) == [1, 2, 3, 4, 5]


@pytest.mark.rule("T4.12", "T2.4")
def test_intact_frames_behind_the_hole_of_an_unsynced_tail_are_cut_too():
    data = log_of(durability="disk")
    at, end = offsets(data)
    data[at[2] : at[3]] = bytes(at[3] - at[2])  # a page that never reached the disk

    found = verdict(data)
    assert LogState.TORN is found.state
    assert seqs_of(found) == [1]
    assert end - at[2] == found.lost_bytes
    assert max(item.seq_stop - 1 for item in found.beyond if isinstance(item, Run)) == 6


@pytest.mark.rule("T4.17")
def test_with_the_boot_id_unchanged_a_bad_frame_followed_by_an_intact_one_is_corruption():
    data = log_of(durability="disk")
    at, _ = offsets(data)
    data[at[2] + 45] ^= 1

    assert LogState.TORN is verdict(data, same_boot=False).state
    found = verdict(data, same_boot=True)
    assert LogState.CORRUPT is found.state
    assert [damage.plausible for damage in found.damages] == [(1, 2)]


def test_with_the_boot_id_unchanged_a_short_tail_is_torn():
    data = log_of(durability="disk")
    at, end = offsets(data)
    data[at[6] + 10 : end] = bytes(end - at[6] - 10)

    found = verdict(data, same_boot=True)
    assert LogState.TORN is found.state
    assert seqs_of(found) == [1, 2, 3, 4, 5]


@pytest.mark.rule("T2.9", "T4.8")
def test_zeros_where_a_mark_says_there_was_data_are_corruption():
    data = log_of()
    at, _ = offsets(data)
    data[at[2] : at[4]] = bytes(at[4] - at[2])
    assert LogState.CORRUPT is verdict(data).state

    data = log_of(closing=True)  # everything between the first record and the closing mark
    seen = examine_log_file(FILE, bytes(data))
    mark = [i for i in seen.items if isinstance(i, Control) and isinstance(i.payload, CommitMark)][-1]
    data[at[2] : mark.offset] = bytes(mark.offset - at[2])
    found = verdict(data)
    assert LogState.CORRUPT is found.state
    assert seqs_of(found) == [1]


@pytest.mark.rule("T4.18")
def test_a_bad_header_is_corruption_unless_the_file_is_otherwise_zero():
    data = log_of()
    data[20] ^= 1
    assert LogState.CORRUPT is verdict(data).state

    blank = verdict(bytes(len(data)))
    assert LogState.CLEAN is blank.state
    assert blank.tail is None

    lone = bytearray(log_of()[:HEADER_SIZE] + bytes(1000))
    assert LogState.CLEAN is verdict(lone).state
    lone[3] ^= 1
    assert LogState.CLEAN is verdict(lone).state


def test_a_file_under_another_files_name_is_corruption():
    assert LogState.CORRUPT is verdict(log_of(), file=WalFileId(0, 1, 1)).state


@pytest.mark.rule("T2.4")
def test_any_byte_behind_the_tail_is_seen():
    data = log_of()
    data[-1] = 7

    found = verdict(data)
    assert LogState.TORN is found.state
    assert seqs_of(found) == [1, 2, 3, 4, 5, 6]
    assert len(data) == found.tail.stop


@pytest.mark.rule("T4.19")
def test_past_damage_scanning_resumes_at_the_next_whole_frame_not_inside_a_payload():
    scene = Scene()
    scene.open()
    scene.create("t", durability="fsync")
    scene.put("t", 1)
    at, _ = offsets(scene.disk.content(scene.files()[0]))
    frame = scene.disk.content(scene.files()[0])[at[1] : at[1] + 60]
    scene.put("t", frame + frame)  # a payload that holds what looks like frames
    scene.put("t", 3)
    scene.put("t", 4)
    data = bytearray(scene.disk.content(scene.files()[0]))
    at, _ = offsets(data)
    data[at[2] + 40] ^= 0x80

    found = verdict(data)
    assert LogState.CORRUPT is found.state
    assert seqs_of(found) == [1, 3, 4]


@pytest.mark.rule("T4.23", "T3.7")
@pytest.mark.parametrize("torn", [False, True])
def test_a_mark_that_covers_itself_does_not_say_that_it_was_synced(torn):
    """It can be read from memory before its own sync has returned. What is before it was synced when it was made."""
    data = log_of()
    seen = examine_log_file(FILE, bytes(data))
    mark = encode_mark(CommitMark(seen.file_id, 1, seen.end + MARK_FRAME.size), ts=1)
    data[seen.end : seen.end + len(mark)] = mark
    if torn:
        data[seen.end + len(mark) + 9] = 1

    found = verdict(data)
    assert found.state is (LogState.TORN if torn else LogState.CLEAN)
    assert found.tail.ended
    assert found.rewrite() == [(FILE, seen.end, seen.end + len(mark))]


# More than one file.


def rotated(durability="fsync", puts=40):
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability=durability)
    for _ in range(puts):
        scene.put("t", b'"' + b"x" * 200 + b'"')
    paths = scene.files()
    assert len(paths) >= 3
    return [(WalFileId(0, 0, int(path[-24:-4])), bytearray(scene.disk.content(path))) for path in paths]


def judge_files(files, *, same_boot=False):
    return judge([examine_log_file(file, bytes(data)) for file, data in files], same_boot=same_boot)


def test_files_follow_each_other_by_frame_number():
    files = rotated()

    found = judge_files(files)
    assert LogState.CLEAN is found.state
    assert files[-1][0] == found.tail.file
    assert list(range(1, 41)) == seqs_of(found)


@pytest.mark.rule("T2.2")
@pytest.mark.parametrize("gone", [0, 1])
def test_a_missing_file_is_corruption(gone):
    files = rotated()
    del files[gone]

    found = judge_files(files)
    assert LogState.CORRUPT is found.state
    assert "is missing" in found.damages[0].why


@pytest.mark.rule("T4.8", "T2.9")
def test_an_intact_frame_in_a_later_file_makes_a_torn_earlier_one_corruption():
    files = rotated(durability="disk")
    cut = offsets(files[0][1])[0][3]
    files[0][1][cut:] = bytes(len(files[0][1]) - cut)  # its closing mark is gone as well

    found = judge_files(files[:1])
    assert LogState.CLEAN is found.state
    found = judge_files(files)
    assert LogState.CORRUPT is found.state


@pytest.mark.rule("T4.8")
def test_a_later_file_proves_an_earlier_one_synced_even_if_its_own_mark_of_it_is_gone():
    files = rotated(durability="disk")[:2]
    for (file, data), seq in zip(files, (3, None), strict=True):
        at = HEADER_SIZE if seq is None else offsets(data)[0][seq]
        assert examine_log_file(file, bytes(data)).clean
        data[at + 5] ^= 0xFF  # in the second file that is the mark of the first
    first = files[0][1]
    mark = next(i for i in reversed(examine_log_file(FILE, bytes(first)).beyond) if isinstance(i, Control))
    first[mark.offset :] = bytes(len(first) - mark.offset)

    assert LogState.TORN is judge_files(files[:1]).state
    found = judge_files(files)
    assert LogState.CORRUPT is found.state
    assert {files[0][0], files[1][0]} == {damage.file for damage in found.damages}


def test_later_files_without_an_intact_frame_go_with_the_cut():
    files = rotated(durability="disk")
    first, second = files[0], files[1]
    at = offsets(first[1])[0][3]
    first[1][at:] = b"\x55" + bytes(len(first[1]) - at - 1)
    second[1][HEADER_SIZE:] = bytes(len(second[1]) - HEADER_SIZE)

    found = judge_files([first, second])
    assert LogState.TORN is found.state
    assert first[0] == found.tail.file
    assert [second[0]] == [dropped.file for dropped in found.drop]


def test_damage_in_an_earlier_file_keeps_every_intact_frame_of_all_files():
    files = rotated()
    target = [i for i in examine_log_file(*files[0]).items if isinstance(i, Run)][2]
    files[0][1][target.offset + 60] ^= 1

    found = judge_files(files)
    assert LogState.CORRUPT is found.state
    assert [s for s in range(1, 41) if s != target.seq_start] == seqs_of(found)


def test_the_stop_of_a_file_is_behind_its_last_byte_that_is_not_zero():
    file, block = WalFileId(0, 0, 1), 1 << 16
    for size in (0, 1, block - 1, block, block + 1, 3 * block):
        for zeros in (0, 1, block - 1, block, block + 1, 3 * block):
            buffer = b"\x00x" * (size // 2) + b"y" * (size % 2) + bytes(zeros)
            assert examine_log_file(file, buffer).stop == len(buffer.rstrip(b"\x00")), (size, zeros)
