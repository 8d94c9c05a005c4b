"""A stream that is killed with SIGKILL again and again, while its directory is written and checkpointed, loses nothing
and delivers nothing twice.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

from tests.spark.stores import opened

ROOT = pathlib.Path(__file__).parents[2]
KILLS = 20


def start(home, *arguments):
    command = [sys.executable, "-m", "tests.spark.streaming", str(home), "a", *arguments]
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )


def kill(child):
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


@pytest.mark.rule("P1.5")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_a_killed_stream_delivers_each_record_once(request, tmp_path):
    rng = random.Random(5)
    count = 0
    with opened(tmp_path / "data", segment_records=100, checkpoint_wal_bytes=20_000) as store:
        topic = store.create("a")

        def put(records):
            nonlocal count
            topic.put_many([{"data": {"i": count + i, "pad": "x" * 40}} for i in range(records)])
            count += records

        for number in range(KILLS):
            put(500)
            child = start(tmp_path)
            assert child.stdout is not None
            for _ in range(rng.randint(1, 4)):
                line = child.stdout.readline()
                assert line, (tmp_path / "log").read_text()[-3000:]
                put(rng.randint(100, 700))
            store.checkpoint()
            kill(child)
            print(f"killed {number + 1} times, after batch {line.strip()}, {count} records")
        last = start(tmp_path, "now")
        last.communicate()
        assert last.returncode == 0

    spark = request.getfixturevalue("spark")  # now: one Java at a time
    rows = (
        spark.read.parquet(str(tmp_path / "out"))
        .selectExpr("offset", "cast(value as string) value")
        .collect()
    )
    found = sorted((row.offset, int(row.value.split(":")[1].split(",")[0])) for row in rows)
    assert found == [(i + 1, i) for i in range(count)]
