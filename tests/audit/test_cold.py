"""With the cold tier named, fsck looks for what the state says is there."""

from __future__ import annotations

import pytest

from tests.crash.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.audit.rows import Severity
from topics.engine.checkpoint import SegmentRules
from topics.host.relocation import HotRules
from topics.host.tiers import LocalSegmentStore
from topics.log.regions import SegmentId
from topics.testing.below import Below


def tiered():
    """A store of ten full segments, nine of which are cold, and nobody who has it open."""
    scene = Scene(
        limits=SMALL,
        segments=SegmentRules(records_max=5, bytes_max=2000, age_ms=60_000),
        hot=HotRules(retain_segments=1),
        cold=lambda disk: LocalSegmentStore(Below(disk, "cold"), "the cold place"),
    )
    scene.open()
    scene.put("t", *range(50))
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() == 9
    scene.process_death()
    return scene


def looked(scene, cold):
    return fsck(scene.disk, where="a store", options=Options(settled=True, cold=cold))


@pytest.mark.rule("T4.5")
def test_a_cold_segment_that_is_not_there_is_told():
    """Only whoever names the cold tier is told: without it nobody knows what is in it."""
    scene = tiered()
    cold = LocalSegmentStore(Below(scene.disk, "cold"), "the cold place")
    assert looked(scene, cold).exit_code == 0
    cold.delete(SegmentId(1, 11))

    (told,) = [one for one in looked(scene, cold).violations if one.severity is Severity.ERROR]
    assert (told.topic, told.seq, told.check) == ("t", 11, "segment.record")
    assert told.file == "topics/0000000000000001/seg-00000000000000000011.data"
    assert "the cold place" in told.detail
    assert looked(scene, None).exit_code == 0
