"""What docs/replication.md shows of the Weaver runs as it stands."""

from __future__ import annotations

import pathlib
import re

from tests.support.weaving import NOW, STORE, B

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "replication.md"


def test_the_examples_of_the_page_run(tmp_path):
    """By hand first, then a store that ingests what was made: the two writes of the key are both there."""
    (part,) = (
        each for each in PAGE.read_text(encoding="utf-8").split("\n## ") if each.startswith("The Weaver\n")
    )
    stored, by_hand = re.findall(r"```python\n(.*?)```", part, re.DOTALL)[:2]

    scene = {"path": tmp_path, "seed": bytes(range(32)), "store_id": STORE, "key": B, "now_ms": NOW}
    exec(by_hand, scene)
    assert scene["ok"]
    exec(stored, scene)
    assert scene["report"].is_applied
    assert scene["colour"] == (b"red", True)
    assert [head.value for head in scene["everything"].heads] == [b"red", b"blue"]
    assert [event.key for event in scene["news"]] == [b"colour"]
