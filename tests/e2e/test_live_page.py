"""docs/live.md is right: its calls answer what they say, its programs print what they are to, as they stand there."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import topics
from topics.cli.demo.private_server import PrivateServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
PATIENCE_S = 20
GIVEN = {"$ts", "wid", "stream_url"}  # different each time


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[PrivateServer]:
    with PrivateServer(tmp_path / "data", tmp_path) as running:
        yield running


def node(*options: str) -> list[str]:
    """How to run Node with what a browser has; skips where there is none."""
    command = [shutil.which("node") or "", "--no-warnings", *options]
    if not command[0]:
        pytest.skip("there is no node on this machine")
    if subprocess.run([*command, "-e", "0"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"this node has no {' '.join(options)}")
    return command


def run(command: Sequence[str], cwd: pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end, and after a while."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    bound = threading.Timer(PATIENCE_S, child.kill)
    bound.start()
    try:
        yield child
    finally:
        bound.cancel()
        child.kill()
        child.communicate()


def lines(child: subprocess.Popen[str]) -> Iterator[str]:
    assert child.stdout is not None
    for line in child.stdout:
        yield line.removesuffix("\n")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_its_calls_by_curl(server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        client.create("quakes").put_many([{"data": {"mag": 4.2}}, {"data": {"mag": 2.1}}])
        client.create("alarms").put("old")
    begin, stream = (block.replace("localhost:4000", server.url) for block in blocks("sh"))
    answer = json.loads(subprocess.run(["sh", "-c", begin], capture_output=True, check=True).stdout)
    said = json.loads(blocks("json")[0])
    assert {key: one for key, one in answer.items() if key not in GIVEN} | {"performance": {}} == {
        key: one for key, one in said.items() if key not in GIVEN
    } | {"performance": {}}

    with started(
        ["sh", "-c", f"exec {stream}"], env={"WID": answer["wid"], "PATH": "/usr/bin:/bin"}
    ) as child:
        seen: list[str] = []
        for line in lines(child):
            seen.append(line)
            if seen[-2:-1] == ["event: caught-up"] and '"quakes"' in line:
                break
    assert seen[0] == blocks("text")[0].splitlines()[0]
    events = [
        (name, json.loads(data))
        for name, data in re.findall(r"^event: (.*)\ndata: (.*)$", "\n".join(seen), re.MULTILINE)
    ]
    of_quakes = [(name, data) for name, data in events if data["topic"] == "quakes"]
    assert [name for name, _ in of_quakes] == ["record", "caught-up"]
    assert [list(of_quakes[0][1]), list(of_quakes[1][1])] == [
        ["topic", "records", "from_seq", "to_seq", "head_seq"], ["topic", "head_seq", "durable_seq"],
    ]  # fmt: skip


def test_its_programs_in_python(server: PrivateServer, tmp_path: pathlib.Path) -> None:
    printed = [
        run(
            [sys.executable, "-W", "error", "-c", block.replace("http://localhost:4000", server.url)],
            tmp_path,
        )
        for block in blocks("python")
    ]
    assert [text.splitlines() for text in printed] == [
        [
            "quakes 1 {'mag': 4.2}", "quakes 2 {'mag': 2.1}", "quakes caught up 2",
            "{'quakes': {'from_seq': 2, 'epoch': 1}}", "{'mag': 5.0}",
        ],
        ["alarms wake up"],
    ]  # fmt: skip


def test_its_websocket_in_javascript(server: PrivateServer, tmp_path: pathlib.Path) -> None:
    with topics.Client(server.url) as client:
        client.create("quakes").put_many([{"data": n} for n in range(3)])
        (program,) = blocks("js")
        program = program.replace("ws://localhost:4000", server.url.replace("http", "ws"))
        command = [*node("--experimental-websocket"), "--input-type=module", "-e", program]
        with started(command) as child:
            seen = lines(child)
            assert [next(seen), next(seen)] == ["quakes [ 1, 2, 3 ] 3", "quakes caught up 3"]
            client.topic("quakes").put("later")
            assert next(seen) == "quakes [ 4 ] 4"


PROGRAM = """
import { watch } from "./live.mjs"
const alive = setInterval(() => {}, 60_000) // Node ends a program whose EventSource rests before it comes again
const show = (...shown) => console.log(JSON.stringify(shown))
const live = await watch(process.argv[2], JSON.parse(process.argv[3]), {
  record: (topic, record) => show(topic, record.$seq, record.data),
  tombstone: (topic, lost) => show(topic, "lost", lost.gap_from, lost.gap_to, lost.reason),
  caughtUp: (topic) => show(topic, "caught up"),
  deleted: (topic) => {
    show(topic, "deleted")
    if (Object.keys(live.at).length === 1) clearInterval(alive)
  },
})
"""


def test_its_module_goes_on_over_a_restart(server: PrivateServer, tmp_path: pathlib.Path) -> None:
    (tmp_path / "live.mjs").write_text((ROOT / "docs" / "live.mjs").read_text())
    (tmp_path / "program.mjs").write_text(PROGRAM)
    with topics.Client(server.url) as client:
        quakes = client.create("quakes", durability="fsync", cap_records=3)
        quakes.put_many([{"data": n} for n in range(5)])
        client.create("alarms").put("old")
        starts = json.dumps({"quakes": {}, "alarms": {"tail": True}})
        command = [*node("--experimental-eventsource"), "program.mjs", server.url, starts]
        with started(command, cwd=tmp_path) as child:
            found = map(json.loads, lines(child))
            first = [next(found) for _ in range(6)]
            assert [one for one in first if one[0] == "quakes"] == [
                ["quakes", "lost", 1, 2, "from_seq_too_old"], *(["quakes", n, n - 1] for n in (3, 4, 5)),
                ["quakes", "caught up"],
            ]  # fmt: skip
            assert ["alarms", "caught up"] in first
            server.kill()
            server.start()
            quakes.put("after")
            client.topic("alarms").put("new")
            seen = [next(found) for _ in range(4)]
            assert [one for one in seen if one[1] != "caught up"] in (
                [["quakes", 6, "after"], ["alarms", 2, "new"]], [["alarms", 2, "new"], ["quakes", 6, "after"]],
            )  # fmt: skip
            client.delete("alarms")
            client.delete("quakes")
            assert sorted(found) == [["alarms", "deleted"], ["quakes", "deleted"]]
            assert child.wait(PATIENCE_S) == 0
