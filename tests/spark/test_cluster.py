"""Executors in processes of their own, as on a cluster, read and audit a directory as a local Spark does."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig

import pyspark
import pytest

from tests.spark.processes import ROOT, python
from tests.spark.stores import fill, records
from topics.spark.session import find_java, shim

CHILD_S = 500  # within the test's own time
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("\n## On a cluster") :]

PROGRAM = """
import sys
from tests.spark.conftest import CONFS
from topics.spark.audits import validate
from topics.spark.session import session

confs = {**CONFS, "spark.local.dir": sys.argv[2], "spark.executor.memory": "512m"}
spark = session("cluster", master="local-cluster[2,1,1024]", confs=confs)
frame = spark.read.format("topics").options(path=sys.argv[1], subscribe="quakes", minPartitions="4").load()
print(frame.rdd.getNumPartitions() >= 4, frame.count(), len(validate(spark, sys.argv[1]).violations))
spark.stop()
"""
DEFAULTS = """
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 700m
spark.executor.memory 512m
spark.local.dir {local}
spark.log.level ERROR
spark.ui.enabled false
"""


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    """Spark in a folder of the test's own, for in its folder executors leave what they say."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in pathlib.Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    (home / "work").unlink(missing_ok=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.rule("P5.2")
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_home")
def test_executors_of_their_own_read_what_a_local_spark_reads(tmp_path):
    fill(tmp_path / "data")
    expected = len(records(tmp_path / "data", "quakes"))

    log = tmp_path / "log"
    with python("-c", PROGRAM, str(tmp_path / "data"), str(tmp_path / "local"), log=log) as child:
        found, _ = child.communicate(timeout=CHILD_S)

    assert found.split() == ["True", str(expected), "0"], log.read_text()[-3000:]


@pytest.fixture
def machine(tmp_path, spark_home):
    """The environment of a machine that has the packages and not topics; its `python` is that of who starts the job."""
    interpreter = tmp_path / "bare" / "python3"
    interpreter.parent.mkdir()
    interpreter.write_text(
        f'#!/bin/sh\nexec {sys.executable} -S "$@"\n'
    )  # no .pth: nothing is installed in place
    interpreter.chmod(0o755)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS.format(local=tmp_path / "local"))
    java = find_java(os.environ)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))
    }
    return {
        **inherited,
        "JAVA_HOME": str(java.path.resolve().parent.parent if java.has_vector else shim(java)),
        "PATH": os.pathsep.join(
            (str(pathlib.Path(sys.executable).parent), str(spark_home / "bin"), os.environ["PATH"])
        ),
        "PYSPARK_DRIVER_PYTHON": str(interpreter),
        "PYSPARK_PYTHON": str(interpreter),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_HOME": str(spark_home),
    }


def run(command, machine, folder):
    """What a shell says in the folder on this machine; with it end all the Javas that it started."""
    child = subprocess.Popen(
        ["sh", "-euc", command], cwd=folder, env=machine, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        said, told = child.communicate(timeout=CHILD_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, said, told


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.rule("P5.2", "P1.4", "P2.1")
@pytest.mark.timeout(600)
def test_the_how_to_validates_with_executors_that_have_topics_from_the_zip_only(machine, tmp_path):
    fill(tmp_path / "data")
    console = re.search(r"```console\n(.*?)```", SECTION, re.DOTALL)
    assert console is not None
    install, *steps = [line.removeprefix("$ ") for line in console[1].splitlines()]
    command = "\n".join(steps).replace("s3://bucket/backup", "data")
    command = command.replace("spark://head:7077", "local-cluster[2,1,1024]")
    assert install.startswith("pip install ")
    assert run(f"{machine['PYSPARK_PYTHON']} -c 'import topics'", machine, tmp_path)[0] == 1

    code, said, told = run(f"{command} --json", machine, tmp_path)

    assert code == 0, told[-3000:]
    assert '"exit_code":0' in said
    assert json.loads((tmp_path / "report" / "report.json").read_text())["records_in_segments"] > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.rule("P5.2", "P1.4")
@pytest.mark.timeout(600)
def test_the_program_of_the_how_to_ships_the_package_with_add_py_file(machine, tmp_path):
    fill(tmp_path / "data")
    block = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)
    assert block is not None
    start = (
        "import topics\nimport topics.spark.session\nfrom pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
    )
    rest = (
        "frame = spark.read.format('topics').options(path='./data', subscribe='quakes').load()\n"
        "print(frame.count(), frame.rdd.map(lambda _: __import__('topics').__file__).first())\n"
        "spark.stop()\n"
    )
    (tmp_path / "job.py").write_text(start + block[1] + rest)

    # The driver has topics installed; executors run another Python, which has not.
    here = f"PYSPARK_DRIVER_PYTHON={sys.executable} PYTHONPATH=$PYTHONPATH:{ROOT}"
    submit = "spark-submit --master 'local-cluster[2,1,1024]' --conf spark.executorEnv.PYTHONPATH="
    code, said, told = run(f"{here} {submit}{machine['PYTHONPATH']} job.py", machine, tmp_path)

    assert code == 0, told[-3000:]
    first, second = said.splitlines()[-2:]
    count, where = second.split()
    assert (first, int(count)) == ("0", len(records(tmp_path / "data", "quakes")))
    assert "topics.zip" in where
