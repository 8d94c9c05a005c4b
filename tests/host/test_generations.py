"""A change of shards may break off anywhere: nothing is lost, and restores go past it."""

from __future__ import annotations

import attrs
import pytest

from tests.host.test_logchain import FIRST, ONE_FILE, Case, names, whole
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.survival import PAGE_SIZE, Shape


def with_shards(case, shards):
    """The next start has this many."""
    case.scene.options = attrs.evolve(case.scene.options, shards=shards)
    return case.scene


def tail_of(case):
    """Where the zeros of the first file begin."""
    return len(whole(case.disk, FIRST).rstrip(b"\0"))


@pytest.mark.rule("T3.7", "T4.23", "T7.3")
@pytest.mark.parametrize("back", [2])
def test_wherever_a_change_of_shards_breaks_off_the_next_start_makes_it_durable(back):
    """A process that dies leaves its writes where the next one reads them, and a power cut behind that takes them."""
    case, n = Case(*names(5), limits=ONE_FILE), 0
    scene = case.scene.shut_down()
    before = case.disk.snapshot()
    while True:
        case.disk.restore(before)
        case.disk.crash_at(n, Landed.ALL)
        with_shards(case, 2)
        try:
            scene.open()
            break
        except SimCrash as crash:
            broke_off = str(crash)
        scene.process_death()
        with_shards(case, back).open()
        case.write(b"9")
        scene.power_loss(Shape.NOTHING)
        scene.open()
        assert not scene.opened.damages, broke_off
        assert case.head() == 9, broke_off
        n += 1
    assert n > 40


@pytest.mark.rule("T3.7", "T4.23", "T7.3")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.DROPS_PAGES])
@pytest.mark.parametrize("back", [1, 2])
def test_an_ending_mark_whose_sync_failed_is_written_again_before_anything_is_built_on_it(kind, back):
    """It can be read all the same, from pages that nothing will write any more. This one lies across two of them."""
    case = Case(limits=ONE_FILE)
    case.write(b'"' + b"x" * (PAGE_SIZE - tail_of(case) - 234) + b'"')
    scene = case.scene.shut_down()
    assert PAGE_SIZE - 50 < tail_of(case) < PAGE_SIZE - 10
    before, synced = case.disk.snapshot(), []
    case.disk.monitor = lambda call: call.op == "sync_data" and synced.append(call.path)
    with_shards(case, 2).open()
    case.disk.restore(before)
    ending = len(synced) - 1 - synced[::-1].index(FIRST)
    case.disk.inject("sync_data", kind, at=case.disk.counts["sync_data"] + ending)
    with pytest.raises(OSError):
        scene.open()
    scene.process_death()
    with_shards(case, back).open()
    case.write(*names(3))
    scene.power_loss(Shape.NOTHING)
    scene.open()

    assert not scene.opened.damages
    assert len(scene.read("a")) == 7
    assert case.head() == 7
