"""What tests of several layers share."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
