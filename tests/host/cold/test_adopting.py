"""A cold tier whose notes are damaged or gone is adopted by what lies in it."""

from __future__ import annotations

import pytest

from tests.support.cold_tier import cold_of, name_of, tiered
from tests.support.tiers import relocator
from topics.host.cold.adopting import adopt_tier
from topics.host.cold.ownership import Whose, whose
from topics.kernel.errors import Rejected
from topics.log.regions import SegmentId
from topics.testing.entropy import SeededEntropy

LATER = 3_600_000


def unlink(disk, path):
    disk.unlink(path)
    disk.sync_dir(path.rpartition("/")[0])


def adopted(disk, cold=None):
    return adopt_tier(disk, cold or cold_of(disk), SeededEntropy(7), where="a store", same_boot=False)


def moved_on(scene):
    """What is the matter with the cold tier after a start, and some work."""
    scene.open()
    warnings = list(scene.opened.warnings)
    scene.put("t", *range(50, 80))
    scene.sync()
    scene.checkpoint()
    scene.relocate()
    return warnings, relocator(scene).failed


@pytest.mark.rule("T6.3")
@pytest.mark.parametrize("lost", [("COLD",), ("cold/OWNER",), ("COLD", "cold/OWNER")])
@pytest.mark.parametrize("flipped", [False, True])
def test_what_lies_there_says_whose_it_is_where_the_notes_do_not(lost, flipped):
    scene = tiered()
    for path in lost:
        if flipped:
            scene.disk.flip(path, 0)
        else:
            unlink(scene.disk, path)

    assert adopted(scene.disk) == 0
    assert whose(scene.disk, cold_of(scene.disk)) is Whose.OURS
    assert moved_on(scene) == ([], None)
    assert len(scene.read("t")) == 80


@pytest.mark.rule("T6.3")
def test_a_place_with_nothing_of_this_directory_s_is_not_taken():
    """Empty, or with other segments only: nothing says whose it is."""
    scene = tiered()
    with pytest.raises(
        Rejected, match=r"no segment there has the name .* \(it has 9\): name the right place"
    ):
        adopted(scene.disk, cold_of(scene.disk, "elsewhere"))
    cold = cold_of(scene.disk)
    for first in range(1, 46, 5):
        cold.delete(SegmentId(1, first))
    unlink(scene.disk, "COLD")
    with pytest.raises(Rejected, match="name the right place"):
        adopted(scene.disk)


@pytest.mark.rule("T6.3")
def test_a_place_where_another_copy_has_gone_on_is_not_taken():
    """It has put a segment there that this directory cannot have made."""
    for segment in (SegmentId(1, 51), SegmentId(9, 1)):
        scene = tiered()
        unlink(scene.disk, "COLD")
        cold = cold_of(scene.disk)
        cold.put(segment, {"data": b"its"})
        with pytest.raises(Rejected, match="another copy of this one has gone on there"):
            adopted(scene.disk)
        assert segment in cold.list()


@pytest.mark.rule("T6.3")
def test_segments_that_are_cut_off_or_gone_do_not_hold_up_the_others():
    scene = tiered()
    disk, cold = scene.disk, cold_of(scene.disk)
    unlink(disk, "COLD")
    cold.delete(SegmentId(1, 11))
    path = f"cold/{name_of(31)}"
    disk.truncate(path, disk.size(path) - 20)
    path = f"cold/{name_of(41)}"
    disk.truncate(path, 20)

    assert adopted(disk) == 3
    assert whose(disk, cold) is Whose.OURS


@pytest.mark.rule("T6.3")
def test_a_segment_that_this_directory_needs_no_more_does_not_make_a_place_another_s():
    scene = tiered()
    unlink(scene.disk, "COLD")
    cold = cold_of(scene.disk)
    cold.put(SegmentId(1, 3), {"data": b"what a crash left"})

    assert adopted(scene.disk) == 0
