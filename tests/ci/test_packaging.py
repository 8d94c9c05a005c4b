"""What is published: its name, its licence, and the words that tell somebody to install it."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from email.parser import BytesParser

import pytest
from flit_core import buildapi

from tests.server.process import Process

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HINTS = re.compile(r"\btopics\[(?:spark|s3|otel|dev)|pip install '?topics(?!-log)\b")
EXTRAS = re.compile(r"topics-log\[([a-z0-9-]+)\]")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of what is published."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "topics", checkout / "topics", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(checkout)
        name = buildapi.build_wheel(str(checkout))
    with zipfile.ZipFile(checkout / name) as archive:
        yield archive


def test_the_distribution_is_topics_log_and_what_is_imported_and_typed_is_topics(wheel):
    names = wheel.namelist()
    metadata = BytesParser().parsebytes(wheel.read(next(n for n in names if n.endswith("/METADATA"))))
    scripts = wheel.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()

    assert metadata["Name"] == "topics-log"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "topics/__init__.py" in names
    assert "topics/py.typed" in names
    files = [path for path in (ROOT / "topics" / "server" / "app" / "dashboard").rglob("*") if path.is_file()]
    assert len(files) > 15
    assert {path.relative_to(ROOT).as_posix() for path in files} <= set(names)
    assert any(name.endswith("dashboard/uplot/LICENSE") and ".dist-info/" in name for name in names)
    assert "topics=topics.cli.main:main" in scripts
    assert any(re.fullmatch(r"topics_log-[0-9.]+\.dist-info/licenses/LICENSE", name) for name in names)


def test_the_wheel_has_all_that_a_server_reads_and_shows(wheel, tmp_path):
    """`ci/smoke` in short: no installation, but the wheel's own files in the place of the checkout's."""
    place = tmp_path / "installed"
    wheel.extractall(place)
    with Process("--port", 0, "--data", "data", cwd=tmp_path, PYTHONPATH=str(place)) as server:
        server.ready()
        assert server.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})[0] == 201
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/") as page:
            assert b"<html" in page.read()
    code = (
        "import topics; print(topics.__file__);"
        "print(topics.open('data').topic('t').read(from_seq=0).records[0].data)"
    )
    env = {"PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [str(place / "topics" / "__init__.py"), "1"]
    assert (place / "topics" / "sample" / "earthquakes.jsonl").exists()
    assert (place / "topics" / "cli" / "bench" / "report.html").exists()


def test_the_source_distribution_has_the_pages_and_what_makes_a_site_of_them(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        name = buildapi.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        held = {member.partition("/")[2] for member in archive.getnames()}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file()}

    assert pages <= held
    assert {
        "ci/docs",
        "ci/env",
        "ci/lock.txt",
        "ci/site/conf.py",
        "pyproject.toml",
        "CONTRIBUTING.md",
    } <= held
    assert not {path for path in held if "__pycache__" in path}


def test_every_hint_names_the_distribution_that_is_ours():
    wrong, extras = [], set()
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "topics").rglob("*.py")]
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            extras.update(EXTRAS.findall(line))
            if HINTS.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert not wrong
    assert {"spark", "s3"} <= extras <= there.keys()
