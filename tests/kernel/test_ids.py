"""Names of topics, and the shard a topic lives on."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import check_topic_name, shard_of

FIRST = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.rule("S3.27")
@given(st.sampled_from(FIRST), st.text(FIRST + "._:-", max_size=254))
def test_a_name_of_the_alphabet_is_taken_as_it_is(first, rest):
    assert first + rest == check_topic_name(first + rest)


@pytest.mark.rule("S3.27", "S3.29")
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        ".a",
        "_a",
        "-a",
        ":a",
        "$a",
        "$",
        "a b",
        "a\n",
        "\na",
        "a/b",
        "a>b",
        "a\0",
        "é",
        "ａ",
        "٣",
        "a" * 256,
        "a$",
    ],
)
def test_any_other_name_is_refused(name):
    with pytest.raises(Rejected) as caught:
        check_topic_name(name)

    assert Code.INVALID_REQUEST is caught.value.code


@pytest.mark.rule("S3.27")
def test_the_longest_name_has_255_characters():
    assert check_topic_name("a" * 255) == "a" * 255


@pytest.mark.rule("S3.27")
@given(st.one_of(st.text(max_size=20), st.none(), st.integers(), st.binary(), st.booleans()))
def test_what_is_taken_begins_with_a_letter_or_digit_of_ascii_and_stays_in_the_alphabet(name):
    try:
        check_topic_name(name)
    except Rejected:
        return

    assert name[0] in FIRST
    assert set(name) <= set(FIRST + "._:-")


@pytest.mark.rule("T3.2")
@given(st.integers(1, 2**64 - 1), st.integers(1, 64))
def test_a_shard_is_the_hash_of_the_numeric_id(topic_id, shards):
    assert xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards == shard_of(topic_id, shards)
