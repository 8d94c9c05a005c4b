"""The match language of deletes and filters: what it takes, what it refuses, what it selects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Code, Rejected
from topics.log.reads.match import parse_match
from topics.log.tags import TagIndex

TAGS = [b"", b"a", b"ab", b"abc", b"b", b"a*", "é".encode()]


@pytest.mark.rule("S5.5", "S5.6", "S5.10")
@pytest.mark.parametrize(
    ("given_match", "selected"),
    [
        ("a", [b"a"]),
        (["tag", "Eq", "ab"], [b"ab"]),
        (("tag", "Eq", "ab"), [b"ab"]),
        ("a*", [b"a*"]),
        (["tag", "Glob", "a*"], [b"a", b"ab", b"abc", b"a*"]),
        (["tag", "Glob", "ab*"], [b"ab", b"abc"]),
        (["tag", "Glob", "*"], TAGS[1:]),
        (["tag", "Glob", "x*"], []),
        ("é", ["é".encode()]),
    ],
)
def test_what_a_match_selects(given_match, selected):
    match = parse_match(given_match, tag_bytes_max=256)
    index = TagIndex()
    index.extend(TAGS, 1)

    assert selected == [tag for tag in TAGS if match.accepts(tag)]
    assert sorted(selected) == sorted(index.labels.name(number) for number in match.numbers(index))
    assert match == parse_match(match.wire(), tag_bytes_max=256)


@pytest.mark.rule("S5.7")
@pytest.mark.parametrize(
    "wrong",
    [
        ["tag", "Glob", "a"], ["tag", "Glob", "a*b"], ["tag", "Glob", "*a"], ["tag", "Glob", "a**"],
        ["tag", "Glob", "**"], ["tag", "Glob", ""], ["tag", "Like", "a"], ["tag", "eq", "a"], ["node", "Eq", "a"],
        ["tag", "Eq"], ["tag", "Eq", "a", "b"], ["tag", "Eq", ""], ["tag", "Eq", 5], ["tag", "Eq", None], "", 5,
        None, True, {}, [], b"tag", ["tag", None, "a"], ["tag", "Eq", "x" * 257], "x" * 257,
    ],
)  # fmt: skip
def test_anything_else_is_refused(wrong):
    with pytest.raises(Rejected) as caught:
        parse_match(wrong, tag_bytes_max=256)

    assert Code.INVALID_REQUEST is caught.value.code


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("tag") | st.just("Eq"),
                    lambda inner: st.lists(inner, max_size=4)))  # fmt: skip
def test_no_value_does_anything_but_match_or_be_refused(value):
    try:
        match = parse_match(value, tag_bytes_max=256)
    except Rejected:
        return
    assert not match.accepts(b"")
