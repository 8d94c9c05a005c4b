"""Orders over a disk: what cannot be read any more goes without its bytes, and what may pass is waited for."""

from __future__ import annotations

import errno

import msgspec
import pytest

from tests.embed.test_damaged_reads import Failing
from tests.support.scene import Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.directory.layout import path_of
from topics.kernel.limits import MOVE_RETRY_MS

DATA = [b"%d" % n for n in range(1, 7)]


def place_of(scene, seq):
    topic = scene.engine.state.catalog.find("t")
    at = topic.index.position(seq)
    return path_of(topic.regions.source_until(seq)[0]), topic.index.offsets[at], topic.index.lengths[at]


def filled(**options):
    scene = Scene(segments=SegmentRules(records_max=4), tail_cache_bytes=0, **options)
    scene.open()
    scene.create("t", compression="gzip")
    scene.put("t", *DATA, tag=[b"red"] * 6)
    scene.sync()
    scene.checkpoint()
    return scene


def letters(scene):
    found = scene.page("dlq")[1]
    return [(record.data, msgspec.json.decode(record.meta)["$dead_letter_reason"]) for record in found]


@pytest.mark.parametrize("reason", [b"failed", b"redrive"])
def test_a_damaged_record_goes_without_its_bytes(reason):
    scene = filled()
    path, offset, _ = place_of(scene, 3)
    scene.flip(path, offset + 45)
    scene.create("dlq", type="queue")
    scene.begin_moves("t", [2, 3, 5], "dlq", reason)
    scene.move()

    found = scene.page("dlq")[1]
    assert [record.data for record in found] == [b"2", b"null", b"5"]
    assert msgspec.json.decode(found[1].meta)["$dead_letter_reason"] == "corrupt"
    assert list(scene.read("t").values()) == [b"1", b"4", b"6"]


def test_what_the_medium_cannot_give_is_damage_and_what_may_pass_is_not():
    for number, lost in ((errno.EIO, True), (errno.EMFILE, False)):
        scene = filled(port=lambda disk, number=number: Failing(disk, number))
        scene.port.spot = place_of(scene, 3)[:2]
        scene.create("dlq")
        scene.begin_moves("t", [2, 3], "dlq")
        scene.move()
        if lost:
            assert letters(scene) == [(b"2", "gone wrong"), (b"null", "corrupt")]
            continue
        assert letters(scene) == []
        assert scene.engine.moves.blocked == 2
        scene.port.spot = None
        scene.move(2 * MOVE_RETRY_MS)
        assert letters(scene) == [(b"2", "gone wrong"), (b"3", "gone wrong")]
        assert scene.engine.moves.blocked == 0
