"""Every bug of ci/mutants.toml can be planted still, and `ci/mutants` is red for one that lives on, or seems to die."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = "kernel codec log engine host calls lattice kv weaver embed server".split()

SUMS = "def plus(a, b):\n    return a + b\n"
GOOD = "from topics.sums import plus\n\n\ndef test_plus():\n    assert plus(2, 3) == 5\n"
BLIND = "from topics.sums import plus\n\n\ndef test_plus():\n    assert plus(2, 2) == 4\n"
RED = "def test_red():\n    assert 1 == 2\n"


def minus(**changed):
    """The table of one mutant: + becomes *."""
    table = {
        "name": "times",
        "breaks": "A sum is a product.",
        "path": "topics/sums.py",
        "find": "a + b",
        "replace": "a * b",
        "by": ["tests/test_sums.py"],
    }
    fields = [f"{key} = {value!r}" for key, value in (table | changed).items() if value is not None]
    return "\n".join(["[[mutant]]", *fields, ""])


@pytest.fixture
def house(tmp_path):
    """A checkout with the real script, one module, and a test of it that is good."""
    for name in ("ci", "topics", "tests"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "ci" / "mutants", tmp_path / "ci")
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "topics" / "__init__.py").write_text("")
    (tmp_path / "topics" / "pytest_plugin.py").touch()  # the environment's pytest loads it
    (tmp_path / "topics" / "sums.py").write_text(SUMS)
    (tmp_path / "tests" / "test_sums.py").write_text(GOOD)
    (tmp_path / "ci" / "mutants.toml").write_text(minus())
    return tmp_path


def mutants(root, *arguments):
    environment = {**os.environ, "TOPICS_VENV": sys.prefix}
    done = subprocess.run(
        [sys.executable, str(root / "ci" / "mutants"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_bug_can_be_planted_and_its_tests_are_there():
    code, printed = mutants(ROOT, "--check")

    assert code == 0, printed


def test_there_are_enough_of_them_in_every_layer():
    found = tomllib.loads((ROOT / "ci" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]

    assert len(found) >= 25
    assert {mutant["path"].split("/")[1] for mutant in found} >= set(LAYERS)


def test_a_bug_that_a_test_sees_is_killed_and_the_code_is_as_it_was(house):
    code, printed = mutants(house)

    assert code == 0, printed
    assert "killed    times" in printed
    assert "tests/test_sums.py::test_plus" in printed
    assert "1 mutants: 1 killed, 0 not" in printed
    assert (house / "topics" / "sums.py").read_text() == SUMS


@pytest.mark.parametrize(
    ("test", "word"),
    [
        (BLIND, "SURVIVED  times"),
        (RED, "is red without a mutant"),
        ("import nothing_such\n", "BROKEN    times"),
    ],
    ids=["blind", "red", "broken"],
)
def test_what_no_test_sees_or_only_a_broken_one_is_red(house, test, word):
    (house / "tests" / "test_sums.py").write_text(test)

    code, printed = mutants(house)

    assert code == 1
    assert word in printed
    assert "not killed: times" in printed


@pytest.mark.parametrize(
    ("listed", "word"),
    [
        (minus(find="a - b"), "its text stands 0 times in topics/sums.py, not once"),
        (minus(find="a"), "its text stands 2 times"),
        (minus(replace="a +"), "invalid syntax"),
        (minus(replace="a + b"), "it changes nothing"),
        (minus(path="topics/gone.py"), "topics/gone.py"),
        (minus(by=[]), "it names no test"),
        (minus(by=["tests/test_gone.py"]), "tests/test_gone.py is not there"),
        (minus(by=["tests/test_sums.py::test_gone"]), "tests/test_sums.py::test_gone is not there"),
        (minus(breaks=None), "its keys are"),
        (minus() + minus(), "there are two of that name"),
        ("", "there is no mutant"),
    ],
)
def test_a_list_that_does_not_fit_the_code_is_refused_before_anything_runs(house, listed, word):
    (house / "ci" / "mutants.toml").write_text(listed)

    code, printed = mutants(house)

    assert code == 2
    assert word in printed


def test_one_is_run_by_its_name(house):
    blind = minus(name="blind", by=["tests/test_blind.py"])
    (house / "tests" / "test_blind.py").write_text(BLIND)
    (house / "ci" / "mutants.toml").write_text(minus() + blind)

    assert mutants(house, "times")[0] == 0
    assert mutants(house, "blind")[0] == 1
    assert mutants(house, "nobody")[0] == 2
