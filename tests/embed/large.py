"""A process of its own over a large directory: it fills one, or starts over one, and says what that took.

usage: python -m tests.embed.large fill DIRECTORY RECORDS     until it holds so many, then two checkpoints
       python -m tests.embed.large start DIRECTORY EMPTY      idle is the same process over EMPTY

Each prints one JSON object; see `fill` and `start`.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections import Counter

import topics
from topics.embed.store import Store
from topics.host.directory import Directory

TOPICS = 20
PAYLOAD_BYTES = 200
BATCH = 1000


def payload(number):
    """JSON of 200 bytes, each another."""
    return b'{"n":%d,"text":"%b"}' % (number, b"x" * (PAYLOAD_BYTES - 16 - len(str(number))))


def fill(path, count):
    """`records`: in the directory now. `anonymous`: RssAnon above idle, when all is checkpointed."""
    with topics.open(path) as store:
        handles = [store.create(f"t{number}", durability="disk") for number in range(TOPICS)]
        idle = anonymous()
        written = sum(handle.state().head_seq for handle in handles)
        for first in range(written, count, BATCH):
            batch = [topics.Raw(payload(first + i)) for i in range(BATCH)]
            handles[first // BATCH % TOPICS].put_many(batch)
        del batch
        store.checkpoint()
        store.checkpoint()
        return {"records": sum(handle.state().count for handle in handles), "anonymous": anonymous() - idle}


def start(path, empty):
    """`cpu`: seconds of it that the start took. `read`: bytes by kind of file, `sizes` what of each there is.

    `anonymous`: RssAnon above idle, behind the start. `first`: the oldest record of each topic, read behind it.
    """
    with topics.open(empty):
        idle = anonymous()
    directory = Directory.claim(path, create=False)
    directory.disk = disk = Counting(directory.disk)
    cpu, begun = time.process_time(), time.perf_counter()
    store = Store(directory.recover(), disk, lock=directory.lock, where=str(path))
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - begun}
    with store:
        held, read, calls = anonymous() - idle, dict(disk.read_bytes), dict(disk.read_calls)
        firsts = [store.topic(f"t{number}").read(limit=1).records[0] for number in range(TOPICS)]
        return {
            **took,
            "read": read,
            "calls": calls,
            "sizes": sizes(pathlib.Path(path)),
            "anonymous": held,
            "records": sum(state.count for state in store.list()),
            "first": [[record.seq, record.data["n"]] for record in firsts],
        }


class Counting:
    """A disk that counts what is read of it, by the ends of the files' names."""

    def __init__(self, disk):
        self.disk = disk
        self.read_bytes = Counter()
        self.read_calls = Counter()

    def __getattr__(self, name):
        return getattr(self.disk, name)

    def read(self, path, offset, size):
        return self.counted(path, self.disk.read(path, offset, size))

    def read_nowait(self, path, offset, size):
        return self.counted(path, self.disk.read_nowait(path, offset, size))

    def counted(self, path, data):
        kind = pathlib.PurePath(path).suffix or path
        self.read_calls[kind] += 1
        self.read_bytes[kind] += len(data or b"")
        return data


def sizes(root):
    found = Counter()
    for path in root.rglob("*"):
        if path.is_file():
            found[path.suffix or path.name] += path.stat().st_size
    return dict(found)


def anonymous():
    """Bytes of memory that the process has beside files mapped into it."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


def main(verb, path, argument):
    print(json.dumps(fill(path, int(argument)) if verb == "fill" else start(path, argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
