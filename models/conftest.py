"""What is small in every model, so that few steps reach it."""

import pytest

from topics.log import leaving


@pytest.fixture(autouse=True, scope="module")
def dead_runs_leave_at_once():
    """Of three slots on: so runs leave, and shorter ones stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "RUN_MIN", 3)
        patch.setattr(leaving, "PAID_FOR", 1 << 40)
        yield
