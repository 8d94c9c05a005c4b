"""Records that all carry the same labels are encoded by columns: the same bytes, the same run as one by one."""

from hypothesis import given
from hypothesis import strategies as st

from topics.codec.encode import encode_run
from topics.kernel.columns import RecordColumns

texts = st.binary(min_size=1, max_size=9)


@given(
    st.data(), st.integers(1, 5), st.sets(st.sampled_from(["tag", "node", "meta"]), min_size=1), st.booleans()
)
def test_columns_and_single_frames_are_the_same_bytes(data, count, labels, durable):
    def column():
        return data.draw(st.lists(texts, min_size=count, max_size=count))

    records = RecordColumns(column(), **{name: column() for name in labels})
    one = encode_run(7, 3, 11, records, durable=durable, keyed=None, write_frames=count)
    assert records.labelled
    twin = RecordColumns(
        records.data, tag=records.tag, node=records.node, meta=records.meta, key=[b""] * count
    )
    assert not twin.labelled
    other = encode_run(7, 3, 11, twin, durable=durable, keyed=None, write_frames=count)

    assert one[0] == other[0]
    for name in ("lengths", "sizes", "flags", "tags", "nodes"):
        assert getattr(one[1], name) == getattr(other[1], name), name
