"""Whoever has topics installed pays next to nothing for the plugin in runs that do not use it."""

from __future__ import annotations

import subprocess
import sys


def test_the_plugin_imports_pytest_and_nothing_else() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import topics.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["topics", "topics.kernel", "topics.kernel.version", "topics.pytest_plugin"]
