"""A process that has used up its descriptors: the store has kept some, so no shard is read-only for want of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource")

USED_UP = """
import os, resource, sys
import topics
from topics.kernel.limits import Limits
options = topics.StoreOptions(limits=Limits(wal_file_first=4096, wal_file_max=4096, wal_reserve=256), min_free_bytes=0)
with topics.open(sys.argv[1], options=options) as store:
    topic = store.create("t", durability="fsync")
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for n in range(100):  # a file is begun every few of them
        topic.put("x" * 1000)
    print(topic.state().head_seq, store.read_only, flush=True)
    for fd in held:
        os.close(fd)
    topic.put("again")
with topics.open(sys.argv[1]) as store:
    print(len(list(store.topic("t").records())), store.damages, flush=True)
"""


@pytest.mark.rule("T3.24")
def test_a_process_without_descriptors_writes_and_rotates_on(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", USED_UP, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert ended.stderr == ""
    assert ended.stdout == "100 False\n101 []\n"
