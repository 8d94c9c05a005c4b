"""What an attacker of the command line found, each mended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def refused(answer: Any, code: int = 2) -> str:
    """The one line of a refusal that is no fault of ours."""
    (line,) = answer.err.splitlines()
    assert "fault of topics" not in line
    assert answer.code == code
    return str(line)


@pytest.mark.parametrize("arguments", [("ls",), ("state", "t"), ("config", "show")])
def test_a_table_whose_reader_went_away_is_no_error(
    call: Call, spawn: Spawn, arguments: tuple[str, ...]
) -> None:
    call("put", "t", stdin=b"1\n")
    ours, theirs = os.pipe()
    os.close(ours)
    child = spawn(*arguments, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert child.communicate(timeout=30)[1] == b""
    assert child.returncode == 0


@pytest.mark.parametrize("columns", ["0", "00", "\u00b2", "-1"])
def test_columns_that_are_no_width_count_as_unset(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from topics.cli import terminal

    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(terminal, "is_terminal", lambda _: True)
    assert terminal.console().width > 0
