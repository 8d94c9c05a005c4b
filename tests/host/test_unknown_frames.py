"""A whole frame of a type that this version does not know, or with a flag, an extension or a field that it does not: a
newer one wrote it, so nothing is cut, dropped or written (storage 1).
"""

from pathlib import Path

import pytest

from tests.embed.golden_store import paths
from tests.support.scene import Scene
from topics.audit.dump.segment_items import data_items
from topics.audit.dump.wal_items import log_items
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.codec.log.control import CommitMark
from topics.codec.log.layout import COVERED_HEAD, pack_exts, pack_frame
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.primitives import U32, U64, checksum
from topics.engine.checkpoint import SegmentRules
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.layout import segment_path
from topics.kernel.errors import CannotOpen, Rejected, Unusable
from topics.log.regions import WalFileId
from topics.store.viewing import view_store

TS = 1_700_000_000_000


def newer(kind, *, topic_id=1, seq=0):
    return pack_frame(kind, 0, topic_id, seq, TS, b"what it says", tag=b"t")


def flagged(kind, flags, data=b"5"):
    """With flags of which we know nothing, and the checksum that belongs to it."""
    covered = COVERED_HEAD.pack(kind, flags, 1, 5, TS, 0, 0, len(data)) + data
    return U32.pack(len(covered) + 8) + covered + U64.pack(checksum(covered))


KIND = "a frame of type {}, which this version of topics does not know"
MORE = "a frame of type {}, of which this version of topics does not know all"
FRAMES = {
    "a reserved type": (newer(17), KIND.format(17)),
    "a new type": (newer(20), KIND.format(20)),
    "the last type": (newer(255), KIND.format(255)),
    "a new type with a new flag": (flagged(99, 64), KIND.format(99)),
    "a new flag": (flagged(1, 128), MORE.format(1)),
    "a new extension": (pack_frame(1, 0, 1, 5, TS, b"5", exts=pack_exts([(200, b"ab")])), MORE.format(1)),
    "a new extension of a deletion": (
        pack_frame(7, 0, 1, 0, TS, b"", exts=pack_exts([(200, b"ab")])),
        MORE.format(7),
    ),
    "a new field": (pack_frame(9, 0, 1, 0, TS, b'{"config":{},"newer":1}'), MORE.format(9)),
    "a longer payload": (pack_frame(11, 0, 1, 0, TS, bytes(16)), MORE.format(11)),
}
KINDS = pytest.mark.parametrize("kind", FRAMES)


def stored(*, clean=True):
    """Topic `t` with a few records; the log ends with a mark if it was closed."""
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    for i in range(4):
        scene.put("t", b"%d" % i)
    return scene.shut_down() if clean else scene.process_death()


def end_of(scene):
    path = scene.files()[-1]
    return path, examine_log_file(WalFileId(0, 0, 1), scene.disk.content(path))


def put(scene, path, offset, data):
    scene.disk.write(path, offset, [data])
    scene.disk.sync_data(path)


def contents(scene):
    return {path: scene.disk.content(path) for path in paths(scene.disk, "") if not path.startswith("LOCK")}


def behind_the_tail(scene, frame):
    """Where nothing says that it was durable."""
    path, seen = end_of(scene)
    put(scene, path, seen.end, frame)


def before_a_record(scene, frame):
    """An append is behind it, and no mark: what an older version cut with it."""
    path, seen = end_of(scene)
    last = [item for item in seen.items if hasattr(item, "lengths")][-1]
    record = scene.disk.content(path)[last.offset : last.offset + last.lengths[0]]
    put(scene, path, seen.end, frame + record)


def behind_a_torn_frame(scene, frame):
    path, seen = end_of(scene)
    put(scene, path, seen.end, b"\x77\x00\x00\x00" + bytes(90) + b"torn" + frame)


def in_front_of_a_mark(scene, frame):
    """In the middle of the log."""
    path, seen = end_of(scene)
    mark = [item for item in seen.items if isinstance(getattr(item, "payload", None), CommitMark)][-1]
    put(scene, path, mark.offset, frame + scene.disk.content(path)[mark.offset : seen.end])


def at_the_beginning(scene, frame):
    """Of the body, in front of everything."""
    path, seen = end_of(scene)
    body = scene.disk.content(path)[HEADER_SIZE : seen.end]
    put(scene, path, HEADER_SIZE, frame + body)


PLACES = pytest.mark.parametrize(
    "place", [behind_the_tail, before_a_record, behind_a_torn_frame, in_front_of_a_mark, at_the_beginning]
)


@pytest.mark.rule("T1.3", "T4.11")
@KINDS
@PLACES
@pytest.mark.parametrize("clean", [True, False])
def test_a_store_with_it_is_opened_for_reading_only_and_left_as_it_is(place, kind, clean):
    scene = stored(clean=clean)
    frame, why = FRAMES[kind]
    place(scene, frame)
    before = contents(scene)
    scene.open()

    (damage,) = [damage for damage in scene.opened.damages if damage.newer]
    assert why in str(damage)
    assert scene.opened.read_only
    assert not scene.opened.cuts
    with pytest.raises(Rejected, match=r"written by a newer topics.*use the topics that wrote it"):
        scene.put("t", b"no")
    assert list(scene.read("t").values())[:4] == [b"0", b"1", b"2", b"3"]
    assert before == contents(scene)


@PLACES
@KINDS
def test_whoever_only_looks_is_told(place, kind):
    scene = stored()
    place(scene, FRAMES[kind][0])
    opened = view_store(scene.disk, scene.clock, where="simulated", same_boot=False)

    assert opened.read_only
    assert any(damage.newer for damage in opened.damages)


@PLACES
@KINDS
def test_fsck_tells_it_and_a_repair_leaves_it_alone(place, kind):
    scene = stored()
    frame, why = FRAMES[kind]
    place(scene, frame)
    before = contents(scene)
    report = fsck(scene.disk, where="simulated", options=Options(settled=True))

    assert [one.check for one in report.errors].count("newer") == 1
    assert report.exit_code == 1
    with pytest.raises(CannotOpen, match=rf"{why}.*Repair it with that one") as refused:
        repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    assert refused.value.reason is Unusable.NEWER_FORMAT
    assert before == contents(scene)


@PLACES
@KINDS
def test_inspect_shows_it_between_the_others(place, kind):
    scene = stored()
    frame, _ = FRAMES[kind]
    place(scene, frame)
    buffer = scene.disk.content(end_of(scene)[0])
    items = list(log_items(buffer))
    (item,) = [item for item in items if item["what"] == "UNKNOWN"]

    at = item["offset"]
    assert buffer[at : at + item["size"]] == frame
    assert (item["type"], item["topic_id"], item["ts"]) == (frame[4], 1, TS)
    assert [item["data"] for item in items if item["what"] == "APPEND"][:4] == ["0", "1", "2", "3"]
    assert any(item["what"] == "DAMAGED" for item in items) == (place is behind_a_torn_frame)


def test_the_bytes_of_one_inside_a_record_are_data():
    """A record that is whole holds what it likes, at the tail as elsewhere."""
    scene = stored()
    scene.open()
    scene.put("t", newer(20) * 2)
    scene.process_death()
    scene.open()

    assert not scene.opened.read_only
    assert scene.read("t")[5] == newer(20) * 2


@KINDS
def test_one_with_a_wrong_checksum_is_a_torn_tail(kind):
    scene = stored()
    frame = bytearray(FRAMES[kind][0])
    frame[-1] ^= 1
    behind_the_tail(scene, bytes(frame))
    scene.power_loss()
    scene.open()

    assert not scene.opened.read_only
    assert scene.opened.cuts


def segmented(frame):
    """A sealed segment, with a record of which a newer version has made something else."""
    scene = Scene(segments=SegmentRules(records_max=4))
    scene.open()
    scene.create("t", durability="disk")
    for i in range(6):
        scene.put("t", b"%d" % i)
    scene.sync()
    scene.checkpoint()
    scene.shut_down()
    path = segment_path(1, 1, "data")
    data = bytearray(scene.disk.content(path))
    length = 46 + 1
    data[length + 1 : 2 * length + 1] = frame
    put(scene, path, 0, bytes(data))
    return scene


IN_SEGMENT = pytest.mark.parametrize(
    "frame", [pack_frame(200, 0, 1, 2, TS, b"?"), flagged(1, 64)], ids=["type", "flag"]
)


@IN_SEGMENT
def test_one_in_a_segment_is_told_by_fsck_and_not_repaired(frame):
    scene = segmented(frame)
    before = contents(scene)
    report = fsck(scene.disk, where="simulated", options=Options(settled=True))

    assert [(one.check, one.file) for one in report.errors if one.check == "newer"] == [
        ("newer", segment_path(1, 1, "data"))
    ]
    with pytest.raises(CannotOpen, match="does not know all of it"):
        repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    assert before == contents(scene)


@IN_SEGMENT
def test_inspect_shows_one_in_a_segment_between_the_others(frame):
    path = segment_path(1, 1, "data")
    items = list(data_items(segmented(frame).disk.content(path), Path(path)))

    assert [item["what"] for item in items] == ["live", "UNKNOWN", "live", "live"]


@IN_SEGMENT
def test_a_start_that_reads_a_segment_with_one_opens_for_reading_only(frame):
    scene = segmented(frame)
    scene.disk.unlink(segment_path(1, 1, "idx"))
    before = contents(scene)
    scene.open()

    assert scene.opened.read_only
    assert [damage.newer for damage in scene.opened.damages] == [True]
    assert before == contents(scene)
