"""`ci/rules` turns red for each way in which docs/ and the tests can disagree, and is silent otherwise.

Each test builds a small checkout in which all is well, plants one fault and reads what the command says of it.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "ci" / "rules"

RULES = """\
# Rules

| id | page § | issue | rule |
|---|---|---|---|
| S2.1 | semantics 2 | 1 | Seqs are contiguous. |
| S2.2 | semantics 2 | later | A lease is single. |
| S4.1 | semantics 4 | 1 | A page ascends. |
| R5.4.1 | replication 5.4 | 99 | A clock ticks. |
"""
INVARIANTS = """\
| id | statement | issue | where asserted | which model names it |
|---|---|---|---|---|
| I-01 | floors are ordered | 1 | verify | floors |
| I-02 | a job has one lease | later | verify | leases |
"""
TESTS = """\
import pytest

@pytest.mark.rule("S2.1", "S4.1")
@pytest.mark.invariant("I-01")
def test_read():
    assert True
"""


@dataclass
class Verdict:
    code: int
    problems: list[str]
    output: list[str]

    @property
    def summary(self) -> str:
        return self.output[-1]


class Checkout:
    """A small tree with docs/ and tests/ that `ci/rules` accepts until a test changes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("docs/dev/rules.md", RULES)
        self.write("docs/dev/invariants.md", INVARIANTS)
        self.write("tests/test_read.py", TESTS)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, *options: str) -> Verdict:
        command = [sys.executable, str(SCRIPT), "--root", str(self.root), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert "Traceback" not in done.stderr
        return Verdict(done.returncode, done.stderr.splitlines(), done.stdout.splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_agreement_is_silent(checkout: Checkout) -> None:
    verdict = checkout.check()

    assert verdict.code == 0
    assert verdict.problems == []
    assert len(verdict.output) == 1
    assert verdict.summary == (
        "rules (issue 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12): 4 rules, 2 of 2 carried ones have a test; "
        "2 invariants, 1 of 1 carried ones have a test; ok"
    )


def test_table_prints_id_and_tests(checkout: Checkout) -> None:
    verdict = checkout.check("--table")

    assert [line.split() for line in verdict.output[:-1]] == [
        ["S2.1", "tests/test_read.py::test_read"],
        ["S4.1", "tests/test_read.py::test_read"],
        ["I-01", "tests/test_read.py::test_read"],
    ]


def test_table_shows_a_carried_rule_without_test(checkout: Checkout) -> None:
    checkout.write("tests/test_read.py", TESTS.replace('"S2.1", ', ""))

    assert ["S2.1", "-"] in [line.split() for line in checkout.check("--table").output]


@pytest.mark.parametrize(
    ("page", "old", "new", "problem"),
    [
        pytest.param(
            "rules", "| S4.1 |", "| S2.2 |", "docs/dev/rules.md:7: S2.2 does not belong", id="page of id"
        ),
        pytest.param(
            "rules", "S4.1 | semantics 4", "S2.1 | semantics 2", "duplicate id S2.1", id="duplicate"
        ),
        pytest.param("rules", "| S2.2 |", "| S2.4 |", "gap in the numbering, S2.2, S2.3 missing", id="gap"),
        pytest.param("rules", "R5.4.1 |", "R5.4.2 |", "gap in the numbering, R5.4.1 missing", id="gap below"),
        pytest.param("rules", "| S4.1 |", "| s4-1 |", "bad id 's4-1'", id="bad id"),
        pytest.param("rules", "| 99 |", "| soon |", "R5.4.1 has a bad issue 'soon'", id="bad issue"),
        pytest.param("rules", "ticks. |", "ticks | tocks. |", "R5.4.1 has 5 cells", id="too many cells"),
        pytest.param("rules", "A clock ticks.", "", "R5.4.1 has an empty cell", id="empty rule"),
        pytest.param("rules", "|", "-", "docs/dev/rules.md: no rule found", id="no table"),
        pytest.param("invariants", "| I-02 |", "| I-01 |", "duplicate id I-01", id="duplicate invariant"),
        pytest.param("invariants", "| I-02 |", "| I-03 |", "numbering, I-02 missing", id="gap in invariants"),
    ],
)
def test_a_broken_list_is_red(checkout: Checkout, page: str, old: str, new: str, problem: str) -> None:
    text = RULES if page == "rules" else INVARIANTS
    assert old in text
    checkout.write(f"docs/dev/{page}.md", text.replace(old, new))

    verdict = checkout.check()

    assert verdict.code == 1
    assert any(problem in line for line in verdict.problems), verdict.problems


def test_a_missing_list_is_red(checkout: Checkout) -> None:
    (checkout.root / "docs/dev/invariants.md").unlink()

    verdict = checkout.check()

    assert verdict.code == 1
    assert "docs/dev/invariants.md: missing" in verdict.problems


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        pytest.param('"S2.1"', '"S2.9"', ["tests/test_read.py::test_read: unknown rule 'S2.9'"], id="rule"),
        pytest.param(
            '"I-01"', '"I-09"', ["tests/test_read.py::test_read: unknown invariant 'I-09'"], id="inv"
        ),
    ],
)
def test_an_unknown_id_is_red(checkout: Checkout, old: str, new: str, problems: list[str]) -> None:
    checkout.write("tests/test_read.py", TESTS.replace(old, new))
    checkout.write("tests/test_rest.py", TESTS)

    verdict = checkout.check()

    assert verdict.code == 1
    assert problems == verdict.problems


@pytest.mark.parametrize(
    ("old", "problems"),
    [
        pytest.param('"S2.1", ', ["docs/dev/rules.md: rule S2.1 (issue 1) has no test"], id="rule"),
        pytest.param(
            '@pytest.mark.invariant("I-01")\n',
            ["docs/dev/invariants.md: invariant I-01 (issue 1) has no test"],
            id="invariant",
        ),
    ],
)
def test_a_carried_line_without_test_is_red(checkout: Checkout, old: str, problems: list[str]) -> None:
    checkout.write("tests/test_read.py", TESTS.replace(old, ""))

    verdict = checkout.check()

    assert verdict.code == 1
    assert problems == verdict.problems
    assert verdict.summary.endswith("RED, 1 problem")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            '@pytest.mark.rule("S2.1", "S4.1")\nclass TestRead:\n    def test_it(self): ...', id="class"
        ),
        pytest.param(
            'class TestRead:\n    @pytest.mark.rule("S2.1", "S4.1")\n    def test_it(self): ...', id="method"
        ),
        pytest.param('@pytest.mark.rule("S2.1", "S4.1")\nasync def test_it(): ...', id="async"),
        pytest.param('pytestmark = pytest.mark.rule("S2.1", "S4.1")', id="module"),
        pytest.param('pytestmark = [pytest.mark.rule("S2.1"), pytest.mark.rule("S4.1")]', id="module list"),
        pytest.param(
            'class Floors(RuleBasedStateMachine):\n    pytestmark = [pytest.mark.rule("S2.1", "S4.1")]',
            id="state machine",
        ),
        pytest.param(
            'TestFloors = F.TestCase\nTestFloors.pytestmark = [pytest.mark.rule("S2.1", "S4.1")]', id="case"
        ),
        pytest.param(
            '@pytest.mark.parametrize("x", [\n'
            '    pytest.param(1, marks=pytest.mark.rule("S2.1")),\n'
            '    pytest.param(2, marks=[pytest.mark.rule("S4.1"), pytest.mark.slow]),\n'
            "])\ndef test_it(x): ...",
            id="param",
        ),
        pytest.param('from pytest import mark\n@mark.rule("S2.1", "S4.1")\ndef test_it(): ...', id="mark"),
    ],
)
@pytest.mark.parametrize("name", ["tests/test_it.py", "models/test_it.py"])
def test_every_place_of_a_marker_counts(checkout: Checkout, name: str, source: str) -> None:
    checkout.write("tests/test_read.py", TESTS.replace('@pytest.mark.rule("S2.1", "S4.1")\n', ""))
    checkout.write(name, f"import pytest\n{source}\n")

    assert checkout.check().problems == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param(
            '@pytest.mark.rule(f"S2.{1}")\ndef test_it(): ...', "ids as literal strings", id="computed"
        ),
        pytest.param("@pytest.mark.rule()\ndef test_it(): ...", "at least one", id="no id"),
        pytest.param("@pytest.mark.rule\ndef test_it(): ...", "at least one", id="not called"),
        pytest.param(
            '@pytest.mark.rule("S2.1")\ndef helper(): ...', "helper, which is not a test", id="helper"
        ),
        pytest.param('def test_it():\n    pytest.mark.rule("S2.1")', "marks nothing", id="inside a body"),
        pytest.param("def test_it(:", "does not parse", id="syntax"),
    ],
)
def test_a_marker_that_cannot_count_is_red(checkout: Checkout, source: str, problem: str) -> None:
    checkout.write("tests/test_it.py", f"import pytest\n{source}\n")

    verdict = checkout.check()

    assert verdict.code == 1
    assert len(verdict.problems) == 1
    assert problem in verdict.problems[0]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param('@pytest.mark.skip\n@pytest.mark.rule("S2.1")\ndef test_it(): ...', id="skip"),
        pytest.param(
            '@pytest.mark.xfail(reason="?")\n@pytest.mark.rule("S2.1")\ndef test_it(): ...', id="xfail"
        ),
        pytest.param(
            'pytestmark = pytest.mark.skip\n@pytest.mark.rule("S2.1")\ndef test_it(): ...', id="module"
        ),
        pytest.param(
            '@pytest.mark.skip\nclass TestIt:\n    @pytest.mark.rule("S2.1")\n    def test_it(self): ...',
            id="class",
        ),
    ],
)
def test_a_test_that_never_runs_proves_nothing(checkout: Checkout, source: str) -> None:
    checkout.write("tests/test_read.py", TESTS.replace('"S2.1", ', ""))
    checkout.write("tests/test_it.py", f"import pytest\n{source}\n")

    verdict = checkout.check()

    assert verdict.code == 1
    assert any("S2.1 on a test that is skipped or expected to fail" in line for line in verdict.problems)
    assert "docs/dev/rules.md: rule S2.1 (issue 1) has no test" in verdict.problems


def test_a_file_that_pytest_does_not_collect_is_red(checkout: Checkout) -> None:
    checkout.write("models/floors.py", TESTS)

    verdict = checkout.check()

    assert verdict.problems == ["models/floors.py: has markers, but pytest does not collect it"]


def test_the_project_says_what_pytest_collects(checkout: Checkout) -> None:
    checkout.write("models/floors.py", TESTS)
    checkout.write("pyproject.toml", '[tool.pytest.ini_options]\npython_files = ["test_*.py", "f*.py"]\n')

    assert checkout.check().problems == []
