"""Five million records of 200 bytes in 20 topics: memory as the page allows, and a start that never looks at the data.

Each measurement is a process of its own (`tests.embed.large`); the directory goes when the test ends.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import pytest

from tests.embed.large import HOT_SEGMENTS, TOPICS
from topics.codec.snapshot import SNAPSHOT_HEAD

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUARTER, WHOLE = 1_250_000, 5_000_000
STARTS = 3
SNAPSHOTS = 2  # that are kept
NAMED_BYTES = 16  # of one record of a segment
RECORD_BYTES_MAX = 100  # of memory (B11)
TO_LINEAR_MAX = 1.2  # (B13)
P99_RATIO_MAX, P99_MORE_S = 2, 0.002  # of a write beside cold reads, to one alone
WAL_FILE = 64 << 20
SEGMENT_RECORDS = 10_000


def large(*arguments):
    """What the process says."""
    command = [sys.executable, "-m", "tests.embed.large", *map(str, arguments)]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


@pytest.fixture
def scratch():
    with tempfile.TemporaryDirectory(prefix="topics-large-") as name:
        yield pathlib.Path(name)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.rule("T4.1", "T5.20", "T6.4")
def test_five_million_records(scratch):
    """Memory within B11; a start takes time by the index and reads none of the data; the oldest are read behind it.

    Then most of them go to a cold tier, and are read from there while writes take what they took.
    """
    data, empty = scratch / "data", scratch / "empty"
    costs = {}
    for count in (QUARTER, WHOLE):
        filled = large("fill", data, count)
        starts = [large("start", data, empty) for _ in range(STARTS)]

        assert count == filled["records"]
        assert filled["anonymous"] <= count * RECORD_BYTES_MAX
        for started in starts:
            it_is_all_there(started, count)
            it_read_the_index_and_the_ends_of_the_data(started, count)
        costs[count] = min(started["cpu"] for started in starts)

    print(f"starts: {costs} s of CPU; memory of the last: {starts[-1]['anonymous'] / WHOLE:.0f} B a record")
    assert costs[WHOLE] <= costs[QUARTER] * (WHOLE / QUARTER) * TO_LINEAR_MAX
    moved = large("cold", data, scratch / "cold")
    alone, beside = (statistics.median(moved[name]) for name in ("alone", "beside"))
    print(f"p99 of a write: {alone * 1e3:.2f} ms, beside cold reads {beside * 1e3:.2f} ms")
    assert moved["segments"] >= WHOLE // SEGMENT_RECORDS - TOPICS * (HOT_SEGMENTS + 1)
    assert [[1, number * 1000] for number in range(TOPICS)] == moved["first"]
    assert beside <= alone * P99_RATIO_MAX + P99_MORE_S


def it_is_all_there(started, count):
    assert count == started["records"]
    assert [[1, number * 1000] for number in range(TOPICS)] == started["first"]
    assert started["anonymous"] <= count * RECORD_BYTES_MAX


def it_read_the_index_and_the_ends_of_the_data(started, count):
    """The snapshots and the indexes at most once; one file of log; of each segment's data what tells whose it is. Of
    segments that are not sealed idx and data once more, for an append goes on behind what the idx says.
    """
    read, there = started["read"], started["sizes"]
    open_idx = TOPICS * SEGMENT_RECORDS * 20

    assert there[".data"] > count * 200
    assert set(read) <= {
        "FORMAT",
        "LOCK",
        ".bin",
        ".idx",
        ".col",
        ".log",
        ".data",
        "wal/gen-0/shard-00/CURRENT",
    }
    assert read[".data"] <= NAMED_BYTES * (count // SEGMENT_RECORDS + TOPICS + TOPICS)  # an open one a topic
    assert there[".idx"] <= read[".idx"] <= there[".idx"] + open_idx
    assert read.get(".col", 0) <= there.get(".col", 0)
    assert (
        read[".bin"] <= there[".bin"] + SNAPSHOTS * SNAPSHOT_HEAD.size
    )  # the head first, which bounds the rest
    assert read[".log"] <= WAL_FILE + 4096
