"""`topics/spark/main.py`, what spark-submit runs, and what a machine needs to be an executor, without a JVM."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import topics
from topics.audit.scan.rows import WalTask
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import CannotOpen
from topics.spark import main as script
from topics.spark.audits import refuse_other_files
from topics.spark.executor import Scanning
from topics.spark.session import is_submitted

PACKAGE = Path(topics.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "spark.md").read_text(encoding="utf-8")
IMPORTED = """
import sys
sys.path[:0] = sys.argv[1:3]
import {module}, topics, zstandard
roots = {{name.split(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)
print(topics.__file__)
print(sorted(roots))
"""
RUN = """
import runpy, sys
folder = sys.path[0] = sys.argv[1]  # as if it had been started as a script
sys.argv = ["main.py", "--help"]
try:
    runpy.run_path(folder + "/main.py", run_name="__main__")
except SystemExit as ended:
    print(ended.code, folder in sys.path)
"""
OPTIONAL = {"click", "rich", "pygments"}  # httpx takes them along where they are
WITHIN = {"attr": "attrs", "pyspark": "pyspark", "py4j": "pyspark", "idna": "httpx"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The package as the page ships it."""
    return shutil.make_archive(
        str(tmp_path_factory.mktemp("zip") / "topics"), "zip", PACKAGE.parent, PACKAGE.name
    )


def wheels():
    """Those that the page says a machine needs."""
    line = re.search(r"^\$ pip install (.*)  # on each machine", PAGE, re.MULTILINE)
    assert line is not None
    return set(line[1].split())


@pytest.mark.rule("P2.1")
@pytest.mark.parametrize("module", ["topics.spark.executor", "topics.spark.datasource"])
def test_what_runs_on_executors_is_in_the_zip_and_needs_the_packages_of_the_page(archive, module):
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTED.format(module=module), archive, packages],
        capture_output=True, text=True, check=True, cwd=Path(archive).parent, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip

    where, roots = done.stdout.splitlines()
    assert where.startswith(archive)
    named = {name for name in ast.literal_eval(roots) if not name.startswith("_") and "cython" not in name}
    needed = {WITHIN.get(name, name) for name in named} - OPTIONAL - {"topics", "typing_extensions"}
    assert needed <= {*wheels(), "pyspark"}
    assert module != "topics.spark.executor" or needed == wheels() - {"pandas", "httpx"}


@pytest.mark.rule("P4.9")
def test_the_script_has_the_commands_and_options_of_the_command_line(capsys, tmp_path):
    assert script.main(["validate", "--help"]) == 0
    said = capsys.readouterr().out
    for option in ("--out", "--acks", "--cold-dir", "--master", "--conf", "--json", "--data"):
        assert option in said

    assert script.main(["validate", str(tmp_path / "nothing"), "--no-such-option"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_the_script_finds_its_package_and_not_the_modules_beside_it(archive, tmp_path):
    """A script's own folder is first in the path: `import server` would be ours."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(PACKAGE / "spark")],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": archive},
    )  # fmt: skip

    assert "validate" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 False"


@pytest.mark.rule("P1.4")
def test_where_spark_submit_says_where_to_run_nobody_else_does(monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()


@pytest.mark.rule("P4.9")
def test_a_machine_that_does_not_have_the_directory_is_told_of_and_takes_nothing_for_lost(tmp_path):
    with topics.open(tmp_path / "data") as store:
        store.topic("t").put(1)
    away = str(tmp_path / "away")

    assert Scanning(str(tmp_path / "data"), None)([]) == []
    for place, cold in ((away, None), (str(tmp_path / "data"), away)):
        with pytest.raises(
            CannotOpen, match=r"away is not there on the executor .*: every machine must reach it"
        ):
            Scanning(place, cold)([])


@pytest.mark.rule("P4.9")
def test_a_machine_with_another_directory_of_that_name_ends_the_job(tmp_path):
    """It lacks the files of this one, and they are not lost. What has gone here meanwhile is another thing."""
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "here.log").write_bytes(b"x")
    here, gone = (
        WalTask(file=f"wal/{name}.log", generation=0, shard=0, first_frame=1) for name in ("here", "gone")
    )
    disk = ReadOnlyDisk(tmp_path)

    refuse_other_files(disk, [gone], [None], where="data")
    with pytest.raises(CannotOpen, match=r"an executor does not see data/wal/here.log, which is here: every"):
        refuse_other_files(disk, [gone, here], [None, None], where="data")
