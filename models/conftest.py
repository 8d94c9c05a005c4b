"""What is small in every model, so that few steps reach it."""

import pytest

from tests.support.dead_runs import leaving_from


@pytest.fixture(autouse=True, scope="module")
def dead_runs_leave_early():
    """Of three slots on: so runs leave, and shorter ones stay."""
    with leaving_from(3):
        yield
