"""Keys as they are written: every form, and what is said of one that is none."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.limits import API_KEY_CHARS_MAX, API_KEYS_MAX
from topics.server.auth.lines import (
    ANY_NAME,
    KeyLine,
    Malformed,
    digest_of,
    parse_key,
    parse_keys,
    parse_line,
    parse_lines,
)
from topics.server.auth.scopes import ALL_SCOPES, Scope

R, W, D, A = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN
HEX = digest_of("k").hex()
KEYS = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",:"), min_size=1
).filter(lambda text: text[0] != "#" and text != "sha256")
PREFIXES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True)
SCOPES = st.frozensets(st.sampled_from(Scope), min_size=1)
LINES = st.builds(
    KeyLine,
    digest=st.binary(min_size=32, max_size=32),
    scopes=SCOPES,
    prefixes=st.one_of(st.just(ANY_NAME), st.lists(PREFIXES, min_size=1, unique=True).map(tuple)),
    name=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).map(str.strip),
)


@pytest.mark.rule("H2.2")
@pytest.mark.parametrize(
    ("text", "scopes", "prefixes"),
    [
        ("k", ALL_SCOPES, ANY_NAME),
        ("k:", ALL_SCOPES, ANY_NAME),
        ("k::", ALL_SCOPES, ANY_NAME),
        ("k:read", {R}, ANY_NAME),
        ("k:r+w", {R, W}, ANY_NAME),
        ("k:rw+d", {R, W, D}, ANY_NAME),
        ("k:read+write+delete+admin", {R, W, D, A}, ANY_NAME),
        ("k:a:orders.", {A}, ("orders.",)),
        ("k:a:orders.|audit:x", {A}, ("orders.", "audit:x")),
        ("k::orders.", ALL_SCOPES, ("orders.",)),
        (f"sha256:{HEX}", ALL_SCOPES, ANY_NAME),
        (f"sha256:{HEX.upper()}:r:b|c", {R}, ("b", "c")),
        (f"sha256:{HEX}::b", ALL_SCOPES, ("b",)),
    ],
)
def test_a_key_in_each_of_its_forms(text, scopes, prefixes):
    line = parse_key(text, where="")

    assert (line.digest, line.scopes, line.prefixes) == (digest_of("k"), frozenset(scopes), prefixes)


@pytest.mark.rule("H2.3")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the key is missing"),
        (":read", "the key is missing"),
        ("a b", "visible ASCII"),
        ("#k", "visible ASCII"),
        ("kéy", "visible ASCII"),
        ("k" * (API_KEY_CHARS_MAX + 1), "more than 4096 characters"),
        ("s3cret:s3cret", "the scopes, behind the key and a colon: read, write"),
        ("k:Read", "the scopes"),
        ("k:read+", "the scopes"),
        ("k:read write", "the scopes"),
        ("k:*", "the scopes"),
        ("k::-s3cret", "the prefixes, behind the scopes and a colon: beginnings of names"),
        ("k::a||b", "the prefixes"),
        ("k::a|", "the prefixes"),
        ("k::a*", "the prefixes"),
        ("k:::a", "the prefixes"),
        ("sha256", "behind sha256: come 64 hex digits"),
        ("sha256:s3cret", "64 hex digits"),
        (f"sha256:{HEX}0", "64 hex digits"),
        (f"sha256:{HEX}:s3cret", "the scopes"),
    ],
)
def test_what_is_no_key_is_told_by_its_place_and_never_by_what_it_is(text, what):
    with pytest.raises(Malformed) as refused:
        parse_key(text, where="line 7")

    assert str(refused.value).startswith("line 7: ")
    assert what in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.rule("H2.1")
def test_the_variable_has_keys_between_commas():
    lines = parse_keys(" one , two:read, three::x ")

    assert [line.digest for line in lines] == [digest_of(key) for key in ("one", "two", "three")]
    for text, what in [
        ("", "holds no key"), (" , ", "holds no key"), ("a,,b", "key 2: the key is missing"),
        ("a,b,a:read", "key 3: the same key as in key 1"), (f"k,sha256:{HEX}", "key 2: the same key as in key 1"),
    ]:  # fmt: skip
        with pytest.raises(Malformed, match=what):
            parse_keys(text)


def test_a_file_has_a_key_a_line_and_names_and_comments():
    lines = parse_lines(
        f"# ours\n\none:read  # the dashboards, of 2026\r\n  \ntwo#x\t#\nsha256:{HEX} # a # b\n"
    )

    assert [(line.digest, line.name) for line in lines] == [
        (digest_of("one"), "the dashboards, of 2026"),
        (digest_of("two#x"), ""),
        (digest_of("k"), "a # b"),
    ]
    assert parse_lines("# nothing\n\n") == ()


@pytest.mark.rule("H2.3")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a\nb s3cret", "line 2: white space"),
        ("a\n\nb:s3cret", "line 3: the scopes"),
        ("# x\na\na", "line 3: the same key as in line 2"),
        ("a # s3cret\x07", "line 1: its name"),
        ("a # " + "x" * 129, "line 1: its name"),
        ("\n".join(map(str, range(API_KEYS_MAX + 1))), "line 1001: more than 1000 keys"),
    ],
)
def test_a_line_that_is_malformed_is_named(text, what):
    with pytest.raises(Malformed, match=re.escape(what)) as refused:
        parse_lines(text)

    assert "s3cret" not in str(refused.value)


@given(LINES)
def test_a_line_is_read_as_it_was_written(line):
    assert parse_line(str(line), where="") == attrs.evolve(
        line, prefixes=tuple(dict.fromkeys(line.prefixes)), name=line.name
    )


@given(KEYS, st.one_of(st.just(frozenset[Scope]()), SCOPES), st.lists(PREFIXES))
def test_a_plain_key_means_what_its_digest_does(key, scopes, prefixes):
    grants = f"{'+'.join(scopes)}:{'|'.join(prefixes)}"
    plain, hashed = (
        parse_line(f"{one}:{grants}", where="") for one in (key, f"sha256:{digest_of(key).hex()}")
    )

    assert plain == hashed


@given(st.text())
def test_whatever_a_file_holds_it_is_keys_or_malformed(text):
    try:
        lines = parse_lines(text)
    except Malformed:
        return
    assert parse_lines("".join(f"{line}\n" for line in lines)) == lines
