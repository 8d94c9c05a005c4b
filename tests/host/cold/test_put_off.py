"""A work that the cold store refuses again and again leaves all others their turn (storage 6)."""

from __future__ import annotations

import errno

import pytest

from tests.support.faulty_store import FaultyStore
from tests.support.tiers import cold_firsts, filled, relocator, scene_with
from topics.host.cold.relocation import AGAIN_MS
from topics.host.cold.segment_stores import LocalSegmentStore
from topics.log.regions import SegmentId
from topics.testing.below import Below


class Choosy(FaultyStore):
    """It refuses these segments: they lie on a bad sector there, or in an archive that gives nothing back at once."""

    def __init__(self, disk):
        super().__init__(LocalSegmentStore(Below(disk, "cold"), "the cold place"))
        self.refused = set()

    def put(self, segment, parts):
        self._ask(segment)
        super().put(segment, parts)

    def read_range(self, segment, part, offset, size):
        self._ask(segment)
        return super().read_range(segment, part, offset, size)

    def _ask(self, segment):
        if segment in self.refused:
            raise OSError(errno.EIO, "refused", self.where)


def looks(scene, count):
    """So many looks of a driver, each after the store may be asked again."""
    for _ in range(count):
        scene.relocate()
        scene.clock.advance(AGAIN_MS)


@pytest.mark.rule("T6.3")
@pytest.mark.parametrize("refused", [{1}, {1, 9}, {1, 17, 33}], ids=str)
def test_segments_that_the_cold_store_does_not_take_hold_up_no_other(refused):
    scene = scene_with(cold=Choosy)
    scene.cold.refused = {SegmentId(1, first) for first in refused}
    before = filled(scene)
    looks(scene, 8)

    assert set(cold_firsts(scene)) == {1, 9, 17, 25, 33} - refused
    assert relocator(scene).failed is not None
    assert scene.read("t") == before
    scene.cold.refused = {SegmentId(1, 1)}
    looks(scene, 2 * len(refused))
    assert cold_firsts(scene) == [9, 17, 25, 33]
    scene.cold.refused = set()
    looks(scene, 2)
    assert cold_firsts(scene) == [1, 9, 17, 25, 33]
    assert relocator(scene).failed is None


def test_a_segment_that_the_cold_store_does_not_give_back_holds_up_no_other():
    scene = scene_with(cold=Choosy)
    for _ in range(5):
        scene.put("t", *[b"1"] * 8, tag=[b"kept", *[b"gone"] * 7])
    scene.sync()
    scene.checkpoint()
    scene.relocate()
    scene.delete("t", match="gone")
    for _ in range(2):
        scene.checkpoint()
    coming = scene.opened.checkpointer.reclaimer.cold_ones(scene.opened.checkpointer.kept)
    scene.cold.refused = {coming[0]}
    looks(scene, 6)

    assert len(coming) >= 2
    assert relocator(scene).counts.to_hot == len(coming) - 1
    assert coming[0].first_seq in cold_firsts(scene)
    scene.cold.refused = set()
    assert len(scene.read("t")) == 5
