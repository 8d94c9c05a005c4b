"""Records that all carry the same labels are encoded by columns: the same bytes, the same run as one by one."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from topics.codec.log.encode import encode_run
from topics.codec.log.run import Keyed
from topics.kernel.columns import RecordColumns, Texts

texts = st.binary(min_size=1, max_size=9)


@given(
    st.data(), st.integers(1, 5), st.sets(st.sampled_from(["tag", "node", "meta"]), min_size=1), st.booleans(),
    st.booleans(), st.none() | st.builds(Keyed, texts, st.integers(0, 2**64 - 1)), st.booleans(),
)  # fmt: skip
def test_columns_and_single_frames_are_the_same_bytes(data, count, labels, durable, in_body, keyed, begins):
    """Also where the payloads still lie in the body they came in."""

    def column():
        return data.draw(st.lists(texts, min_size=count, max_size=count))

    datas, frames = column(), count if begins or keyed else 0
    columns = {name: column() for name in labels}
    given_data = Texts([Raw(text) for text in datas]) if in_body else datas
    records = RecordColumns(given_data, **columns)
    one = encode_run(7, 3, 11, records, durable=durable, keyed=keyed, write_frames=frames)
    assert records.labelled
    twin = RecordColumns(datas, key=[b""] * count, **columns)
    assert not twin.labelled
    other = encode_run(7, 3, 11, twin, durable=durable, keyed=keyed, write_frames=frames)

    assert one[0] == other[0]
    for name in ("lengths", "sizes", "flags", "tags", "nodes", "keyed"):
        assert getattr(one[1], name) == getattr(other[1], name), name


@given(st.lists(texts, min_size=1), st.integers(-5, 5), st.integers(-5, 5))
def test_texts_are_the_sequence_of_their_bytes(datas, start, stop):
    held = Texts([Raw(text) for text in datas])

    assert (list(held), len(held), held[start:stop]) == (datas, len(datas), datas[start:stop])
    assert [held[i] for i in range(-len(datas), len(datas))] == datas * 2
