"""The four classes and their stages: who is published when written, who when synced, and what `durable_seq` says."""

import pytest

from tests.engine.driving import Driver
from topics.engine.commands import Sync
from topics.engine.tickets import Stage

LOGGED = ["memory", "disk", "fsync"]


@pytest.mark.rule("S1.4")
def test_a_topic_that_becomes_ephemeral_forgets_what_waited_for_a_sync():
    driver = Driver()
    driver.put(durability="disk")
    driver.append(1, 2)
    driver.delete(before_seq=3)
    driver.put(durability="ephemeral")  # its sync also covers the writes before

    assert driver.state().durable_seq == 0
