"""The bootstrap says in one line what is missing, leaves alone what is not its own, and ends at once when all is there.

What it installs is not tried here, for that needs an index: a fresh clone tries it wherever `ci/check` runs.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = (
    "cat",
    "cksum",
    "dirname",
    "env",
    "grep",
    "id",
    "mkdir",
    "rm",
    "sed",
    "sh",
)  # all it needs, and no apt

# An interpreter that works, but has neither a way to make environments nor pip.
BARE_PYTHON = """#!/bin/sh
case "$*" in *ensurepip*|*pip*|*"-m venv"*) exit 1 ;; esac
exec {python} "$@"
"""


@pytest.fixture
def bootstrap(tmp_path):
    """Run a copy of ci/env in a checkout of its own, with nothing of this machine but a few tools."""
    checkout, tools = tmp_path / "a checkout", tmp_path / "bin"
    (checkout / "ci").mkdir(parents=True)
    for name in ("ci/env", "ci/lock.txt", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    bare = tmp_path / "bare-python"
    bare.write_text(BARE_PYTHON.format(python=sys.executable))
    bare.chmod(0o755)

    def run(*arguments: str, **environment: str) -> tuple[int, list[str]]:
        command = [str(checkout / "ci" / "env"), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"PATH": str(tools), **environment}
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return run


def test_no_python_is_told_in_one_line(bootstrap, tmp_path):
    code, lines = bootstrap(PYTHON=str(tmp_path / "no-such-python"))

    assert code == 1
    assert len(lines) == 1
    assert "needs Python 3.11 or newer: install it" in lines[0]


def test_python_without_ensurepip_and_pip_is_told_in_one_line(bootstrap, tmp_path):
    code, lines = bootstrap(PYTHON=str(tmp_path / "bare-python"))

    assert code == 1
    assert len(lines) == 1
    assert "has neither ensurepip nor pip: install pip for it" in lines[0]


def test_folder_that_is_no_environment_is_left_alone(bootstrap, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("mine")

    code, lines = bootstrap(PYTHON=str(tmp_path / "bare-python"), TOPICS_VENV=str(precious))

    assert code == 1
    assert len(lines) == 1
    assert "is no virtual environment" in lines[0]
    assert (precious / "letter").read_text() == "mine"


def test_unknown_argument_is_refused(bootstrap):
    assert bootstrap("--everything") == (1, ["ci/env: usage: ci/env [--dev]"])


def is_of_this_checkout(environment):
    """The stamp names the checkout that an environment was made for; `ci/env` of another one would make it anew."""
    stamp = environment / "topics-stamp"
    return stamp.exists() and f" {ROOT} " in stamp.read_text()


@pytest.mark.skipif(
    not is_of_this_checkout(pathlib.Path(sys.prefix)),
    reason="this environment is not of ci/env, or of another checkout",
)
def test_nothing_is_done_where_everything_is_there():
    before = (pathlib.Path(sys.prefix) / "topics-stamp").stat().st_mtime_ns
    environment = {**os.environ, "TOPICS_VENV": sys.prefix}
    environment.pop("PYTHON", None)
    for arguments in ([], ["--dev"]):
        command = [str(ROOT / "ci" / "env"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    assert (pathlib.Path(sys.prefix) / "topics-stamp").stat().st_mtime_ns == before
