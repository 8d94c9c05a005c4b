"""docs/why.md is right: its Python runs as it stands there, and its commands print what it says, but for times."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
(MADE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHOWN = "".join(re.findall(r"^```\n(\$ .*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z")


def run(tmp_path: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_print_what_the_page_says(tmp_path: pathlib.Path) -> None:
    run(tmp_path, "-c", MADE)
    for command, said in re.findall(r"^\$ topics (.*)\n((?:[^$].*\n)*)", SHOWN, re.MULTILINE):
        printed = run(tmp_path, "-m", "topics", *shlex.split(command))

        assert TIME.sub("TIME", said) == TIME.sub("TIME", printed), command
