"""Changing a topic: barriers, class changes, lowered and raised retention, and what an ephemeral time leaves behind."""

import pytest

from tests.engine.driving import Driver
from topics.engine import verify


@pytest.mark.invariant("I-09")
def test_a_prefix_deleted_while_ephemeral_is_the_same_in_the_log_of_the_class_after():
    driver = Driver()
    driver.put(durability="ephemeral")
    driver.append(1, 2)
    driver.delete(before_seq=3)
    driver.put(durability="disk")

    assert verify.digest(driver.replay()) == verify.digest(driver.engine.state.catalog)
