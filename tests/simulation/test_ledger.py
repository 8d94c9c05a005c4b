"""What was put, and where it goes, by the oracle."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.engine.driving import Driver, records
from topics.engine.commands import Append
from topics.kernel.config import TopicConfig
from topics.simulation.claims import ToldRecord, TopicClaims
from topics.simulation.ledger import Ledger
from topics.simulation.oracle import PromiseBroken
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk


@pytest.mark.parametrize(
    ("refused", "data", "reason", "is_kept"),
    [
        (2, b"null", b"corrupt", True),
        (1, b"null", b"corrupt", False),  # it was to be read again
        (2, b"null", b"expired", False),
        (2, b"8", b"corrupt", False),
    ],
)
def test_a_record_goes_elsewhere_without_its_data_only_if_the_disk_has_refused_it_twice(
    refused, data, reason, is_kept
):
    disk, driver = SimDisk(), Driver()
    ledger = Ledger(disk)
    ledger.claims[3] = TopicClaims(TopicConfig(), {})
    ledger.claims[3].acked[1] = ToldRecord(b"7", b"", b"", timed=False, place=(0, 1))
    disk.inject("read", FaultKind.EIO, times=refused)
    for _ in range(2):
        with suppress(OSError):
            disk.read("LOCK", 0, 1)
    meta = b'{"$dead_letter_reason":"%b"}' % reason
    arriving = records(data, meta=meta, dedup_id=b"dl:3:1:1")
    command = Append(topic="dlq", records=arriving, moved=True)
    if is_kept:
        ledger.asking_of_jobs(driver.engine, command)
        return
    with pytest.raises(PromiseBroken, match="seq 1 was put as"):
        ledger.asking_of_jobs(driver.engine, command)
