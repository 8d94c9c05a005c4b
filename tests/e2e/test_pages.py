"""Pages of docs/ are right: their Python runs as it stands there, in order, in one directory."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
SAID = {
    "queues": [
        ["2 ben 1", "1 ann 1", "1"],
        ["['dan', 'eve']"],
        ["{'to': 'nobody'} no such address", "1"],
    ],
    "consumers": [
        ["bill 1", "bill 2", "2 1", "bill 3"],
        ["index [1, 2]", "index [3]"],
        ["[1, 2]", "[3]", "[]"],
        ["mail 1", "mail 2", "mail 3", "0"],
        [
            "False",
            "2",
            "3",
            "0",
            "[('audit', 3), ('billing', 3), ('mailing', 3), ('search', 3)]",
            "True False",
        ],
    ],
    "index": [["1 Hualien, Taiwan"]],
    "promise": [["1 6 cap", "[6, 8]", "2 6 2 10"]],
    "schedules": [
        ["tick beat 0", "['beat', 'nightly']", "True"],
        ["1 now", "['cron.report', 'cron.tidy']"],
    ],
}  # what each block prints


@pytest.mark.rule("Q4.17")
@pytest.mark.parametrize("page", SAID)
def test_the_examples_print_what_one_expects(page: str, tmp_path: pathlib.Path) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for block, said in zip(blocks, SAID[page], strict=True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == said
