"""Frames of a run that another topic has too: the same bytes, the same run, as if they had been encoded for it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, columns
from topics.codec.log.addressing import RunFrames
from topics.codec.log.encode import encode_run

ids, seqs = st.integers(1, 2**64 - 1), st.integers(1, 2**63)


@given(columns(), st.booleans(), st.tuples(ids, seqs), st.lists(st.tuples(ids, seqs), min_size=1, max_size=3))
def test_frames_for_another_topic_are_what_encoding_for_it_makes(records, durable, first, others):
    def encoded(topic_id, seq):
        return encode_run(topic_id, seq, TS, records, durable=durable, keyed=None, write_frames=0)

    frames = RunFrames(*encoded(*first))

    assert all(frames.of(*other) == encoded(*other) for other in (*others, first))
