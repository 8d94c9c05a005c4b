"""Opening what is damaged, left over or half done: refused in words, or opened with nothing acknowledged missing."""

from __future__ import annotations

import pytest

from tests.crash.scene import SMALL, Scene
from topics.codec.walheader import HEADER_SIZE
from topics.kernel.errors import CannotOpen, Unusable
from topics.testing.survival import Shape

DIRECTORY = "wal/gen-0/shard-00"


def write_file(disk, path, data):
    disk.create(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)


def file_path(number, generation=0, shard=0):
    return f"wal/gen-{generation}/shard-{shard:02d}/wal-{number:020d}.log"


def stored(*, shards=None, limits=None, puts=3):
    """Topic `t` with seqs from 1, cleanly closed."""
    scene = Scene(shards=shards, limits=limits)
    scene.open()
    scene.create("t", durability="fsync")
    for i in range(puts):
        scene.put("t", b'"%d"' % i + b" " * 200)
    return scene.shut_down()


# FORMAT.


@pytest.mark.rule("T1.3")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"format": 2, "features": ["x"]}', Unusable.NEWER_FORMAT),
        (b'{"format": 2, "shards": {"hot": 4}, "generation": null}', Unusable.NEWER_FORMAT),
        (b'{"format": 1, "shards": "2", "generation": 0}', Unusable.FOREIGN),
        (b'{"format": 0}', Unusable.FOREIGN),
        (b'{"format": true}', Unusable.FOREIGN),
        (b'{"format": 1, "x": ' + b"[" * 3000, Unusable.FOREIGN),
        (b'{"format": 1, "\xff": 1}', Unusable.FOREIGN),
        (b"\xff" * 5000, Unusable.FOREIGN),
    ],
)
def test_whatever_else_a_newer_format_says_it_is_called_newer(data, reason):
    scene = Scene()
    write_file(scene.disk, "FORMAT", data)

    with pytest.raises(CannotOpen) as refused:
        scene.open()
    assert reason is refused.value.reason


# Headers.


@pytest.mark.rule("T4.18")
@pytest.mark.parametrize("at", [0, 8, 20, HEADER_SIZE - 1])
def test_a_bad_header_with_nothing_behind_it_is_a_file_that_was_never_begun(at):
    scene = Scene()
    scene.open()
    scene.process_death()
    scene.flip(scene.files()[0], at)

    assert not scene.open().read_only
    scene.create("t", durability="fsync")
    scene.put("t", 1)
    scene.power_loss(Shape.NOTHING).open()
    assert scene.read("t") == {1: b"1"}


@pytest.mark.rule("T4.18")
def test_a_bad_header_with_nothing_behind_it_is_damage_if_the_files_before_it_are_not_there():
    scene = stored(limits=SMALL, puts=30)
    first, *others = scene.files()
    write_file(scene.disk, others[0], bytes(2048))
    scene.disk.unlink(first)
    for path in others[1:]:
        scene.disk.unlink(path)

    opened = scene.open()
    assert "is missing before this one" in opened.damages[0].why
