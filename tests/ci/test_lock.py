"""The lock is whole: each package pinned with a hash, the four sections there, and nobody's index named."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCK = (ROOT / "ci" / "lock.txt").read_text()
SECTIONS = dict(re.findall(r"^# --- (\w+)\n((?:(?!# --- ).*\n)*)", LOCK, flags=re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[<>=!~ \[;]", requirement)[0].lower().replace("_", "-") for requirement in requirements
    }


def pinned(section: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+)==", SECTIONS[section], flags=re.MULTILINE))


def test_sections_are_the_ones_the_bootstrap_reads():
    assert list(SECTIONS) == ["bootstrap", "runtime", "dev", "source"]


@pytest.mark.parametrize("section", ["bootstrap", "runtime", "dev", "source"])
def test_each_package_is_pinned_and_hashed(section):
    for block in re.findall(r"^[a-z0-9].*(?:\n .*)*", SECTIONS[section], flags=re.MULTILINE):
        assert re.match(r"[a-z0-9.-]+==[^ ]+ ", block), block
        assert "--hash=sha256:" in block, block


def test_no_address_stands_in_the_lock():
    assert "://" not in LOCK
    assert "index" not in LOCK


def test_lock_covers_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert names(project["project"]["dependencies"]) <= pinned("runtime")
    assert names(project["build-system"]["requires"]) <= pinned("runtime")
    wanted = names(project["project"]["optional-dependencies"]["dev"])
    assert wanted <= pinned("dev") | pinned("runtime") | pinned("source")


def test_runtime_brings_no_test_tool():
    assert not pinned("runtime") & {"pytest", "hypothesis", "mypy", "ruff", "import-linter"}


def test_only_what_has_no_wheel_is_built():
    assert pinned("source") == {"pyspark"}
    assert "setuptools" in pinned("dev")  # by which it is built, instead of one that nobody pinned
