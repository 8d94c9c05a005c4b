"""What the Spark side is built on, and what the audit leaves alone, so that any machine can run it."""

import ast
import importlib.metadata
import pathlib
import tomllib

import pytest

import topics
from topics.spark.session import JAVA_MIN

ROOT = pathlib.Path(topics.__file__).parent
READ_BY_AUDIT = {
    "apply",
    "image",
    "moving",
    "recovery",
    "verify",
}  # functions of a start over bytes; none runs an engine


@pytest.mark.rule("P0.1")
def test_the_versions_are_pinned_and_those_are_installed():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    asked = project["optional-dependencies"]["spark"]

    assert asked == ["topics-log[client]", "pyspark==4.3.*", "pyarrow>=18", "pandas>=2.2,<3"]
    assert JAVA_MIN == 17
    found = {name: importlib.metadata.version(name) for name in ("pyspark", "pyarrow", "pandas")}
    major = {name: [int(part) for part in version.split(".")[:2]] for name, version in found.items()}
    assert major["pyspark"] == [4, 3]
    assert major["pyarrow"] >= [18]
    assert [2, 2] <= major["pandas"] < [3]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.rule("P2.1")
def test_the_audit_knows_no_spark_and_runs_no_engine():
    modules = list((ROOT / "audit").rglob("*.py"))
    names = [name for path in modules for name in imported(path)]

    assert len(modules) > 20
    assert not [name for name in names if name.startswith(("pyspark", "topics.spark", "topics.embed"))]
    of_engine = {name.split(".")[2] for name in names if name.startswith("topics.engine.")}
    assert of_engine <= READ_BY_AUDIT
