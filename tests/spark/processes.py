"""Spark in a process of its own. In the end, whatever has become of it, it is killed with every Java it started."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]


@contextlib.contextmanager
def python(*arguments: str, log: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A Python with these arguments; what it says on stderr is added to `log`."""
    with log.open("ab") as told:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
