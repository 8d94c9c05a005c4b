"""docs/routers.md is right: its Python runs as it stands there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "routers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SAID = [
    ["quakes.us [(1, 4.1)]", "quakes.archive [(1, 4.1), (2, 5.0)]", "1 0", "True ['quakes-all']"],
]


@pytest.mark.rule("S8.17", "S8.23")
def test_the_examples_print_what_one_expects(tmp_path: pathlib.Path) -> None:
    for block, said in zip(BLOCKS, SAID, strict=True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == said
