"""Copies of routers against what they are of: whole frames that say what no engine does are found."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.scene import Scene
from topics.audit.fsck import fsck
from topics.codec.log.control import Control, encode_control
from topics.codec.log.forwards import Forward
from topics.codec.log.frame import Run, encode_run
from topics.engine.commands import PutRouter
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.layout import find_shards, find_wal_files, wal_path
from topics.kernel.columns import RecordColumns
from topics.log.reads.match import parse_match


def routed():
    """A closed store: "a" with records of two tags, and "b", which has those of one."""
    scene = Scene()
    scene.open()
    for name in ("a", "b"):
        scene.create(name, durability="fsync")
    scene.run(PutRouter(router="r", source="a", dest="b", filter=parse_match("red", tag_bytes_max=99)))
    scene.put("b", b'"own"')
    for number in range(4):
        scene.clock.advance(1)
        labels = {"meta": [b'{"a": "b"}', b""], "key": [b"k", b""]}
        scene.put("a", b'"red-%d"' % number, b'"not-%d"' % number, tag=[b"red", b"blue"], **labels)
    return scene.shut_down()


def found(scene):
    return [(one.check, one.topic, one.seq) for one in fsck(scene.disk, where="here").violations]


def items(scene, kind):
    """(path, item) of those of "b"."""
    for key in find_shards(scene.disk):
        for file in find_wal_files(scene.disk, *key):
            for item in examine_log_file(file, scene.disk.content(wal_path(file))).items:
                if item.topic_id == 2 and isinstance(getattr(item, "payload", item), kind):
                    yield wal_path(file), item


def test_a_store_whose_copies_are_right_is_whole():
    assert found(routed()) == []


@pytest.mark.rule("P4.6")
@pytest.mark.parametrize(
    "forged",
    [
        RecordColumns([b'"red-X"'], tag=[b"red"], meta=[b'{"a": "b"}'], key=[b"k"]),
        RecordColumns([b'"red-2"'], tag=[b"rex"], meta=[b'{"a": "b"}'], key=[b"k"]),
        RecordColumns([b'"red-2"'], tag=[b"red"], meta=[b'{"a": "c"}'], key=[b"k"]),
        RecordColumns([b'"red-2"'], tag=[b"red"], meta=[b'{"a": "b"}'], key=[b"x"]),
    ],
)
def test_a_copy_that_differs_from_its_record_is_found(forged):
    scene = routed()
    path, run = list(items(scene, Run))[3]
    chunk, _ = encode_run(2, run.seq_start, run.ts, forged, durable=run.durable, keyed=None, write_frames=0)
    assert len(chunk) == run.length
    scene.disk.write(path, run.offset, [chunk])

    assert found(scene) == [("router.copies", "b", 4)]


@pytest.mark.parametrize("back", [1, 3])
def test_a_router_that_goes_back_is_found(back):
    scene = routed()
    path, control = list(items(scene, Forward))[-1]
    assert isinstance(control, Control)
    said = control.payload
    before = [pair[1].payload for pair in items(scene, Forward)][-2]
    lower = msgspec.structs.replace(said, first=before.last + 1 - back, last=before.last + 2 - back)
    assert (said.last - said.first, said.count) == (1, 1)
    chunk = encode_control(lower, topic_id=2, ts=control.ts, write_frames=control.write_frames)
    scene.disk.write(path, control.offset, [chunk])

    assert ("router.copies", "b", said.dest_first) in found(scene)
