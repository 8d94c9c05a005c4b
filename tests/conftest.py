"""What tests of several layers share."""

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

NOBODY: Final = 65534


@contextmanager
def _as_nobody() -> Iterator[None]:
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
        importlib.invalidate_caches()  # nobody may not be able to read our modules either


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """Root may read and write anything, so what is within it runs as nobody: `with as_nobody(): ...`."""
    return _as_nobody


@pytest.fixture
def no_superuser(as_nobody: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """All of a test of permissions runs as nobody."""
    with as_nobody():
        yield


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a disk, where the gate has `tmp_path` in memory. Systems keep /var/tmp over a restart."""
    with tempfile.TemporaryDirectory(prefix="topics-", dir="/var/tmp") as found:
        path = Path(found) / "here"  # what a test puts beside it goes, too
        path.mkdir()
        yield path
