"""A write that the operating system refuses ends the shard, and the boot id leaves LOCK: the next start is careful.

A limit on the size of files, set from outside, refuses a write into the log, which is long, and none into LOCK.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

import topics
from tests.server.process import Process
from topics.host.directory.owner import read_owner

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")

FILE_SIZE_MAX = 512  # LOCK's
EMBEDDED = """
import os, resource, sys, topics
store = topics.open(sys.argv[1])
for n in range(3):
    store.topic("t").put(n)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
try:
    store.topic("t").put(3)
except topics.Fatal as failed:
    print(failed, flush=True)
os.kill(os.getpid(), 9)
"""


def check_told(root):
    """The start behind it takes the machine as restarted: what may be gone is told, and no seq is given again."""
    with topics.open(root) as store:
        page = store.topic("t").read(from_seq=0)
        assert [record.data for record in page.records] == [0, 1, 2]
        assert store.topic("t").state().head_seq > 3
        assert min(store.topic("t").put(4).seqs) > 3
    assert read_owner(root).boot_id is not None


@pytest.mark.rule("T3.24", "T4.24", "T4.32")
def test_an_embedded_store_whose_write_fails_forgets_its_boot(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", EMBEDDED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "writing shard 0 failed: [Errno 27] File too large" in ended.stdout
    assert "LOCK" not in ended.stdout
    assert read_owner(tmp_path).boot_id is None

    check_told(tmp_path)


@pytest.mark.rule("T3.24", "T4.24", "T4.32")
def test_a_server_whose_write_fails_forgets_its_boot(tmp_path):
    with Process("--port", 0, "--data", "data", cwd=tmp_path) as server:
        server.ready()
        server.append("t", 0, 1, 2)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (FILE_SIZE_MAX, resource.RLIM_INFINITY))
        status, _ = server.ask("POST", "/v0/topics/t", {"records": [{"data": 3}]})[:2]
        assert status == 503
        assert read_owner(tmp_path / "data").boot_id is None
        server.child.send_signal(signal.SIGKILL)
        server.child.wait()

    check_told(tmp_path / "data")
