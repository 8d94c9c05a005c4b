"""A process of its own over a large directory: it fills one, or starts over one, and says what that took.

usage: python -m tests.embed.large fill DIRECTORY RECORDS     until it holds so many, then two checkpoints
       python -m tests.embed.large start DIRECTORY EMPTY      idle is the same process over EMPTY
       python -m tests.embed.large cold DIRECTORY COLD        older segments go to COLD, and are read while it writes

Each prints one JSON object; see `fill`, `start` and `cold`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import topics
from topics.embed.store import Store
from topics.host.cold.segment_stores import HotRules
from topics.store.directory import ClaimedDirectory

TOPICS = 20
PAYLOAD_BYTES = 200
BATCH = 1000
HOT_SEGMENTS = 4
ROUNDS, WRITES, WRITE = 5, 1000, 10
READ_EACH_S = 0.005


def payload(number):
    """JSON of 200 bytes, each another."""
    return b'{"n":%d,"text":"%b"}' % (number, b"x" * (PAYLOAD_BYTES - 16 - len(str(number))))


def fill(path, count):
    """`records`: in the directory now. `anonymous`: RssAnon above idle, when all is checkpointed."""
    with topics.open(path) as store:
        handles = [store.create(f"t{number}", durability="disk") for number in range(TOPICS)]
        idle = anonymous()
        written = sum(handle.state().head_seq for handle in handles)
        for first in range(written, int(count), BATCH):
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
    directory = ClaimedDirectory.claim(path, create=False)
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


def cold(path, place):
    """`segments`: in the cold tier. `first`: the oldest record of each topic, read from there.

    `alone`, `beside`: p99 of a write in seconds, round by round, without and with a reader of the oldest records.
    """
    rules = HotRules(retain_segments=HOT_SEGMENTS)
    with topics.open(path, options=topics.StoreOptions(cold_dir=place, hot=rules)) as store:
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        handles = [store.topic(f"t{number}") for number in range(TOPICS)]
        firsts = [handle.read(limit=1).records[0] for handle in handles]
        p99 = {"alone": [], "beside": []}
        for _ in range(ROUNDS):
            p99["alone"].append(p99_of(writes(handles[0])))
            with reading(handles[1:]) as read:
                p99["beside"].append(p99_of(writes(handles[0])))
            assert read
        return {
            **p99,
            "segments": store._opened.cold.segments(),
            "first": [[record.seq, record.data["n"]] for record in firsts],
        }


def writes(handle):
    batch, took = [topics.Raw(payload(i)) for i in range(WRITE)], []
    for _ in range(WRITES):
        begun = time.perf_counter()
        handle.put_many(batch)
        took.append(time.perf_counter() - begun)
    return took


@contextmanager
def reading(handles):
    """A thread that reads the oldest record of each in turn, some 200 a second, until the block ends."""
    ended, read = threading.Event(), []

    def run():
        for handle in itertools.cycle(handles):
            read.append(handle.read(limit=1).records[0].seq)
            if ended.wait(READ_EACH_S):
                return

    reader = threading.Thread(target=run)
    reader.start()
    try:
        yield read
    finally:
        ended.set()
        reader.join()
    assert read == [1] * len(read)


def p99_of(took):
    return sorted(took)[len(took) * 99 // 100]


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
    print(json.dumps({"fill": fill, "start": start, "cold": cold}[verb](path, argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
