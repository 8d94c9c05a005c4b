"""docs/ledgerq.md and docs/samples.md are right: their Python runs as it stands there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
SAID = {
    "ledgerq.md": [
        [
            "1 b'hello' ann 9", "1 no such host", "b'hello'", "b'two'", "b'one'", "{'json': 'too'}",
            "0 CompactionResult(segments_removed=0, bytes_freed=0)",
        ],
    ],
    "samples.md": [
        ["['http://a/', 'http://a/1', 'http://a/2', 'http://b/']", "['http://b/1']"],
        ["['order 1: tea', 'order 2: salt']", "0"],
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("page", "number"), [(page, i) for page, blocks in SAID.items() for i in range(len(blocks))]
)
def test_a_program_prints_what_the_page_promises(page: str, number: int, tmp_path: pathlib.Path) -> None:
    """And the page has no other ones."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks[number]],
        capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert len(blocks) == len(SAID[page])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID[page][number]
