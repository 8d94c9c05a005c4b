"""Each rule of ci/tidy turns red on a planted breach, at its line, and stays green on the honest twin beside it."""

from __future__ import annotations

import pathlib
import runpy

import pytest

TIDY = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "ci" / "tidy"))

CORE, PRODUCT, TEST = "topics/kernel/planted.py", "topics/server/planted.py", "tests/test_planted.py"
LONG_FUNCTION = "def f():\n" + "    pass\n" * 70
LONG_DOCSTRING = 'def f():\n    """One.\n' + "    line\n" * 70 + '    """\n    pass\n'

# (rule, file, text, line of the finding)
BREACHES = [
    ("bare-except", PRODUCT, "try:\n    f()\nexcept:\n    raise\n", 3),
    ("swallowed-exception", PRODUCT, "try:\n    f()\nexcept Exception:\n    pass\n", 3),
    (
        "swallowed-exception",
        "fuzz/planted.py",
        "try:\n    f()\nexcept (ValueError, BaseException):\n    ...\n",
        3,
    ),
    ("ignore-reason", PRODUCT, "import os  # noqa: F401\n", 1),
    ("ignore-reason", TEST, "x = y  # type: ignore[name-defined]\n", 1),
    ("ignore-reason", "ci/planted.py", "x = y  # type: ignore[name-defined]  # noqa: F821\n", 1),
    ("ignore-reason", "topics/host/planted.py", "# ruff: noqa: F401\n", 1),
    ("parses", PRODUCT, "\ndef f(:\n", 2),
    ("long-function", PRODUCT, LONG_FUNCTION, 1),
    ("long-module", PRODUCT, "x = 1\n" * 401, 401),
    ("nounless-name", "topics/server/utils.py", "", 1),
    ("nounless-name", "topics/common/frame.py", "", 1),
    ("unfinished", PRODUCT, "# TODO: count them\n", 1),
    ("unfinished", PRODUCT, "\nx = 1  # one is enough for now\n", 2),
    ("unfinished", PRODUCT, "def f():\n    raise NotImplementedError\n", 2),
    ("endless-loop", PRODUCT, "def f():\n    while True:\n        g()\n", 2),
    ("endless-loop", PRODUCT, "while 1:\n    for x in y:\n        break\n", 1),
    ("endless-loop", PRODUCT, "while True:\n    def f():\n        return 1\n", 1),
    ("unbounded", PRODUCT, "import queue\ndoors = queue.Queue()\n", 2),
    ("unbounded", PRODUCT, "import queue\ndoors = queue.Queue(maxsize=0)\n", 2),
    ("unbounded", PRODUCT, "import queue\ndoors = queue.SimpleQueue()\n", 2),
    ("unbounded", PRODUCT, "a, b = trio.open_memory_channel(math.inf)\n", 1),
    ("unbounded", PRODUCT, "@functools.lru_cache(maxsize=None)\ndef f(): ...\n", 1),
    ("unbounded", PRODUCT, "@functools.cache\ndef f(): ...\n", 1),
    ("unbounded", PRODUCT, "from functools import cache\n", 1),
    ("literal-bound", PRODUCT, "recent = deque(maxlen=1000)\n", 1),
    ("literal-bound", PRODUCT, "a, b = trio.open_memory_channel(64)\n", 1),
    ("decoded-assert", PRODUCT, "def f(data):\n    (size,) = U32.unpack(data)\n    assert size < 9\n", 3),
    ("decoded-assert", CORE, "def f(data):\n    assert int.from_bytes(data) < 9\n", 2),
    (
        "decoded-assert",
        PRODUCT,
        "def f(data):\n    value = msgspec.json.decode(data)\n    for path in value.files:\n        assert path\n",
        4,
    ),
    (
        "decoded-assert",
        PRODUCT,
        "def f(data):\n    a, b = json.loads(data)\n    if a > 1:\n        raise E\n    assert b\n",
        5,
    ),
    ("engine-state", PRODUCT, "def f(engine):\n    return engine.state.catalog\n", 2),
    ("engine-state", "topics/host/planted.py", "lane = self._engine.state.lanes[1]\n", 1),
    ("engine-state", "topics/simulation/planted.py", "opened.engine.state.time.read()\n", 1),
    ("engine-state", PRODUCT, "state = opened.engine.checkpoints._state\n", 1),
    ("impure-import", CORE, "import struct\nimport time\n", 2),
    ("impure-import", CORE, "def f():\n    import os.path\n", 2),
    ("impure-import", CORE, "from random import Random\n", 1),
    ("impure-import", "topics/codec/planted.py", "import blake3\n", 1),
    ("impure-import", CORE, "from topics.host import disk\n", 1),
    ("impure-import", CORE, "from topics import host\n", 1),
    ("impure-import", CORE, "from ..host import disk\n", 1),
    ("impure-import", "topics/log/__init__.py", "from ..testing import clock\n", 1),
    ("impure-builtin", CORE, "def f(path):\n    return open(path)\n", 2),
    ("impure-builtin", CORE, "key = hash\n", 1),
    ("impure-builtin", CORE, "print(1)\n", 1),
    ("impure-builtin", CORE, "eval('1')\n", 1),
    ("impure-builtin", CORE, "exec('1')\n", 1),
    ("impure-builtin", CORE, "input()\n", 1),
    ("impure-builtin", CORE, "__import__('time')\n", 1),
    ("test-sleep", TEST, "import time\n\ndef test_it():\n    time.sleep(1)\n", 4),
    ("test-sleep", "models/test_planted.py", "from time import sleep\n", 1),
    ("test-mock", TEST, "from unittest import mock\n", 1),
    ("test-mock", TEST, "import unittest.mock\n", 1),
    ("test-mock", TEST, "from unittest.mock import MagicMock\n", 1),
    ("test-mock", TEST, "def test_it(monkeypatch):\n    monkeypatch.setattr(a, 'b', 1)\n", 2),
]

HONEST = [
    (PRODUCT, "try:\n    f()\nexcept Exception:\n    log.exception('x')\n"),
    (PRODUCT, "import os  # noqa: F401  re-exported for the plugin\n"),
    (PRODUCT, "x = y  # type: ignore[name-defined]  # defined by the plugin\n"),
    (PRODUCT, "text = 'noqa: F401'\n"),
    (PRODUCT, LONG_DOCSTRING),
    (
        PRODUCT,
        "def f(data):\n    (n,) = U32.unpack(data)\n    if n > 9:\n        raise E\n    assert n < 10\n",
    ),
    (PRODUCT, "def f(value):\n    (bits,) = U64.unpack(F64.pack(value))\n    assert bits\n"),
    ("topics/testing/planted.py", "def f(data):\n    assert json.loads(data)\n"),
    (PRODUCT, "def f():\n    while True:\n        if g():\n            return\n"),
    (PRODUCT, "def f():\n    while True:\n        for x in y:\n            raise ValueError(x)\n"),
    (PRODUCT, "async def f():\n    while True:\n        await g()\n"),
    (PRODUCT, "doors = queue.Queue(limits.DOORS_MAX)\nrecent = deque(maxlen=limits.RECENT_MAX)\n"),
    (PRODUCT, "import time\n\nprint(time.time())\n"),
    ("topics/engine/planted.py", "def f(engine):\n    check_state(engine.state)\n"),
    ("topics/host/planted.py", "state, engine = machine.state, machine.engine\n"),
    (TEST, "def f(engine):\n    assert engine.state.lanes == {}\n"),
    (CORE, "import collections.abc\nfrom topics.codec import frame\nfrom . import errors\n"),
    (CORE, "class Entry:\n    def __hash__(self):\n        return self.hash\n"),
    ("topics/crypto/planted.py", "import blake3\nfrom cryptography.hazmat import primitives\n"),
    ("tests/host/planted.py", "import time\n\nnow = time.time()\n"),
]


@pytest.fixture
def tidy(tmp_path, capsys):
    """Plant a file beside those already planted, run ci/tidy on them all; give its exit code and what it printed."""

    def run(name: str, text: str) -> tuple[int, str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        code = TIDY["main"]([str(tmp_path)])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize(("rule", "name", "text", "line"), BREACHES)
def test_breach_is_found_at_its_line(tidy, rule, name, text, line):
    code, printed = tidy(name, text)

    assert code == 1, printed
    assert f"{name}:{line}: {rule}: " in printed


@pytest.mark.parametrize(("name", "text"), HONEST)
def test_honest_twin_passes(tidy, name, text):
    code, printed = tidy(name, text)

    assert code == 0, printed


def test_a_package_names_each_of_its_modules_and_no_other(tidy):
    tidy(
        "topics/house/__init__.py",
        '"""A house.\n\n    door, wall  what is around\n    roof        what is above\n"""\n',
    )
    tidy("topics/house/door.py", "")
    tidy("topics/house/wall/__init__.py", '"""A wall."""\n')
    code, printed = tidy("topics/house/cellar.py", "")

    assert code == 1
    assert (
        "topics/house/__init__.py:1: unnamed-module: the docstring has no row `cellar  what it is`" in printed
    )
    assert (
        "topics/house/__init__.py:1: unnamed-module: the docstring has a row for roof, which is not there"
        in printed
    )
    assert printed.count("unnamed-module") == 2


def test_a_package_of_more_than_twenty_modules_is_full(tidy):
    names = [f"room_{number}" for number in range(21)]
    tidy("topics/house/__init__.py", f'"""A house.\n\n    {", ".join(names)}  rooms\n"""\n')
    for name in names[:20]:
        code, printed = tidy(f"topics/house/{name}.py", "")
    assert "full-package" not in printed

    code, printed = tidy(f"topics/house/{names[20]}.py", "")

    assert code == 1
    assert "topics/house/__init__.py:1: full-package: 21 modules, 20 at most" in printed


@pytest.mark.parametrize(
    "back",
    [
        "from topics.a.one import f\n",
        "import topics.a.one\n",
        "from topics.a import one\n",
        "if TYPE_CHECKING:\n    from topics.a.one import f\n",
        "def f():\n    from topics.a.one import f\n",
    ],
)
def test_modules_that_import_each_other_are_a_circle_wherever_the_imports_stand(tidy, back):
    tidy("topics/a/one.py", "from topics.a import two\n")
    tidy("topics/a/two.py", "from topics.b.three import g\n")
    code, printed = tidy("topics/b/three.py", "from topics.c import four\n")
    assert code == 0, printed

    code, printed = tidy("topics/b/three.py", back)

    assert code == 1
    assert (
        "topics/a/one.py:1: circle: topics.a.one, topics.a.two, topics.b.three import each other" in printed
    )


def test_a_module_may_ask_its_package_for_what_another_module_of_it_defines(tidy):
    tidy("topics/a/__init__.py", '"""One.\n\none  first\ntwo  second\n"""\nfrom topics.a.one import f\n')
    tidy("topics/a/one.py", "from topics.a import two\n")
    code, printed = tidy("topics/a/two.py", "")

    assert code == 0, printed


def test_a_class_has_a_name_of_its_own_unless_it_is_known_to_share_one(tidy):
    tidy("tests/a/test_one.py", "class Tail: ...\n")
    tidy("topics/a/one.py", "class Tail: ...\n\n\nclass Topic: ...\n")
    code, printed = tidy("topics/b/two.py", "class Topic: ...\n")
    assert code == 0, printed

    code, printed = tidy("topics/b/two.py", "class Topic: ...\n\n\ndef f():\n    class Tail: ...\n")

    assert code == 1
    assert "topics/b/two.py:5: namesake: topics/a/one.py has a class Tail, too" in printed


def test_shape_is_printed_and_asserts_of_the_core_are_counted(tidy):
    dense = "def f{}(x):\n    assert x > 0\n    return x\n"
    code, printed = tidy(CORE, "".join(dense.format(number) for number in range(60)))

    assert code == 0, printed
    assert (
        "60 functions in topics/: median 3 lines, p90 3, max 3; 1.00 asserts a function in the core"
        in printed
    )


def test_core_without_asserts_is_a_finding(tidy):
    code, printed = tidy(CORE, "".join(f"def f{number}(x):\n    return x\n" for number in range(60)))

    assert code == 1
    assert "topics:0: shape: 0.00 asserts a function in the core" in printed


def test_long_median_and_long_tail_are_findings(tidy):
    code, printed = tidy(PRODUCT, functions_of([7] * 55))
    assert code == 0, printed

    code, printed = tidy(PRODUCT, functions_of([10] * 40))
    assert code == 0, "forty functions are too few to judge a median by"

    tidy(PRODUCT, functions_of([10] * 30))
    code, printed = tidy("topics/server/second.py", functions_of([10] * 25 + [36] * 2))
    code, printed = tidy("topics/server/third.py", functions_of([36] * 5))
    assert code == 1
    assert "topics:0: shape: the median function has 10 lines" in printed
    assert "topics:0: shape: one function in ten has 36 lines" in printed


def functions_of(sizes: list[int]) -> str:
    return "".join(f"def f{number}():\n" + "    g()\n" * (size - 1) for number, size in enumerate(sizes))
