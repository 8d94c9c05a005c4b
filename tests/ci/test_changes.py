"""What users are told of a version: each fragment counts, and becomes a part of the changelog."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from topics.kernel.version import __version__

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "changes"
FRAGMENTS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TYPES = {one["directory"]: one["name"] for one in PROJECT["tool"]["towncrier"]["type"]}
NAME = re.compile(rf"\d+(\.[a-z0-9]+)?\.({'|'.join(TYPES)})\.md")


def test_each_fragment_has_a_name_that_counts_and_says_something():
    assert [path.name for path in FRAGMENTS if not NAME.fullmatch(path.name)] == []
    assert [path.name for path in FRAGMENTS if not path.read_text().strip()] == []


@pytest.mark.rule("O7.3")
def test_a_release_makes_a_section_of_all_of_them(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    copied = tmp_path / "docs" / "changes"
    shutil.copytree(FOLDER, copied)
    for kind in TYPES:  # there may be none of a kind yet, right behind a release
        (copied / f"99.planted.{kind}.md").write_text(f"What is planted as a {kind} is told.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "9.9.9",
        "--date",
        "2030-01-02",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    changes = (tmp_path / "CHANGELOG.md").read_text()

    assert changes.index("## 9.9.9, 2030-01-02") < changes.index("## 0.1.0")
    for kind in TYPES.values():
        assert kind in changes
    told = re.sub(r"\s+", " ", changes)
    for kind in TYPES:
        assert f"What is planted as a {kind} is told." in told
    lost = [path.name for path in FRAGMENTS if re.sub(r"\s+", " ", path.read_text()).strip()[:60] not in told]
    assert lost == []


@pytest.mark.rule("O7.3")
def test_the_pages_for_who_takes_part_are_there_and_name_what_is_there():
    for page in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/versions.md", "docs/install.md"):
        text = (ROOT / page).read_text()
        named = re.findall(r"`((?:docs|ci|tests|topics|fuzz)/[\w./-]+)`", text)
        assert [name for name in named if not (ROOT / name).exists()] == [], page


def test_the_version_is_told_once_and_the_same():
    assert PROJECT["project"]["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
