"""Executors in processes of their own, as on a cluster, read and audit a directory as a local Spark does."""

import pytest

from tests.spark.processes import python
from tests.spark.stores import fill, records

CHILD_S = 500  # within the test's own time

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


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.rule("P5.2")
@pytest.mark.timeout(600)
def test_executors_of_their_own_read_what_a_local_spark_reads(tmp_path):
    fill(tmp_path / "data")
    expected = len(records(tmp_path / "data", "quakes"))

    log = tmp_path / "log"
    with python("-c", PROGRAM, str(tmp_path / "data"), str(tmp_path / "local"), log=log) as child:
        found, _ = child.communicate(timeout=CHILD_S)

    assert found.split() == ["True", str(expected), "0"], log.read_text()[-3000:]
