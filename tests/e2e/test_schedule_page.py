"""docs/schedules.md is right: its Python runs as it stands there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SAID = [
    ["tick beat 0", "['beat', 'nightly']", "True"],
    ["1 now", "['cron.report', 'cron.tidy']"],
]


@pytest.mark.rule("Q4.17")
def test_the_examples_print_what_one_expects(tmp_path: pathlib.Path) -> None:
    for block, said in zip(BLOCKS, SAID, strict=True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == said
