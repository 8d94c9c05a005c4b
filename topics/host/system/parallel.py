"""Blocking calls at once, when none depends on another: a file system syncs many files for little more than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

AT_ONCE: Final = 16
_FEW: Final = 3  # as fast one after the other


def call_all(call: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call it with each path. All have ended on return; raises what the first of them raised, in their order."""
    if len(paths) <= _FEW:
        for path in paths:
            call(path)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(paths)), thread_name_prefix="topics-sync") as pool:
        for ended in [pool.submit(call, path) for path in paths]:
            ended.result()
