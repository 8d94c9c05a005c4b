"""What a terminal gets and a pipe does not."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest

import topics

ESCAPE = b"\x1b["
Run = Callable[..., tuple[int, bytes]]


@pytest.fixture
def on_terminal() -> Run:
    """`python -m topics ARGUMENTS` with its three streams on a terminal of its own: exit code, and all it printed."""

    def run(*arguments: str, typed: bytes = b"", columns: int = 80, **environment: str) -> tuple[int, bytes]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        child = subprocess.Popen(
            [sys.executable, "-m", "topics", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm", **environment},
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, typed)
        printed = b""
        try:
            while chunk := os.read(ours, 65_536):
                printed += chunk
        except OSError:
            pass  # Linux says so when the other side is gone
        os.close(ours)
        return child.wait(20), printed

    return run


@pytest.mark.rule("O2.4")
@pytest.mark.rule("O2.26")
def test_put_has_a_bar_on_a_terminal_only(
    on_terminal: Run, call: Callable[..., Any], sample: pathlib.Path
) -> None:
    code, printed = on_terminal("put", "t", str(sample), columns=120)
    assert code == 0
    assert b"1,707 records" in printed
    assert ESCAPE in printed
    assert b"%" in printed

    piped = call("put", "t", str(sample))
    assert ESCAPE not in piped.out
    assert piped.err == ""


@pytest.mark.rule("O2.5")
@pytest.mark.rule("O2.26")
def test_tombstones_are_in_colour_unless_somebody_minds(on_terminal: Run, call: Callable[..., Any]) -> None:
    with topics.open("topics-data") as store:
        store.create("t", cap_records=1).put_many([{"data": "x" * 200}, {"data": "y" * 200}])

    for command in (("get",), ("tail", "--no-follow")):
        _, printed = on_terminal(*command, "t")
        assert b"\x1b[31m" in printed
        assert b"LOST seq 1 [cap] 1 record" in printed
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            _, plain = on_terminal(*command, "t", **environment)
            assert b"LOST seq 1" in plain
            assert ESCAPE not in plain
        assert ESCAPE not in call(*command, "t").out


def test_a_line_is_cut_at_the_edge_of_a_terminal_and_only_there(
    on_terminal: Run, call: Callable[..., Any]
) -> None:
    with topics.open("topics-data") as store:
        store.topic("t").put("x" * 200)

    _, printed = on_terminal("get", "t", NO_COLOR="1")
    (line,) = printed.decode().splitlines()
    assert len(line) == 80
    assert line.endswith("\u2026")
    assert b"x" * 200 in on_terminal("get", "t", "--full")[1]
    assert b"x" * 200 in call("get", "t").out


@pytest.mark.rule("O2.26")
@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_of_ls_fits_the_terminal(on_terminal: Run, columns: int) -> None:
    with topics.open("topics-data") as store:
        store.topic("a-topic-with-quite-a-long-name").put(1)

    _, printed = on_terminal("ls", columns=columns, NO_COLOR="1")
    assert all(len(line) <= columns for line in printed.decode().splitlines())


def test_a_row_of_a_table_is_one_line_in_a_pipe(call: Callable[..., Any]) -> None:
    name = "n" * 200
    assert call("create", name).code == 0
    (row,) = [line for line in call("ls").text.splitlines() if name in line]

    assert row.split()[1:] == ["log", "disk", "0", "0", "B", "1", "0"]


def test_rm_asks_on_a_terminal(on_terminal: Run) -> None:
    with topics.open("topics-data") as store:
        store.topic("t").put(1)

    code, printed = on_terminal("rm", "t", typed=b"n\n")
    assert (code, b"delete 't' with 1 record?" in printed) == (1, True)
    code, _ = on_terminal("rm", "t", typed=b"y\n")
    assert code == 0
    with topics.open("topics-data") as store:
        assert store.list() == []


def test_a_delete_of_all_records_asks_on_a_terminal(on_terminal: Run) -> None:
    with topics.open("topics-data") as store:
        store.topic("t").put(1)

    code, printed = on_terminal("delete", "t", "--before", "9", typed=b"n\n")
    assert (code, b"delete every record of 't', 1 up to its head, 1?" in printed) == (1, True)
    code, printed = on_terminal("delete", "t", "--before", "9", typed=b"y\n")
    assert (code, b"t: 1 record deleted, none left" in printed) == (0, True)
