"""What `pip install topics-log` brings, what works with that alone, and what whoever lacks an extra is told.

`ci/smoke` says the same of real installations. Here a package that the installation would not bring is one that cannot
be found: in a process of its own, by a finder before all others.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = canonicalize_name(PROJECT["name"])
DISTRIBUTIONS_MAX = 10
HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
EMBEDDED = """
import sys, topics
from topics.cli.main import main

with topics.open("topics-data") as store:
    store.create("q", type="queue").put({"n": 1})
    store.create("t")
    store.put_schedule("nightly", topic="t", cron="0 3 * * *", timezone="Europe/Berlin", data={})
    assert [job.data for job in store.queue("q").claim()] == [{"n": 1}]
    for call in (lambda: store.worker("q"), lambda: topics.Client("http://127.0.0.1:1"), lambda: topics.open_trio):
        try:
            call()
            raise SystemExit("it went")
        except ImportError as error:
            print(error)
for line in sys.stdin:
    assert main(line.split()) == 0, line
"""


def brought_by(*extras: str) -> set[str]:
    """The distributions that an installation with these extras has, as the metadata of what is installed here says."""
    asked = {(OURS, extra) for extra in ("", *extras)}
    looked_at: set[tuple[str, str]] = set()
    while asked - looked_at:
        name, extra = (asked - looked_at).pop()
        looked_at.add((name, extra))
        lines = distribution(name).requires or []
        if name == OURS:  # as it is, and not as it was when it was installed
            lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        for one in map(Requirement, lines):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                asked |= {(canonicalize_name(one.name), other) for other in ("", *one.extras)}
    return {name for name, _ in looked_at}


def hiding_all_but(*extras: str) -> str:
    brought = brought_by(*extras)
    hidden = {
        module for module, owners in packages_distributions().items()
        if not {canonicalize_name(one) for one in owners} & brought
    }  # fmt: skip
    return HIDING.format(names=hidden)


def run(code: str, home: Path, *, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=home, input=typed, capture_output=True, text=True, check=False
    )


@pytest.mark.rule("O7.1")
def test_the_embedded_store_is_few_distributions():
    brought = brought_by()

    assert len(brought) <= DISTRIBUTIONS_MAX, sorted(brought)
    assert {"trio", "quart", "httpx", "rich", "cryptography"} & brought == set()


@pytest.mark.rule("O7.1")
def test_the_store_and_its_command_line_need_no_extra(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n')
    commands = (
        "put t in.jsonl", "get t", "tail t --no-follow", "ls", "state t", "queue ls", "schedule ls", "config show",
        "fsck", "backup copy", "verify copy", "why t 1", "doctor", "completion bash",
    )  # fmt: skip
    done = run(hiding_all_but() + EMBEDDED, tmp_path, typed="\n".join(commands))

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines()[:3] == [
        "workers: anyio is not installed: pip install 'topics-log[worker]'",
        "topics.Client: httpx is not installed: pip install 'topics-log[client]'",
        "topics.open_trio: trio is not installed: pip install 'topics-log[trio]'",
    ]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve --port 0", "server"),
        ("demo", "server"),
        ("ls --url http://127.0.0.1:1", "client"),
        ("work q -- true", "worker"),
        ("spark validate", "spark"),
    ],
)
def test_a_command_that_lacks_its_extra_says_which_in_one_line(tmp_path, command, extra):
    made = run(
        "import topics\nwith topics.open('topics-data') as store: store.create('q', type='queue')", tmp_path
    )
    assert made.returncode == 0
    code = hiding_all_but() + f"from topics.cli.main import main; sys.exit(main({command.split()!r}))"
    done = run(code, tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(
        rf"topics: .*: \w+ is not installed: pip install 'topics-log\[{extra}\]'\n", done.stderr
    )


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("worker", "import topics; topics.Worker, topics.AsyncWorker"),
        ("trio", "import topics; topics.open_trio"),
        ("client", "import topics; topics.Client, topics.AsyncClient"),
        ("server", "import topics.server.main, topics.cli.demo.story; topics.AsyncClient"),
        ("kv", "import topics.kv, topics.weaver, topics.embed.database, topics.embed.weaver"),
        ("rich", "from topics.cli.io.terminal import progress; progress(total=1, what='')"),
    ],
)
def test_an_extra_brings_what_its_part_imports(tmp_path, extra, code):
    done = run(hiding_all_but(extra) + "import topics\n" + code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

    without = run(hiding_all_but() + "import topics\n" + code, tmp_path)
    assert without.returncode == 1


def test_replicated_values_name_their_extra(tmp_path):
    done = run(hiding_all_but() + "import topics.kv", tmp_path)

    assert "replicated values: blake3 is not installed: pip install 'topics-log[kv]'" in done.stderr


def test_a_module_of_ours_that_is_not_there_is_nobodys_extra():
    from topics.kernel.extras import MissingExtra, Needs

    with pytest.raises(ModuleNotFoundError) as told, Needs("a part", "kv"):
        import topics.nowhere  # noqa: F401 -- it is not there

    assert not isinstance(told.value, MissingExtra)
