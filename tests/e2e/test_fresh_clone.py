"""The README's two commands from a fresh clone, in an environment of its own. Needs a package index."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def clone(tmp_path: pathlib.Path) -> pathlib.Path:
    """What is committed here, and nothing else; no HOME to lean on."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    (tmp_path / "home").mkdir()
    return tmp_path / "clone"


def run(clone: pathlib.Path, *command: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("TOPICS_", "PYTHON"))
    }
    done = subprocess.run(
        command, cwd=clone, env=environment | {"HOME": str(clone.parent / "home")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.rule("O1.1")
def test_one_command_installs_and_runs_the_main_job(clone: pathlib.Path) -> None:
    assert "proofs hold" in run(clone, "ci/demo")


@pytest.mark.rule("O1.2")
def test_one_command_installs_what_the_tests_need(clone: pathlib.Path) -> None:
    """One lane of the gate, then tests by the environment it made: the whole gate is what runs around this one."""
    run(clone, "ci/check", "static")
    assert " passed" in run(clone, ".venv/bin/python", "-m", "pytest", "-q", "tests/kernel", "tests/codec")
