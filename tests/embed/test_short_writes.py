"""Background work on the real disk, in a child process whose files may not grow: short writes, and what comes after."""

from __future__ import annotations

import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

_CHILD = """
import resource, signal, sys
import topics
from topics.store.opened import StoreOptions
from topics.kernel.limits import Limits

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
LIMIT = 300_000
options = StoreOptions(min_free_bytes=0, limits=Limits(wal_file_first=200_000, wal_file_max=200_000, wal_reserve=1024))
with topics.open(sys.argv[1], options=options) as store:
    topic = store.create("t", durability="fsync")
    for i in range(100):
        topic.put({"n": i, "x": "x" * 5000})
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    for _ in range(2):
        try:
            store.checkpoint()
            print("taken")
        except topics.Fatal as error:
            print("failed", "too large" in str(error))
        print(sorted(path.stat().st_size for path in store._disk.root.glob("topics/*/*")))
    topic.put({"n": 100})
    print([record.data["n"] for record in topic.records()] == list(range(101)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.checkpoint()
    print([record.data["n"] for record in topic.records()] == list(range(101)))
with topics.open(sys.argv[1], options=options) as store:
    print([record.data["n"] for record in store.topic("t").records()] == list(range(101)), store.damages)
"""


def test_a_short_write_fails_a_checkpoint_leaves_nothing_and_the_next_one_is_whole(tmp_path):
    """A write of the log is not touched by it: its files are as long as they get from the start on."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert child.stderr == ""
    assert child.stdout.splitlines() == [
        "failed True", "[]", "failed True", "[]", "True", "True", "True []",
    ]  # fmt: skip
