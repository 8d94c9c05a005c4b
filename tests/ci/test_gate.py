"""The gate says red when a step is red, counts what pytest counted, and ends with the one line that machines read."""

from __future__ import annotations

import importlib.machinery
import os
import pathlib
import runpy
import shutil
import subprocess
import sys

import pytest

import topics.engine.engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
TWO_WORKERS = '"-n", "2"'
PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin")

GREEN = "def test_one():\n    assert 1 + 1 == 2\n"
RED = "def test_two():\n    assert 1 + 1 == 3\n"
BROKEN = "import no_such_module\n"
SLOW = "import pytest\n\n@pytest.mark.slow\ndef test_slow():\n    assert True\n"
COUNTING = "def test_count(record_property):\n    record_property('crash points', 70)\n"
SKIPPED = "import pytest\n\ndef test_skipped():\n    pytest.skip('no such system')\n"


@pytest.fixture
def house(tmp_path):
    """A checkout with the real gate, nothing else, and one process for its few tests: workers take long to start."""
    text = (ROOT / "ci" / "gate.py").read_text()
    assert text.count(TWO_WORKERS) == 1
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gate.py").write_text(text.replace(TWO_WORKERS, '"-n", "0"'))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n")
    return tmp_path


def plant(house: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text(text)


def gate(house: pathlib.Path, *arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(house / "ci" / "gate.py"), *arguments]
    if "--full" in arguments:  # which asks for a profile of hypothesis
        shutil.copy(ROOT / "conftest.py", house)
        plugins = PLUGINS
    else:
        plugins = PLUGINS[:1]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(plugins)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=house, env=environment)
    return done.returncode, (done.stdout + done.stderr).rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("files", "code", "last"),
    [
        ({"tests/test_a.py": GREEN, "models/test_b.py": SKIPPED}, 0, "1 passed, 0 failed, 1 skipped"),
        ({"tests/test_a.py": GREEN, "models/test_b.py": RED}, 1, "1 passed, 1 failed"),
        (
            {"tests/test_a.py": GREEN, "tests/test_b.py": SLOW, "tests/crash/test_c.py": RED},
            0,
            "1 passed, 0 failed",
        ),
        ({"tests/test_a.py": SLOW}, 0, "0 passed, 0 failed"),
    ],
)
def test_unit_lane_counts_what_ran(house, files, code, last):
    plant(house, files)

    result, lines = gate(house, "unit")

    assert (code, last) == (result, lines[-1])


@pytest.mark.parametrize("lane", ["crash", "server"])
def test_a_lane_runs_what_the_unit_lane_leaves_out(house, lane):
    plant(house, {"tests/test_a.py": RED, f"tests/{lane}/test_b.py": GREEN})

    code, lines = gate(house, lane)

    assert code == 0
    assert lines[-1] == "1 passed, 0 failed"


def test_two_workers_count_what_ran_beside_a_module_that_is_broken(house):
    plant(house, {f"tests/crash/test_{i}.py": text for i, text in enumerate((COUNTING, BROKEN, SKIPPED))})
    shutil.copy(ROOT / "ci" / "gate.py", house / "ci")

    code, lines = gate(house, "crash")

    assert code == 1
    assert "crash points: 70 tried" in lines
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"


def test_full_lane_runs_the_slow_tests_only(house):
    plant(house, {"tests/test_a.py": RED, "tests/test_b.py": SLOW})

    code, lines = gate(house, "--full", "unit")

    assert code == 0
    assert lines[-1] == "1 passed, 0 failed"


def test_what_tests_have_counted_is_added_up_and_printed(house):
    plant(house, {"tests/crash/test_a.py": COUNTING, "tests/crash/test_b.py": COUNTING})

    code, lines = gate(house, "crash")

    assert code == 0
    assert "crash points: 140 tried" in lines
    assert lines[-1] == "2 passed, 0 failed"


def test_every_bit_is_a_lane_of_the_full_check_and_its_sample_is_in_the_crash_lane(house):
    plant(house, {"tests/crash/test_flips.py": SLOW + GREEN, "tests/crash/test_a.py": SLOW + GREEN})

    for arguments, passed in [
        (["crash"], 2),
        (["--full", "crash"], 1),
        (["--full", "bits"], 1),
        (["bits"], 0),
    ]:
        code, lines = gate(house, *arguments)
        assert (code, lines[-1]) == (0, f"{passed} passed, 0 failed")


def test_simulated_lives_are_two_lanes_of_the_full_check_whatever_is_asked_in_them(house):
    worlds = {f"tests/crash/test_world{what}.py": SLOW for what in ("", "_jobs", "_later")}
    served = {f"tests/crash/test_served{what}.py": SLOW for what in ("", "_jobs")}
    plant(house, worlds | served | {"tests/crash/test_a.py": SLOW})

    for arguments, passed in [
        (["--full", "crash"], 1),
        (["--full", "worlds"], 3),
        (["--full", "served"], 2),
        (["served"], 0),
    ]:
        code, lines = gate(house, *arguments)
        assert (code, lines[-1]) == (0, f"{passed} passed, 0 failed")


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (1, 1)])
def test_mutants_are_a_lane_of_the_full_check_only(house, ends, code):
    plant(house, {"ci/mutants": f"#!/bin/sh\necho planted\nexit {ends}\n"})
    (house / "ci" / "mutants").chmod(0o755)

    result, lines = gate(house, "--full", "mutants")

    assert result == code
    assert "planted" in lines
    assert gate(house, "mutants") == (0, ["", "0 passed, 0 failed"])


@pytest.mark.parametrize(
    ("smoke", "canary", "code", "word"),
    [(0, 1, 0, "ok"), (1, 1, 1, "fuzz smoke"), (0, 0, 1, "fuzz canary"), (0, 2, 1, "fuzz canary")],
)
def test_fuzz_lane_wants_smoke_green_and_canary_red(house, smoke, canary, code, word):
    run = f"import sys\nsys.exit({{'smoke': {smoke}, 'canary': {canary}}}[sys.argv[1]])\n"
    plant(house, {"fuzz/run.py": run})

    result, lines = gate(house, "fuzz")

    assert result == code
    assert any(line.startswith("fuzz  ") and word in line for line in lines)


def test_lane_with_nothing_to_run_is_not_printed(house):
    code, lines = gate(house, "fuzz")

    assert code == 0
    assert not any(line.startswith(("===", "fuzz")) for line in lines)


def test_python_may_keep_what_it_compiles_whatever_the_caller_wants(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    environment = runpy.run_path(str(ROOT / "ci" / "gate.py"))["environment"]()

    assert "PYTHONDONTWRITEBYTECODE" not in environment


@pytest.mark.parametrize(("room_min", "is_chosen"), [(1, True), (1 << 62, False)])
def test_tests_whose_syncs_show_nothing_are_in_memory_where_there_is_room(
    monkeypatch, on_disk, room_min, is_chosen
):
    gate = runpy.run_path(str(ROOT / "ci" / "gate.py"))
    environment = gate["environment"]
    monkeypatch.setitem(environment.__globals__, "SHARED_MEMORY", on_disk)
    monkeypatch.setitem(environment.__globals__, "ROOM_MIN", room_min)
    monkeypatch.setenv("TMPDIR", "elsewhere")

    in_memory = str(on_disk) if is_chosen else "elsewhere"
    for lane, expected in ("unit", in_memory), ("server", in_memory), ("crash", "elsewhere"):
        for step in gate["LANES"][lane].quick():
            assert environment(in_memory=step.in_memory)["TMPDIR"] == expected


def test_unknown_lane_names_the_known_ones(house):
    code, lines = gate(house, "spork")

    assert code == 2
    assert all(name in lines[-1] for name in ("static", "unit", "server", "crash", "fuzz"))


def test_every_static_part_runs_and_one_red_part_makes_the_gate_red(house):
    plant(house, {"ci/tidy": "#!/bin/sh\necho found it\nexit 1\n", "ci/rules": "#!/bin/sh\nexit 0\n"})
    for name in ("tidy", "rules"):
        (house / "ci" / name).chmod(0o755)

    code, lines = gate(house, "static")

    assert code == 1
    assert "found it" in lines
    assert any(line.startswith("--- tidy: FAILED") for line in lines)
    assert any(line.startswith("--- rules: ok") for line in lines)
    assert any(line.startswith("--- lint: ") for line in lines)


ASSERTED = "def checked(value):\n    assert value >= 0, 'negative'\n    return value\n"
BAD_INPUT_TEST = """import product
import pytest

def test_bad_input():
    with pytest.raises(AssertionError, match="negative"):
        product.checked(-1)
"""
DECODER = "tests/kv/entries/test_wire.py"  # one of gate.BAD_INPUT


def test_what_hangs_on_an_assert_is_red_without_asserts(house):
    """Green with the product's asserts, and red in the step that takes them away."""
    plant(house, {"product.py": ASSERTED, DECODER: BAD_INPUT_TEST})
    (house / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    slow: slow\n")
    code, lines = gate(house, "unit")

    assert code == 1
    assert lines[-1] == "1 passed, 1 failed"
    assert any(line.startswith("--- unit and models: ok") for line in lines)
    assert any(line.startswith("--- without asserts: FAILED") for line in lines)


def test_a_failing_test_is_red_without_asserts_too(house):
    """pytest rewrites the asserts of test modules, so -O leaves them."""
    test = "def test_optimized():\n    assert __debug__, 'the canary'\n"
    plant(house, {DECODER: test})
    code, lines = gate(house, "unit")

    assert code == 1
    assert lines[-1] == "1 passed, 1 failed"
    assert any("the canary" in line for line in lines)


def test_pytest_rewrites_no_assert_of_the_product():
    """It would rewrite them all, for topics has a plugin; then `python -O` leaves them in, showing nothing."""
    assert type(topics.engine.engine.__spec__.loader) is importlib.machinery.SourceFileLoader


def test_every_test_of_bad_input_is_there():
    for path in runpy.run_path(str(ROOT / "ci" / "gate.py"))["BAD_INPUT"]:
        assert (ROOT / path).exists(), path
