"""The README's code runs: its Python blocks, and every line of its console blocks."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import attrs
import pytest

from tests.crash.serving import Served
from topics.log.reads.diff import Account

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found
    return found


def test_the_python_blocks_run_one_after_another_and_print_what_they_say(tmp_path: pathlib.Path) -> None:
    program = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 Hualien, Taiwan", "1 7 cap", "[7, 8, 9]", "2 eve"]


def test_the_calls_over_http_are_answered(tmp_path: pathlib.Path) -> None:
    lines = [shlex.split(line.removeprefix("$ ")) for line in blocks("console")[0].splitlines()]
    assert [line[:2] for line in lines] == [
        ["topics", "serve"],
        ["curl", "-H"],
        ["curl", "-H"],
        ["topics", "tail"],
    ]

    with Served(tmp_path) as served:
        for _, _, header, url, _, body in lines[1:3]:
            name, value = header.split(": ")
            connection = served.connect()
            connection.request("POST", url.removeprefix("localhost:4000"), body, {name: value})
            answer = connection.getresponse()

            assert answer.status in (200, 201), answer.read()
            page = json.loads(answer.read())
            connection.close()
    assert [(record["data"], record["$tag"]) for record in page["records"]] == [({"mag": 6.4}, "us")]


def test_whoever_does_all_of_it_in_one_directory_and_then_the_tutorial_is_not_in_his_own_way() -> None:
    """The server goes on, and a directory has one owner; a backup is not written over another."""
    (served,) = re.findall(r"topics serve --data (\S+)", blocks("console")[0])
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (backup,) = re.findall(r"topics backup (\S+)", blocks("console")[1])

    assert served not in re.findall(r'topics\.open\("(.*?)"\)', "".join(blocks("python")))
    assert f"topics backup {backup}\n" not in tutorial


@pytest.mark.rule("O2.1")
def test_every_line_of_the_console_block_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "topics" / "sample").mkdir(parents=True)
    shutil.copy(ROOT / "topics" / "sample" / "earthquakes.jsonl", tmp_path / "topics" / "sample")
    lines = [line.removeprefix("$ ") for line in blocks("console")[1].splitlines()]
    assert all(line.startswith("$ ") for line in blocks("console")[1].splitlines())
    installed = pathlib.Path(sys.executable).parent / "topics"
    program = "\n".join(f"set -e; topics() {{ '{installed}' \"$@\"; }}\n{line}" for line in lines)

    done = subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, timeout=40, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert "1,707 records stored" in done.stdout
    assert "99 records deleted" in done.stdout
    assert '{"to": "ann"}' in done.stdout
    assert "job 1 was acked by" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_files_it_names_are_there() -> None:
    for name in re.findall(r"`((?:ci|docs|topics)/[a-z./-]+)`", README):
        assert (ROOT / name).exists(), name


def test_the_sum_it_promises_names_every_field_of_the_account() -> None:
    (promise,) = re.findall(r"Ask for the account, and ([a-z_+\s]+) add up", README)

    assert [name.strip() for name in promise.split("+")] == [field.name for field in attrs.fields(Account)]
