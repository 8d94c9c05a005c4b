"""docs/consumers.md is right: its Python runs as it stands there, in order, in one directory."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "consumers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SAID = [
    ["bill 1", "bill 2", "2 1", "bill 3"],
    ["index [1, 2]", "index [3]"],
    ["[1, 2]", "[3]", "[]"],
    ["False", "2", "3", "0", "[('audit', 3), ('billing', 3), ('search', 3)]", "True False"],
]


def test_the_examples_print_what_one_expects(tmp_path: pathlib.Path) -> None:
    for block, said in zip(BLOCKS, SAID, strict=True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == said
