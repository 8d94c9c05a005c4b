"""A stream that is killed with SIGKILL again and again, while its directory is written, delivers nothing twice, and
leaves out only what was evicted, deleted, or went with its topic: of the first and the last it tells.
"""

import random
import re

import msgspec
import pytest

from tests.spark.processes import python
from tests.spark.stores import opened

KILLS = 20
LAST_S = 300  # within the test's own time
KEPT, CAPPED, THINNED, ANEW = "kept", "capped", "thinned", "anew"


def stream(home, *arguments):
    return python("-m", "tests.spark.streaming", str(home), ".*", *arguments, log=home / "log")


class Writing:
    """A store that is written, evicts, deletes, and makes a topic anew. Each record has a number of its own."""

    def __init__(self, store, rng):
        self.store, self.rng, self.count = store, rng, 0
        self.put_of = {KEPT: [], CAPPED: [], THINNED: [], ANEW: []}
        self.topics = {
            name: store.create(name, **({"cap_records": 250} if name == CAPPED else {}))
            for name in self.put_of
        }

    def put(self, records):
        for name, topic in self.topics.items():
            numbers = range(self.count, self.count + records)
            topic.put_many([{"data": {"i": i, "pad": "x" * 40}, "tag": "ab"[i % 2]} for i in numbers])
            self.put_of[name] += numbers
            self.count += records

    def turn(self):
        """What a kill falls into: records go, and a topic is another one."""
        self.put(self.rng.randint(50, 200))
        thinned = self.topics[THINNED]
        thinned.delete(match="b", before_seq=thinned.state().head_seq)
        self.store.delete(ANEW)
        self.topics[ANEW] = self.store.create(ANEW)
        self.put(self.rng.randint(50, 200))
        self.store.checkpoint()

    def live(self):
        """The numbers of what is there in the end."""
        return {
            name: {msgspec.json.decode(one.raw)["i"] for one in topic.records() if hasattr(one, "raw")}
            for name, topic in self.topics.items()
        }


def seqs_told(log, topic):
    """The seqs of a topic that the stream said were evicted."""
    ranges = re.findall(rf"topic '{topic}': seqs (\d+) to (\d+) are lost \(cap\)", log)
    return {seq for first, last in ranges for seq in range(int(first), int(last) + 1)}


@pytest.mark.rule("P1.5", "P3.5")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2400)  # of itself 12 minutes; the machine may be shared
def test_a_killed_stream_delivers_each_record_once_or_tells_of_its_loss(request, tmp_path):
    rng = random.Random(5)
    with opened(tmp_path / "data", segment_records=100, checkpoint_wal_bytes=20_000) as store:
        writing = Writing(store, rng)
        for number in range(KILLS):
            writing.put(rng.randint(100, 300))
            with stream(tmp_path) as child:
                for _ in range(rng.randint(1, 4)):
                    line = child.stdout.readline()
                    assert line, (tmp_path / "log").read_text()[-3000:]
                    writing.put(rng.randint(20, 150))
                writing.turn()
            print(f"killed {number + 1} times, after batch {line.strip()}, {writing.count} records")
        with stream(tmp_path, "now") as last:
            last.communicate(timeout=LAST_S)
        assert last.returncode == 0, (tmp_path / "log").read_text()[-3000:]
        live = writing.live()

    spark = request.getfixturevalue("spark")  # now: one Java at a time
    out = spark.read.parquet(str(tmp_path / "out")).selectExpr(
        "topic", "offset", "cast(value as string) value"
    )
    found, seqs = {name: [] for name in live}, {name: set() for name in live}
    for row in out.collect():
        found[row.topic].append(msgspec.json.decode(row.value)["i"])
        seqs[row.topic].add(row.offset)
    told = (tmp_path / "log").read_text()
    print({name: (len(of), len(found[name]), len(live[name])) for name, of in writing.put_of.items()})

    for name, numbers in found.items():
        assert len(set(numbers)) == len(numbers), name
        assert live[name] <= set(numbers) <= set(writing.put_of[name]), name
    assert sorted(found[KEPT]) == writing.put_of[KEPT]
    assert all(
        i % 2 for i in set(writing.put_of[THINNED]) - set(found[THINNED])
    )  # 1: those that were deleted
    seen = seqs[CAPPED] | seqs_told(told, CAPPED)
    assert set(range(min(seen), len(writing.put_of[CAPPED]) + 1)) == seen  # each seq from where it began
    assert len(found[ANEW]) == len(writing.put_of[ANEW]) or "is lost: recreated" in told
