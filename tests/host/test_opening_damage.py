"""Opening what is damaged, left over or half done: refused in words, or opened with nothing acknowledged missing."""

from __future__ import annotations

import pytest

from tests.crash.scene import Scene
from topics.kernel.errors import CannotOpen, Unusable

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
