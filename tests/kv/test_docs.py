"""The database's part of docs/replication.md: its Python runs as it stands there."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.support.kv_nodes import Node, state
from topics.codec.cell import decode_cell, encode_cell

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "replication.md"


def blocks():
    text = PAGE.read_text(encoding="utf-8").split("## The key-value database")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, *rest = blocks()
    exec(first, {"seed": bytes(range(32))})
    assert capsys.readouterr().out == "red {'name': 'Ada'} [True, 1, 'new'] 10\n"

    here, there = Node(1), Node(2)
    for node, colour in ((here, "red"), (there, "blue")):
        node.db.set("colour", colour)
    here.pull(there)
    names = {"db": here.db, "other": there.db, "encode_cell": encode_cell, "decode_cell": decode_cell}
    for block in rest:
        exec(block, names)
    assert capsys.readouterr().out == "somebody else wrote blue\n"
    assert names["accepted"] == 1
    assert state(here.db) == state(there.db)


@pytest.mark.rule("R3.3.4", "R11.21")
def test_the_table_of_conflicts_has_a_row_for_each_type():
    table = PAGE.read_text(encoding="utf-8").split("### What happens to concurrent edits")[1].split("###")[0]
    for kind in ("value", "list", "hash", "set", "sorted set", "counter", "two types"):
        assert f"\n| {kind} |" in table
