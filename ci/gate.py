"""The lanes of `ci/check`: what runs, within which time, and what counts.

A lane is a list of steps, a step is a command. A step that has nothing to run on (a folder or a script that is not
there) is left out, and a lane without steps is not printed. Every step of a lane runs even if one before it failed.
Steps of the static lane run two at a time and show their output only when they fail; a pytest step shows it as it goes
and leaves a report from which its tests are counted.

The exit code is 0 only if every step ended as it should. A lane over its budget is said loudly and does not fail:
machines differ, but a gate that grows slow without a word is soon not run at all. What tests counted while they ran
(`record_property("crash points", 1200)`) is added up by name and printed. The last line is the sum over all
pytest runs, `N passed, N failed, N skipped`, alone on its line for whoever reads it by machine; a run that broke before
it could report counts as one failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent
NO_TESTS = 5  # pytest's exit code for "nothing collected"
SHARED_MEMORY = pathlib.Path("/dev/shm")  # Linux has it
ROOM_MIN = 4 << 30
NO_PROGRAMS = getattr(os, "ST_NOEXEC", 0)


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    command: tuple[str, ...]
    is_pytest: bool = False
    exit_code: int = 0  # the one that is right; a canary must end with 1
    in_memory: bool = False  # its tests' directories are, where there is room


@dataclasses.dataclass(frozen=True)
class Lane:
    title: str
    budget_s: int
    quick: Callable[[], list[Step]]
    slow: Callable[[], list[Step]]
    side_by_side: bool = False


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.counts.update(other.counts)

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


@dataclasses.dataclass
class Outcome:
    """What became of one lane."""

    lane: Lane
    took_s: float
    tally: Tally
    broken: list[str]

    @property
    def is_late(self) -> bool:
        return self.lane.budget_s > 0 and self.took_s > self.lane.budget_s


# --- the lanes

BITS = "test_flips.py"  # of tests/crash, as WORLDS and SERVED
WORLDS = "test_world*.py"
SERVED = "test_served*.py"
SEPARATE = ("tests/crash", "tests/server")
BAD_INPUT = (  # of files, of peers and of callers: what must not hang on an assert
    "tests/audit/dump/test_dumping.py",
    "tests/audit/test_forged.py",
    "tests/calls/test_messages.py",
    "tests/codec/test_manifest.py",
    "tests/codec/segments/test_segidx.py",
    "tests/codec/test_snapshot.py",
    "tests/codec/log/test_walheader.py",
    "tests/embed/test_bad_input.py",
    "tests/host/backup/test_forged_backup.py",
    "tests/host/directory/test_lock.py",
    "tests/kv/entries/test_wire.py",
    "tests/lattice/queues/test_hostile.py",
    "tests/server/api/bodies/test_pieces.py",
    "tests/server/api/bodies/test_writes.py",
    "tests/weaver/test_hostile.py",
    "tests/weaver/sync/test_wire.py",
)


def static_steps() -> list[Step]:
    python = sys.executable
    steps = [
        Step("mypy", (python, "-m", "mypy")),
        Step("format", (python, "-m", "ruff", "format", "--check", ".")),
        Step("lint", (python, "-m", "ruff", "check", ".")),
        Step("imports", (str(BIN / "lint-imports"),)),
    ]
    return steps + [Step(name, (f"ci/{name}",)) for name in ("tidy", "rules") if exists(f"ci/{name}")]


def unit_steps(*options: str) -> list[Step]:
    ignored = [f"--ignore={folder}" for folder in SEPARATE]
    options = options or ("-m", "not slow and not spark")
    return pytest_steps("unit and models", ["tests", "models"], *ignored, *options)


def quick_unit_steps() -> list[Step]:
    return in_memory(unit_steps() + optimized_steps())


def quick_server_steps() -> list[Step]:
    return in_memory(separate_steps("tests/server"))


def in_memory(steps: list[Step]) -> list[Step]:
    """Not those of the crash lane: real processes are killed there, in the middle of a sync as well."""
    return [dataclasses.replace(step, in_memory=True) for step in steps]


def optimized_steps() -> list[Step]:
    """What bad input gets, without the product's asserts. Those of test modules stay: pytest has rewritten them."""
    steps = pytest_steps(
        "without asserts", BAD_INPUT, "-m", "not slow", "-W", "ignore::pytest.PytestConfigWarning"
    )
    return [dataclasses.replace(step, command=("env", "PYTHONOPTIMIZE=1", *step.command)) for step in steps]


def spark_steps(*options: str) -> list[Step]:
    """In one process: one Java for all of it."""
    options = ("-n", "0", "--timeout=300", *(options or ("-m", "spark and not slow")))
    return pytest_steps("tests/spark", ["tests/spark"], *options)


def separate_steps(folder: str, *options: str) -> list[Step]:
    return pytest_steps(folder, [folder], *(options or ("-m", "not slow")))


def pytest_steps(name: str, folders: Iterable[str], *options: str) -> list[Step]:
    there = [folder for folder in folders if exists(folder)]
    command = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *options, *there)
    return [Step(name, command, is_pytest=True)] if there else []


def crash_slow_steps() -> list[Step]:
    """What the three lanes below leave: each of the four is at most twenty minutes of two cores."""
    others = [path for pattern in (BITS, WORLDS, SERVED) for path in crash_tests(pattern)]
    return separate_steps("tests/crash", *(f"--ignore={path}" for path in others), *SLOW)


def worlds_slow_steps() -> list[Step]:
    """Simulated lives of a store."""
    return pytest_steps("worlds", crash_tests(WORLDS), *SLOW)


def served_slow_steps() -> list[Step]:
    """Simulated lives of a server."""
    return pytest_steps("served worlds", crash_tests(SERVED), *SLOW)


def bits_slow_steps() -> list[Step]:
    """Every bit of a directory; a sample of them is in the crash lane."""
    return pytest_steps("bit flips", crash_tests(BITS), *SLOW)


def crash_tests(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/crash").glob(pattern))


def mutants_slow_steps() -> list[Step]:
    """Planted bugs, each of which some test must see."""
    return [Step("mutants", ("ci/mutants",))] if exists("ci/mutants") else []


def fuzz_steps() -> list[Step]:
    return [*fuzz_step("smoke"), *fuzz_step("canary", exit_code=1)]


def fuzz_step(verb: str, exit_code: int = 0) -> list[Step]:
    if not exists("fuzz/run.py"):
        return []
    return [Step(f"fuzz {verb}", (sys.executable, "fuzz/run.py", verb), exit_code=exit_code)]


def exists(path: str) -> bool:
    return (ROOT / path).exists()


SLOW_PROFILE = ("--hypothesis-profile=full", "--timeout=3600")
SLOW = ("-m", "slow and not spark", *SLOW_PROFILE)
SLOW_SPARK = ("-m", "slow and spark", *SLOW_PROFILE)

LANES = {
    "static": Lane("static", 60, static_steps, list, side_by_side=True),
    "unit": Lane("unit and models", 360, quick_unit_steps, lambda: unit_steps(*SLOW)),
    "server": Lane("server", 80, quick_server_steps, lambda: separate_steps("tests/server", *SLOW)),
    "crash": Lane("crash", 70, lambda: separate_steps("tests/crash"), crash_slow_steps),
    "worlds": Lane("worlds", 0, list, worlds_slow_steps),
    "served": Lane("served worlds", 0, list, served_slow_steps),
    "bits": Lane("bit flips", 0, list, bits_slow_steps),
    "mutants": Lane("mutants", 0, list, mutants_slow_steps),
    "spark": Lane("spark", 90, spark_steps, lambda: spark_steps(*SLOW_SPARK)),
    "fuzz": Lane("fuzz", 60, fuzz_steps, lambda: fuzz_step("full")),
}


# --- running them


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    names = [options.lane] if options.lane else list(LANES)
    total, outcomes = Tally(), []
    for name in names:
        lane = LANES[name]
        steps = lane.slow() if options.full else lane.quick()
        if not steps:
            continue
        if options.full:
            lane = dataclasses.replace(lane, title=f"{lane.title}, slow tests", budget_s=0)
        say(f"\n=== {lane.title}")
        outcome = run_lane(lane, steps)
        total.add(outcome.tally)
        outcomes.append(outcome)
    report(outcomes)
    for what, count in sorted(total.counts.items()):
        say(f"{what}: {count} tried")
    say(str(total))
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ci/check", description="The one gate: everything a change must pass."
    )
    parser.add_argument("lane", nargs="?", choices=LANES, help="run this lane only")
    parser.add_argument("--full", action="store_true", help="run the slow tests instead of the quick ones")
    return parser.parse_args(arguments)


def run_lane(lane: Lane, steps: list[Step]) -> Outcome:
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2 if lane.side_by_side else 1) as pool:
        results = list(pool.map(lambda step: run_step(step, show=not lane.side_by_side), steps))
    tally = Tally()
    for _, counted in results:
        tally.add(counted)
    broken = [step.name for step, (passed, _) in zip(steps, results, strict=True) if not passed]
    return Outcome(lane, time.monotonic() - started, tally, broken)


def run_step(step: Step, *, show: bool) -> tuple[bool, Tally]:
    """Run one command; return whether it ended as it should, and the tests it counted."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        junit = pathlib.Path(folder) / "junit.xml"
        command = (*step.command, f"--junitxml={junit}") if step.is_pytest else step.command
        stdout, stderr = (None, None) if show else (subprocess.PIPE, subprocess.STDOUT)
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(in_memory=step.in_memory),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            check=False,
        )
        tally = counted(junit) if step.is_pytest else Tally()
    allowed = {step.exit_code, NO_TESTS} if step.is_pytest else {step.exit_code}
    passed = done.returncode in allowed and not tally.failed
    if step.is_pytest and not passed and not tally.failed:
        tally.failed = 1
    verdict = "ok" if passed else f"FAILED (exit code {done.returncode}, not {step.exit_code})"
    output = "" if show or passed else done.stdout.decode(errors="replace").rstrip() + "\n"
    say(f"{output}--- {step.name}: {verdict}, {time.monotonic() - started:.1f} s")
    return passed, tally


def environment(*, in_memory: bool = False) -> dict[str, str]:
    """Return the caller's environment with our tools first and one hash seed, so that a run can be had again.

    Python may keep what it compiles, whatever the caller wants: hundreds of processes import the same modules, and each
    would compile them anew. `.gitignore` names the folders. `in_memory`: a sync takes a thousandth of what it takes on
    a disk, and a test of a store has dozens; that no sync is missing is for the simulated disk to show.
    """
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if in_memory and has_room(SHARED_MEMORY):
        kept["TMPDIR"] = str(SHARED_MEMORY)
    return {**kept, "PATH": path, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}


def has_room(folder: pathlib.Path) -> bool:
    """A file system where tests may keep their files and run their scripts, too. Containers often have 64 MB of one."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= ROOM_MIN and not found.f_flag & NO_PROGRAMS


def counted(junit: pathlib.Path) -> Tally:
    """Add up a pytest report; without one, nothing was counted."""
    if not junit.exists():
        return Tally()
    tally = Tally()
    for suite in ET.parse(junit).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        tally.add(Tally(max(tests - failed - skipped, 0), failed, skipped, noted(suite)))
    return tally


def noted(suite: ET.Element) -> Counter[str]:
    """Add up what the tests say they have tried."""
    counts: Counter[str] = Counter()
    for each in suite.iter("property"):
        counts[each.get("name", "")] += int(each.get("value", 0))
    return counts


def report(outcomes: list[Outcome]) -> None:
    say("")
    for outcome in outcomes:
        budget = f"budget {outcome.lane.budget_s:4d} s" if outcome.lane.budget_s else "no budget"
        verdict = f"FAILED: {', '.join(outcome.broken)}" if outcome.broken else "ok"
        say(f"{outcome.lane.title:28} {outcome.took_s:7.1f} s  {budget}  {verdict}")
    for outcome in outcomes:
        if outcome.is_late:
            budget_s = outcome.lane.budget_s
            say(f"!!! {outcome.lane.title} took {outcome.took_s:.0f} s, over its budget of {budget_s} s !!!")


def say(text: str) -> None:
    sys.stdout.write(
        f"{text}\n"
    )  # in one: steps that run side by side would put theirs between a line and its end
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
