"""Completion for the shell: what may stand at the cursor, by click's protocol and in the shells themselves."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from tests.cli.conftest import Call
from topics.cli.completion import lookup
from topics.cli.demo.private_server import PrivateServer

pytestmark = pytest.mark.rule("O2.17")

Complete = Callable[[str], list[str]]


def fill(store: topics.Store | topics.Client) -> None:
    """One of everything that has a name."""
    for name in ("quakes", "quick:a"):
        store.create(name)
    store.create("jobs", type="queue")
    for name in ("billing", "audit"):
        store.topic("quakes").consumer(name).seek()
    store.topic("jobs").consumer("reports").seek()
    store.put_router("copies", "quakes", "copied")
    store.put_schedule("nightly", "quakes", 1, every_ms=3_600_000)


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    with topics.open(tmp_path / "topics-data") as store:
        fill(store)
    return tmp_path / "topics-data"


@pytest.fixture
def complete(call: Call, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash is told of a line."""

    def told(line: str) -> list[str]:
        monkeypatch.setenv("_TOPICS_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_WORD", re.split("[ :=]", line)[-1])
        answer = call()

        assert (answer.code, answer.err) == (0, "")
        return answer.text.split()

    return told


CASES = [
    ("topics get qu", ["quakes", "quick:a"]),
    ("topics get quick:", ["a"]),
    ("topics tail quakes ", ["copied", "jobs", "quick:a"]),
    ("topics queue peek ", ["jobs"]),
    ("topics work ", ["jobs"]),
    ("topics consumer show quakes ", ["audit", "billing"]),
    ("topics consumer rm quakes billing ", ["audit"]),
    ("topics tail quakes --consumer ", ["audit", "billing"]),
    ("topics tail --consumer ", ["audit", "billing", "reports"]),
    ("topics tail jobs --json --consumer ", ["reports"]),
    ("topics tail jobs quick:a --consumer r", ["reports"]),
    ("topics router rm ", ["copies"]),
    ("topics router ls --source qu", ["quakes", "quick:a"]),
    ("topics schedule show n", ["nightly"]),
    ("topics consumer show nothing ", []),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_names_of_what_is_there(
    data: pathlib.Path, complete: Complete, line: str, expected: list[str]
) -> None:
    """In a directory, and nothing in it changes: no file is written, no lock is left."""

    def files() -> dict[pathlib.Path, tuple[int, bytes]]:
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()
        }

    before = files()

    assert [f"plain,{name}" for name in expected] == complete(line)
    assert before == files()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    home = tmp_path_factory.mktemp("completion")
    with PrivateServer(home / "data", home) as running:
        with topics.Client(running.url) as client:
            fill(client)
        yield running


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_names_at_a_server(
    filled: PrivateServer, complete: Complete, monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    """By its URL, from the line or the environment; and by the directory that it owns."""
    names = [f"plain,{name}" for name in expected]

    def told(line: str) -> list[str]:
        """On a machine that is busy with other tests, a second may be too short."""
        return next((found for _ in range(5) if (found := complete(line))), [])

    assert names == told(line.replace("topics ", f"topics --data {filled.data} ", 1))
    assert names == told(line.replace("topics ", f"topics --url {filled.url} ", 1))
    monkeypatch.setenv("TOPICS_URL", filled.url)
    assert names == told(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topics create new dura", ["durability=", "durable="]),
        ("topics create new durability=", ["ephemeral", "memory", "disk", "fsync"]),
        ("topics create new --exist-ok type=q", ["queue"]),
        ("topics configure quakes leases_durable=", ["true", "false"]),
        ("topics ls --set log_l", ["log_level="]),
        ("topics ls --set log_level=w", ["warning"]),
        ("topics --set access_log=", ["true", "false"]),
        ("topics --set api_k", ["api_key_file=", "api_keys_file="]),
        ("topics completion ", ["bash", "zsh", "fish"]),
        ("topics scheduled", []),
        ("topics sche", ["schedule"]),
        ("topics get --fu", ["--full"]),
        ("topics put quakes --format j", ["jsonl", "json"]),
    ],
)
def test_settings_fields_and_their_values(complete: Complete, line: str, expected: list[str]) -> None:
    """Behind `=` only what stands there, for to bash that is another word."""
    assert [f"plain,{name}" for name in expected] == complete(line)


def test_paths_are_the_shells(complete: Complete) -> None:
    assert complete("topics put quakes some") == ["file,some"]
    assert complete("topics --data some") == ["dir,some"]


@pytest.mark.parametrize(
    "line",
    [
        "topics --data nowhere get ",
        "topics --data a-file get ",
        "topics --data . get ",
        "topics --url http://127.0.0.1:9 get ",
        "topics --url nonsense get ",
        "topics --set nonsense=1 get ",
        "topics --set nonsense get ",
        "topics --settings nowhere get ",
        "topics --data x --url http://127.0.0.1:9 get ",
        "topics get 'unclosed ",
    ],
)
def test_what_goes_wrong_says_nothing(complete: Complete, line: str) -> None:
    """Neither an error nor a name, and nothing is made."""
    pathlib.Path("a-file").write_text("no data directory")

    assert complete(line) == []
    assert [path.name for path in pathlib.Path().iterdir()] == ["a-file"]


def test_a_damaged_directory_says_nothing_or_what_is_left(data: pathlib.Path, complete: Complete) -> None:
    for path in data.rglob("*.log"):
        path.write_bytes(b"no log")

    assert complete("topics get ") == []


def test_a_directory_that_somebody_has_open(data: pathlib.Path, complete: Complete) -> None:
    """He is not asked, and not in the way; nor is he disturbed."""
    with topics.open(data) as store:
        assert complete("topics get quick:") == ["plain,a"]
        store.topic("quakes").put(1)


def test_a_url_whose_server_has_ended_is_not_asked(data: pathlib.Path, complete: Complete) -> None:
    """LOCK still names it, and somebody else may listen there by now."""
    from topics.host.directory.owner import RECORD_SIZE, OwnerRecord

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        owner = OwnerRecord(pid=ended.pid, boot_id=None, device=0, inode=0, url=url)
        (data / "LOCK").write_bytes(owner.encode().ljust(RECORD_SIZE))

        assert complete("topics queue peek ") == ["plain,jobs"]
        with pytest.raises(TimeoutError):
            other.accept()


def test_a_server_that_does_not_answer_is_not_waited_for(complete: Complete) -> None:
    """For a second, however long it would take; what is imported before does not count."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()

        assert complete(f"topics --url http://127.0.0.1:{silent.getsockname()[1]} get ") == []
        assert lookup.LOOK_S <= time.monotonic() - started < 10


def test_a_variable_that_is_no_setting_says_nothing(
    complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_NONSENSE", "1")

    assert complete("topics get ") == []


# The shells themselves.


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def environment(data: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    """`topics` on the path, and a home of its own."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    command = bin_ / "topics"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m topics "$@"\n')
    command.chmod(0o755)
    root = pathlib.Path(topics.__file__).parents[1]
    return {
        "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(root), "TERM": "dumb",
        "LC_ALL": "C.UTF-8", "TOPICS_DATA_DIR": str(data),
    }  # fmt: skip


def run(arguments: list[str], environment: dict[str, str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=50, check=False, **how
    )


@pytest.mark.parametrize(
    ("line", "word", "replies", "spaced"),
    [
        ("topics get qu", "qu", ["quakes", "quick:a"], True),
        ("topics get quick:", "", ["a"], True),
        ('topics get "quick:', "quick:", ["quick:a"], True),
        ("topics get 'quick:", "quick:", ["quick:a"], True),
        ("topics get quick\\:", "quick\\:", ["quick:a"], True),
        ("topics consumer show quakes b", "b", ["billing"], True),
        ("topics create new durability=f", "f", ["fsync"], True),
        ('topics create new "durability=f', "durability=f", ["durability=fsync"], True),
        ("topics create new durabil", "durabil", ["durability="], False),
    ],
)
def test_bash(environment: dict[str, str], line: str, word: str, replies: list[str], spaced: bool) -> None:
    """Its function, called as readline calls it: with the word that a reply replaces, behind an open quote."""
    script = f"""
        source <(topics completion bash)
        compopt() {{ echo "compopt $*"; }}
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        $(complete -p topics | sed 's/.*-F \\([^ ]*\\) .*/\\1/') topics {shlex.quote(word)}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = run([shell("bash"), "--norc", "-c", script], environment)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ([] if spaced else ["compopt -o nospace"]) + replies


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("topics get qu", ["[]", "quakes", "quick:a"]),
        ("topics consumer show quakes b", ["[]", "billing"]),
        ("topics create new durability=f", ["[]", "durability=fsync"]),
        ("topics create new durabil", ["[-S ]", "durability="]),
    ],
)
def test_zsh(environment: dict[str, str], line: str, replies: list[str]) -> None:
    """Its function, with the words as zle hands them over. In brackets, what keeps a blank away."""
    words = line.split(" ")
    script = f"""
        compdef() {{ function_=$1 }}
        compadd() {{ local at=$@[(i)--]; (( at < $# )) && print -lr -- "[${{(j: :)@[4,at-1]}}]" $@[at+1,-1] }}
        eval "$(topics completion zsh)"
        words=({" ".join(map(repr, words))}) CURRENT={len(words)}
        $function_
    """
    done = run([shell("zsh"), "-f", "-c", script], environment)

    assert (done.stderr, done.stdout.splitlines()) == ("", replies)


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("topics get qu", ["quakes", "quick:a"]),
        ("topics consumer show quakes b", ["billing"]),
        ("topics create new durability=f", ["durability=fsync"]),
    ],
)
def test_fish(environment: dict[str, str], line: str, replies: list[str]) -> None:
    """By `complete -C`, which completes a line as Tab does."""
    script = f"topics completion fish | source; complete -C {line!r}"
    done = run([shell("fish"), "--no-config", "-c", script], environment)

    assert [reply.split("\t")[0] for reply in done.stdout.splitlines()] == replies
