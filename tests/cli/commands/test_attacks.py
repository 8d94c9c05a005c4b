"""What an attacker of the command line found, each mended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from topics.cli.io.terminal import console

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
    monkeypatch.setenv("COLUMNS", columns)
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        assert console(terminal).width > 0
    os.close(ours)


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_is_finite(call: Call, rate: str) -> None:
    assert "finite" in refused(call("put", "t", "--rate", rate, stdin=b"1\n"))


def test_a_rate_next_to_nothing_waits_until_it_is_stopped(spawn: Spawn, tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'"first"\n"second"\n')
    child = spawn("put", "t", "t.jsonl", "--rate", "1e-300", stderr=subprocess.PIPE, stdout=subprocess.PIPE)

    def lasts(seconds: float) -> None:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=seconds)

    while not any(b'"first"' in log.read_bytes() for log in tmp_path.rglob("wal-*.log")):
        lasts(0.05)  # a busy machine takes its time to begin; a put that ended without a record ends the test
    lasts(1)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert b"1 record stored" in out
    assert child.returncode == 130


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("tail", ["w", ".5w"])
def test_durations_of_hundreds_of_digits(call: Call, digits: int, tail: str) -> None:
    call("put", "t", stdin=b"1\n")
    long = "9" * digits + tail
    assert "too large" in refused(call("get", "t", "--since", long))
    assert "too large" in refused(call("configure", "t", f"ttl_ms={long}"))


def test_config_values_that_are_too_deep_or_no_text(call: Call) -> None:
    call("put", "t", stdin=b"1\n")
    assert "too deep" in refused(call("configure", "t", "x=" + "[" * 100_000))
    assert "UTF-8" in refused(call("configure", "t", "\udcff=\udcfe"))


def test_names_that_are_no_text_are_spelled_out_in_json(call: Call, tmp_path: pathlib.Path) -> None:
    shown = call("--data", "\udcff", "config", "show", "--json")
    assert shown.code == 0
    assert shown.lines[0]["data"]["value"] == "\\udcff"
    (tmp_path / "\udcff.jsonl").write_bytes(b"x\n")
    answer = call("put", "t", "\udcff.jsonl", "--json")
    assert answer.code == 1
    assert "\\udcff.jsonl line 1" in answer.lines[0]["error"]


@pytest.mark.parametrize("content", ["x = " + "[" * 100_000, "wal_shards = " + "9" * 5000])
def test_a_settings_file_without_measure(call: Call, tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / "topics.toml").write_text(content)
    assert refused(call("config", "show")).startswith("topics: topics.toml is n")


@pytest.mark.parametrize("digits", ["\u0663", "1_0", "+1", ""])
def test_numbers_in_the_environment_are_ascii_digits(
    call: Call, monkeypatch: pytest.MonkeyPatch, digits: str
) -> None:
    monkeypatch.setenv("TOPICS_WAL_SHARDS", digits)
    assert "is not allowed" in refused(call("config", "show"))


def test_an_empty_variable_names_no_settings_file(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_SETTINGS", "")
    assert call("config", "show").code == 0


def test_idempotency_keys_are_refused_before_anything_is_made(call: Call, tmp_path: pathlib.Path) -> None:
    assert "is empty" in refused(call("put", "t", "--idempotency-key", "", stdin=b"1\n"))
    refusal = refused(call("put", "t", "--idempotency-key", "x" * 256, stdin=b"1\n"))
    assert "at most 246 characters" in refusal
    assert refusal.endswith("not 256")
    assert not list(tmp_path.iterdir())
    assert call("put", "t", "--idempotency-key", "x" * 246, stdin=b"1\n").code == 0


def test_a_failed_put_says_so_in_one_line(call: Call) -> None:
    call("put", "t", stdin=b"1\n")
    assert refused(call("put", "t", "--node", "x" * 70_000, stdin=b"1\n")).endswith("; nothing is stored")


def test_blank_lines_before_the_header_of_a_csv(call: Call) -> None:
    assert call("put", "t", "-", "--format", "csv", stdin=b"\n\na,b\n1,2\n").code == 0
    assert call("get", "t", "--json").lines[0]["data"] == {"a": "1", "b": "2"}
    assert "line 2 is the header" in refused(
        call("put", "t", "--format", "csv", stdin=b"\na,a\n1,2\n"), code=1
    ).replace(": ", " ")


def test_a_missing_choice_is_told_in_words(call: Call) -> None:
    assert "\\" not in refused(call("completion"))


def test_hardly_anything_is_imported_before_ctrl_c_is_looked_after() -> None:
    """Until then it is a traceback. The interpreter's own beginning nobody can help."""
    script = "import sys; before = set(sys.modules); import topics.cli.core.early; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"typing", "re", "contextlib", "threading", "click"} & set(done.stdout.split())


def test_ctrl_c_while_modules_are_imported_ends_without_a_word() -> None:
    script = (
        "import os, signal, sys\n"
        "from topics.cli.core.early import Guard\n"
        "with Guard():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    sys.exit('still here')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
