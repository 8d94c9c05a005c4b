"""The history of one job, by the log alone."""

import pytest

from tests.support.sample_store import CLICKS, JOBS, build, disk_of
from topics.audit.job_history import job_history
from topics.kernel.errors import Code, Rejected


@pytest.fixture(scope="module")
def disk():
    return disk_of(build().files)


def test_a_job_that_failed_twice_is_followed_to_its_dead_letter(disk):
    events = list(job_history(disk, "here", JOBS, 3))

    assert [(one.event, one.node, one.reason or one.dest) for one in events] == [
        ("put", None, None),
        ("claimed", "w1", None),
        ("released", "w1", "no paper"),
        ("claimed", "w0", None),
        ("released", "w0", "no paper"),
        ("dead_lettered", None, "no paper"),
        ("moved", None, None),
    ]
    assert events[1].lease_id == events[2].lease_id != events[3].lease_id == events[4].lease_id
    assert [one.ts for one in events] == sorted(one.ts for one in events)
    assert all(disk.size(one.file) > one.offset > 0 for one in events)


def test_what_was_extended_has_its_new_deadline(disk):
    claimed, extended, acked = list(job_history(disk, "here", JOBS, 6))[-3:]

    assert (claimed.event, extended.event, acked.event) == ("claimed", "extended", "acked")
    assert extended.deadline == claimed.deadline + 20_000


def test_nothing_is_said_of_what_is_not_there(disk):
    assert list(job_history(disk, "here", JOBS, 99)) == []
    for name, code in ((CLICKS, Code.NOT_A_QUEUE), ("none", Code.TOPIC_NOT_FOUND)):
        with pytest.raises(Rejected) as refused:
            list(job_history(disk, "here", name, 1))
        assert refused.value.code is code
