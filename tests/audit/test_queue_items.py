"""All that the log tells of one queue, frame by frame."""

import pytest

from tests.support.sample_store import CLICKS, JOBS, build, disk_of
from topics.audit.queue_items import queue_items
from topics.codec.log.leases import Acked, Claimed
from topics.kernel.errors import Code, Rejected


def test_frames_of_one_queue_are_given_in_the_order_of_the_log():
    disk = disk_of(build().files)
    found = [getattr(at.item, "payload", at.item) for at in queue_items(disk, "here", JOBS)]

    claimed = next(i for i, one in enumerate(found) if isinstance(one, Claimed))
    acked = next(i for i, one in enumerate(found) if isinstance(one, Acked))
    assert 0 < claimed < acked


@pytest.mark.parametrize(("name", "code"), [("none", Code.TOPIC_NOT_FOUND), (CLICKS, Code.NOT_A_QUEUE)])
def test_what_is_no_queue_has_none(name, code):
    with pytest.raises(Rejected) as refused:
        queue_items(disk_of(build().files), "here", name)
    assert refused.value.code is code
