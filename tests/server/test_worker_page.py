"""The worker of docs/worker.md as it stands, against a real server."""

import shutil
import signal
import subprocess

import pytest

from tests.server.process import ROOT, Process

WORKER = ROOT / "docs" / "worker.mjs"
HANDLER = """
let failures = 0
export async function handle(job) {
  if (job.data === "once more" && failures++ === 0) throw new Error("not yet")
  console.log(JSON.stringify([job.data, job.deliveries]))
}
"""


def node_command() -> list[str]:
    """How to run Node with its own WebSocket; skips where there is none."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    command = [node, "--no-warnings", "--experimental-websocket"]
    has = subprocess.run(
        [*command, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"], check=False
    )
    if has.returncode:
        pytest.skip("this node has no WebSocket of its own: 20.10 and later have")
    return command


@pytest.mark.rule("H10.7", "H10.6", "Q1.14")
def test_the_worker_of_the_page_works(tmp_path):
    command, handler = node_command(), tmp_path / "handler.mjs"
    handler.write_text(HANDLER)
    with Process("--data", tmp_path / "data", "--port", 0, cwd=tmp_path).ready() as server:
        assert server.ask("PUT", "/v0/topics/jobs", {"type": "queue", "require_lease_id": True})[0] == 201
        server.append("jobs", *range(30), "once more")
        url = f"ws://127.0.0.1:{server.port}/v0/ws"
        worker = subprocess.Popen([*command, WORKER, url, "jobs", handler], stdout=subprocess.PIPE, text=True)
        try:
            assert worker.stdout is not None
            seen = [worker.stdout.readline() for _ in range(31)]
            assert sorted(seen) == sorted([*(f"[{i},1]\n" for i in range(30)), '["once more",2]\n'])
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(20) == 0
        finally:
            worker.kill()
            worker.communicate()
        server.append("jobs", "last")  # behind its acks
        state = server.ask("GET", "/v0/topics/jobs")[1]
        assert (state["count"], state["queue"]["in_flight"]) == (1, 0)
        server.stop()
