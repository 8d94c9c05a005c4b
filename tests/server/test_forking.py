"""A fork of the template is a process as a new Python is: what the other tests of servers stand on."""

import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.forking import Forked

PROGRAM = """
import os, sys
try:
    print("oh", file=sys.stderr)
    print(sys.argv[1:], os.getcwd(), os.environ["GIVEN"], __name__, flush=True)
    line = sys.stdin.readline()
except KeyboardInterrupt:
    sys.exit(7)
if not line:
    raise ValueError("the end")
sys.exit(line.strip())
"""


@pytest.fixture
def begin(tmp_path: pathlib.Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    begun = []

    def begin_it() -> Forked:
        child = Forked(["program.py", "a", "b"], cwd=tmp_path, env={"GIVEN": "this"})
        begun.append(child)
        assert child.stdout.readline() == f"['a', 'b'] {tmp_path.resolve()} this __main__\n"
        return child

    yield begin_it
    for child in begun:
        child.kill()
        child.communicate()


def test_it_is_given_what_it_is_begun_with_and_its_end_is_told(begin):
    child, other = begin(), begin()
    child.stdin.write("no\n")
    assert child.communicate(20) == ("", "oh\nno\n")
    assert (child.poll(), child.wait()) == (1, 1)

    assert other.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0)
    out, err = other.communicate(20)
    assert (out, err.splitlines()[-1], other.returncode) == ("", "ValueError: the end", 1)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 7), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -signal.SIGTERM)],
)
def test_a_signal_is_for_it_alone(begin, number, code):
    child, other = begin(), begin()
    assert len({child.pid, other.pid, os.getpid()}) == 3
    child.send_signal(number)
    assert child.wait(20) == code
    child.send_signal(number)  # nobody is there
    assert other.poll() is None


def test_it_has_no_file_of_another(begin, tmp_path):
    """Else a socket or a lock of one that has ended might be held by the next."""
    (tmp_path / "count.py").write_text("import os; print(len(os.listdir('/dev/fd')))")
    forks = [Forked(["count.py"], cwd=tmp_path, env={}) for _ in range(3)]
    assert {fork.communicate(20) for fork in forks} == {("4\n", "")}
