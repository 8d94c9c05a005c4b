"""A backup, the log behind it, and what is done to the files of that log before they are restored."""

from __future__ import annotations

import attrs

from tests.support.history import TINY, backed_up, heads, rebuilt
from tests.support.scene import SMALL, Scene
from topics.host.wal.archive import ArchiveRules
from topics.kernel.limits import Limits
from topics.testing.simdisk import SimDisk

ONE_FILE = Limits(wal_file_first=1 << 16, wal_file_max=1 << 16, wal_reserve=256)
LARGE = b'"' + b"x" * 700 + b'"'
STEP_MS = 10
FIRST = "wal/gen-0/shard-00/wal-00000000000000000001.log"


class Case:
    """A store with three records, a backup of it, and more that are written behind that, each by itself."""

    def __init__(self, *datas, shards=1, limits=SMALL, archive=True):
        self.scene = Scene(
            1, limits=limits, segments=TINY, shards=shards, archive=ArchiveRules() if archive else None
        )
        self.scene.open()
        self.scene.create("a", durability="fsync")
        self.scene.put("a", b"1", b"2", b"3")
        self.base = backed_up(self.scene)
        self.write(*datas)

    @property
    def disk(self):
        return self.scene.disk

    def write(self, *datas, topic="a"):
        for data in datas:
            self.scene.clock.advance(STEP_MS)
            self.scene.put(topic, data)

    def change_shards(self, shards):
        self.scene.shut_down()
        self.scene.options = attrs.evolve(self.scene.options, shards=shards)
        self.scene.open()

    def checkpoint(self):
        self.scene.sync()
        self.scene.checkpoint()

    def copy(self, only="", to=""):
        """The files of the store as they are, or those below a directory, put somewhere else."""
        disk = SimDisk(2)
        for path in files_of(self.disk):
            if path.startswith(only):
                put_file(disk, to + path.removeprefix(only), whole(self.disk, path))
        return disk

    def head(self, *logs, **goal):
        return heads(rebuilt(self.base, logs or [self.disk], **goal))["a"]


def files_of(disk, directory=""):
    for name in disk.names(directory):
        path = f"{directory}/{name}".lstrip("/")
        if disk.size(path) is None:
            yield from files_of(disk, path)
        else:
            yield path


def whole(disk, path):
    return disk.read(path, 0, disk.size(path))


def put_file(disk, path, data):
    if "/" in path:
        disk.make_dir(path.rpartition("/")[0])
    disk.create(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)


def damage(disk, path, text):
    """Turn a bit of the last place where a file has these bytes."""
    disk.flip(path, whole(disk, path).rindex(text) * 8)


def names(count):
    return [b'"record %d"' % i for i in range(count)]


def log_of_everything():
    """A log of several files, archived and not, of two generations and three shards."""
    case = Case(*[LARGE] * 12)
    case.checkpoint()
    case.checkpoint()
    case.write(*names(3))
    case.change_shards(2)
    case.write(*names(4))
    case.write(*names(4), topic="b")
    return case
