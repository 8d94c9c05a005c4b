"""How far recovery is, as `/v0/ready` tells it."""

from __future__ import annotations

import pytest

from tests.support.scene import SMALL, Scene
from topics.store.opening import open_store


def told_while_opening(scene):
    told = []
    opened = open_store(
        scene.disk,
        scene.clock,
        scene.entropy,
        where="here",
        machine_restarted=False,
        confirm=lambda _: None,
        options=scene.options,
        progress=told.append,
    )
    return opened, told


def test_recovery_tells_how_far_it_is_and_never_goes_back():
    scene = Scene(shards=2, limits=SMALL)
    scene.open()
    for i in range(400):
        scene.put(f"t{i % 4}", i)
    assert len(scene.files(0)) + len(scene.files(1)) > 3
    scene.process_death()

    opened, told = told_while_opening(scene)
    assert not opened.read_only
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert len({share for share in told if share < 0.5}) >= 3  # file by file
    assert 20 <= len({share for share in told if share > 0.5}) <= 200  # while folding, bounded
    assert told.count(1.0) == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_an_empty_directory_is_ready_at_once(shards):
    _, told = told_while_opening(Scene(shards=shards))

    assert told[-1] == 1.0
    assert told == sorted(told)


def test_a_damaged_log_is_read_to_its_end_too():
    scene = Scene(limits=SMALL)
    scene.open()
    for i in range(100):
        scene.put("t", i, sync=True)
    scene.shut_down()
    scene.flip(scene.files()[0], 300)

    opened, told = told_while_opening(scene)
    assert opened.read_only
    assert told[-1] == 1.0
    assert told == sorted(told)
