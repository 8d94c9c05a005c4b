"""Runs of dead slots that leave the index earlier than they do, or never."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from topics.log.placing import leaving


@contextmanager
def leaving_from(slots: int) -> Iterator[None]:
    """From so many slots on a run leaves, and every look is paid for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "RUN_MIN", slots)
        patch.setattr(leaving, "PAID_FOR", 1 << 40)
        yield
