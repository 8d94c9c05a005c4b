"""`topics demo`: the main job from its beginning to its end."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest


def demo(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topics", "demo", *arguments],
        capture_output=True, text=True, timeout=50, check=False, cwd=tmp_path,
    )  # fmt: skip


@pytest.mark.rule("O1.4")
@pytest.mark.rule("O1.5")
@pytest.mark.rule("O1.6")
@pytest.mark.parametrize("options", [("--kills", "1"), pytest.param((), marks=pytest.mark.slow)])
def test_the_demo_proves_what_it_says_and_leaves_nothing(
    tmp_path: pathlib.Path, options: tuple[str, ...]
) -> None:
    done = demo(tmp_path, *options)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b[" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    for words in ("1,707 records", "USGS", "private server", "SIGKILL", "LOST seqs 1\u20137", "proofs hold"):
        assert words in " ".join(done.stdout.split())
    (home,) = [word.strip(".") for word in done.stdout.split() if "topics-demo-" in word]
    assert not pathlib.Path(home).exists()


def test_a_demo_that_is_ended_leaves_nothing(tmp_path: pathlib.Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "topics", "demo", "--kills", "50"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if "topics-demo-" in line:
            home = pathlib.Path(next(word for word in line.split() if "topics-demo-" in word).strip("."))
        if "Killed after" in line:
            break
    assert home.exists()
    child.terminate()
    _, err = child.communicate(timeout=20)

    assert (child.returncode, err) == (130, "")
    assert not home.exists()


@pytest.mark.slow
@pytest.mark.rule("O1.3")
@pytest.mark.rule("O1.6")
@pytest.mark.rule("O2.25")
def test_as_json_every_proof_is_a_row_and_a_directory_to_work_in_stays(tmp_path: pathlib.Path) -> None:
    done = demo(tmp_path, "--data", "mine", "--json", "--kills", "1")

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["holds"] is True
    assert {check["step"] for check in result["checks"]} == {"Load", "Read back", "Crash", "Work", "Floors"}
    assert all(check["holds"] for check in result["checks"])
    acked = [check for check in result["checks"] if "acked records intact" in check["what"]]
    assert len(acked) == 2
    assert all(int(check["found"].replace(",", "")) > 100 for check in acked)
    followed = [check for check in result["checks"] if "each once, in order" in check["what"]]
    assert len(followed) == 2
    assert result["directory"] == str(tmp_path / "mine")
    assert (tmp_path / "mine" / "FORMAT").exists()


@pytest.mark.slow
@pytest.mark.rule("O1.4")
def test_a_file_of_ones_own_and_a_directory_to_keep(tmp_path: pathlib.Path) -> None:
    rows = [{"n": i, "kind": ["a", "b", "c"][i % 3]} for i in range(50)]
    (tmp_path / "my data.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))

    done = demo(tmp_path, "my data.jsonl.gz", "--keep", "--kills", "1", "--json")

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {
        "step": "Read back",
        "what": "records tagged 'a'",
        "expected": "17",
        "found": "17",
        "holds": True,
    } in (result["checks"])
    ls = [sys.executable, "-m", "topics", "--data", result["directory"], "ls", "--json"]
    listed = subprocess.run(ls, capture_output=True, timeout=20, check=True).stdout
    assert {json.loads(line)["topic"] for line in listed.splitlines()} == {
        "my-data",
        "payments",
        "clicks",
        "chores",
        "chores-failed",
        "latest",
    }
    for path in sorted(pathlib.Path(result["directory"]).parent.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    pathlib.Path(result["directory"]).parent.rmdir()


def test_a_directory_to_work_in_is_new(tmp_path: pathlib.Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("theirs")
    refused = demo(tmp_path, "--data", "full")
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)
    assert demo(tmp_path, "--url", "http://127.0.0.1:1").returncode == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "holds no records"), (b"1\nhello\n", "line 2: is not JSON"), (None, "does not exist")],
)
def test_a_file_it_cannot_use_is_said_in_one_line(
    tmp_path: pathlib.Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "f.jsonl").write_bytes(content)
    done = demo(tmp_path, "f.jsonl")

    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
