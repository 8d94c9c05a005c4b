"""docs/tutorial.md is right: who types its commands sees what stands below them, but for times and names of his own."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest

from topics.pytest_plugin.server import Server

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z"


def steps() -> list[tuple[str, list[str]]]:
    """Each command, and the lines below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def pattern_of(line: str) -> str:
    """What matches a line that looks so: `…` and every time stand for anything."""
    return ".+".join(map(re.escape, re.sub(TIME, "…", line).split("…")))


def unhurried(lines: Iterable[str]) -> list[str]:
    """Without what comes about a second behind a write: who types has it, who is as fast as this test may not."""
    return [line for line in lines if "  synced: " not in line]


@pytest.mark.timeout(180)  # some twenty commands, each a process of its own
def test_what_it_shows_is_what_comes(tmp_path: pathlib.Path) -> None:
    (serve, _), (export, _), *others = steps()
    assert (serve, export) == ("topics serve --data ./data", "export TOPICS_URL=http://localhost:4000")
    with Server.private(tmp_path, {}) as server:  # its data is in ./data
        env = os.environ | {
            "TOPICS_URL": server.url,
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for command, shown_below in others:
            done = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"],
                capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path, env=env,
            )  # fmt: skip
            said = unhurried(map(str.rstrip, done.stdout.splitlines()))
            expected = unhurried(shown_below)
            assert len(said) == len(expected), (command, said)
            for line, shown in zip(said, expected, strict=True):
                assert re.fullmatch(pattern_of(shown), line), (command, line, shown)
