"""docs/api.md is right: each of its calls is made, in order, to a server that just began, and answers what it says."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from topics.server.api.errors import STATUS
from topics.server.api.table import route_table

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
TIMES = {
    "now",
    "$ts",
    "last_write_ts",
    "last_read_ts",
    "effective_priority",
    "updated_ts",
    "deadline",
    "ready_at",
    "next_fire",
    "lease_id",
}  # different each time
CALLS = re.findall(r"^```sh\n(.*?)^```\n\n```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def url(tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of a server in memory, ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "topics", "serve", "--memory", "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    try:
        yield told_when_ready(process)
        process.terminate()
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log
        assert "Traceback" not in log
    finally:
        process.kill()
        process.communicate()


def told_when_ready(process: subprocess.Popen[str]) -> str:
    """The URL of the server's log, once that says that it is ready."""
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        event = json.loads(line)
        url = event.get("url", url)
        if event["event"] == "server.ready":
            return url
    raise AssertionError("the server ended before it was ready")


def without_times(value: object) -> object:
    """The answer but for what differs each time, and what the page leaves out."""
    if isinstance(value, dict):
        return {
            key: type(item) if key in TIMES else without_times(item)
            for key, item in value.items()
            if key != "performance" and item != "…"
        }
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_call_of_the_page_answers_what_it_says(url: str) -> None:
    assert len(CALLS) == PAGE.count("```sh") == PAGE.count("```json") > 10
    for command, expected in CALLS:
        assert "localhost:4000" in command
        done = subprocess.run(
            ["sh", "-c", command.replace("localhost:4000", url)],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        answer, wanted = json.loads(done.stdout), json.loads(expected)
        assert "performance" in answer
        for left_out in [key for key, item in wanted.items() if item == "…"]:
            assert answer.pop(left_out)

        assert without_times(answer) == without_times(wanted), command


def test_every_message_of_the_page_is_answered_as_it_says(url: str) -> None:
    (section,) = re.findall(r"^```text\n(→ .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = section.splitlines()
    with connect(url.replace("http", "ws", 1) + "/v0/ws") as socket:
        for asked, expected in zip(lines[::2], lines[1::2], strict=True):
            socket.send(asked.removeprefix("→ "))
            answer, wanted = json.loads(socket.recv()), json.loads(expected.removeprefix("← "))
            for left_out in [key for key, item in wanted.items() if item == "…"]:
                assert answer.pop(left_out)

            assert without_times(answer) == without_times(wanted), asked


def test_the_page_shows_every_op() -> None:
    assert set(re.findall(r"^\| `([a-z_]+)` \|.*\| `[a-z_]+`[^|]* \|$", PAGE, re.MULTILINE)) == set(
        route_table().ops
    )


def test_the_page_shows_every_route() -> None:
    for route in route_table().routes:
        assert route.path.removeprefix("/v0") in PAGE, route.path


def test_its_table_of_errors_is_the_servers() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE, re.MULTILINE)
    said = {code: int(status) for status, codes in rows for code in re.findall(r"`([a-z_]+)`", codes)}

    assert {code.value: status for code, status in STATUS.items()} == said
