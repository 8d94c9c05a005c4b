"""What the types of topics differ in: a log takes nothing that is said of jobs, and no type folds another's frames."""

from __future__ import annotations

import pytest

from topics.codec.log.control import Control
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, TopicType
from topics.kernel.errors import Rejected
from topics.log.kinds import kind_of
from topics.log.topic import Topic

JOBS = [("priority", 3), ("delay_ms", 10)]


def topic_of_type(name):
    return Topic(1, "t", 1, TopicConfig(type=name))


@pytest.mark.parametrize("field", [name for name, _ in JOBS])
@pytest.mark.parametrize(("value", "refused"), [(None, False), (0, True), (3, True)])
def test_a_log_refuses_what_is_said_of_a_job(field, value, refused):
    topic = topic_of_type(TopicType.LOG)
    records = RecordColumns([b"1", b"2"], **{field: [None, value]})
    if not refused:
        kind_of(topic).check_records(topic, records)
        return
    with pytest.raises(Rejected, match=f"topic 't' is a log; only a queue takes {field}"):
        kind_of(topic).check_records(topic, records)


@pytest.mark.parametrize(("field", "value"), JOBS)
def test_a_queue_takes_it(field, value):
    topic = topic_of_type(TopicType.QUEUE)
    kind_of(topic).check_records(topic, RecordColumns([b"1"], **{field: [value]}))


@pytest.mark.parametrize("name", TopicType)
def test_a_frame_that_no_rule_folds_is_our_mistake(name):
    topic = topic_of_type(name)
    frame = Control(99, 1, 5, object(), 0, 46, durable=False, write_frames=1)
    with pytest.raises(AssertionError, match="topic 't': no rule"):
        kind_of(topic).fold(topic, frame)
