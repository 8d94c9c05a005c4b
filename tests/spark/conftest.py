"""One Spark for all tests that are marked so, and a server. Both are started when the first of them asks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from topics.cli.demo.private_server import PrivateServer

# The Java of a test lives for a minute: what its second compiler works out (half of all the processor time) never pays.
JAVA = "-XX:TieredStopAtLevel=1"
# pyspark leaves those to its Java for the garbage collector. Whatever else is not closed is a defect.
PYSPARK_SOCKETS = r"ignore:unclosed <socket\.socket .*'127\.0\.0\.1':ResourceWarning"
CONFS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items):
    """Whoever asks for Spark is marked, so that no lane but its own starts a JVM."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings(PYSPARK_SOCKETS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from topics.spark.session import session

    os.environ.pop("PYSPARK_PYTHON", None)
    home = tmp_path_factory.mktemp("spark")
    confs = {
        **CONFS,
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": f"{JAVA} -Dderby.system.home={home}",
    }
    found = session("tests", master="local[2,2]", confs=confs)
    found.conf.set("spark.sql.streaming.checkpointLocation", str(home / "checkpoints"))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[PrivateServer]:
    home = tmp_path_factory.mktemp("server")
    with PrivateServer(home / "data", home) as running:
        yield running


@pytest.fixture
def name(request):
    """A topic of one test's own."""
    return "".join(sign if sign.isalnum() else "-" for sign in request.node.name)[:200]


@pytest.fixture
def read(spark):
    """A frame by options, each of them a keyword."""

    def load(**options):
        return spark.read.format("topics").options(**options).load()

    return load
