"""The keys of a server: who is asking, what he may, and what becomes of it when they are read again."""

from __future__ import annotations

import hashlib
import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Rejected
from topics.server.auth.keys import Key, KeyCaps, Keys
from topics.server.auth.lines import ANY_NAME, parse_lines
from topics.server.auth.scopes import ALL_SCOPES, Scope

TEXT = "one\ntwo:read:a.|b.\nthree:read+write\n"


def keys(text: str = TEXT, **caps: int) -> Keys:
    return Keys(parse_lines(text), KeyCaps(**caps))


def code(call, *given, **named) -> str:
    with pytest.raises(Rejected) as refused:
        call(*given, **named)
    return refused.value.code.value


@pytest.mark.rule("H2.4")
def test_a_key_is_found_and_what_is_like_one_is_not():
    found = keys()

    assert found.find(b"one").scopes == ALL_SCOPES
    assert found.find(b"two").prefixes == ("a.", "b.")
    for other in (b"", b"One", b"one ", b"on", b"onee", b"two:read", b"\xff", b"sha256"):
        assert found.find(other) is None


@pytest.mark.rule("H2.4")
def test_every_digest_is_compared_in_constant_time_whichever_it_is():
    """No clock can show it in a test, so the words of it are looked at."""
    words = inspect.getsource(Keys.find)

    assert words.count("compare_digest(") == 1
    assert not re.search(r"\bbreak\b|==|\bin digest", words)
    assert words.count("return") == 1


def test_with_auth_off_everybody_may_everything():
    off = Keys()

    assert not off.is_on
    off.anybody.check_scopes(ALL_SCOPES, "x")
    off.anybody.check_name("$any")
    off.anybody.check_unlimited("x")
    assert off.anybody.ranges("p") == ["p"]


@pytest.mark.rule("H11.13")
def test_with_auth_off_there_are_no_caps():
    anybody = Keys(None, KeyCaps(streams=1, requests=1)).anybody
    for _ in range(3):
        anybody.begin_request(0.0)
        anybody.begin_stream()
    assert (anybody.requests, anybody.streams) == (3, 3)


@pytest.mark.rule("H11.17")
def test_a_cap_is_a_keys_own_and_what_ended_makes_room():
    found = keys(streams=2, requests=1)
    one, two = found.find(b"one"), found.find(b"two")
    one.begin_request(0.0)

    with pytest.raises(Rejected) as refused:
        one.begin_request(0.0)
    assert refused.value.code.value == "throttled"
    assert refused.value.detail == {"limit": "requests_per_key", "max": 1}
    two.begin_request(0.0)
    one.requests -= 1
    one.begin_request(0.0)
    one.begin_stream()
    one.begin_stream()
    assert code(one.begin_stream) == "throttled"
    one.end_stream()
    one.begin_stream()


def test_zero_is_no_cap():
    one = keys(streams=0, requests=0).find(b"one")
    for _ in range(2000):
        one.begin_request(0.0)
        one.begin_stream()
    assert (one.requests, one.streams) == (2000, 2000)


def test_a_scope_that_is_missing_is_named():
    three = keys().find(b"three")
    three.check_scopes(frozenset({Scope.READ, Scope.WRITE}), "x")

    with pytest.raises(Rejected, match=r"key: DELETE /v0/x needs the scope admin\+delete") as refused:
        three.check_scopes(frozenset({Scope.ADMIN, Scope.DELETE, Scope.READ}), "DELETE /v0/x")
    assert refused.value.code.value == "forbidden"


def test_a_refusal_says_which_key_it_was_by_its_name_or_id_as_they_are_now():
    found = keys("secret:read:a. # reports\nother::a.\n")
    found.replace(parse_lines("secret:read:a. # dashboards\nother::a.\n"))
    named, nameless = found.find(b"secret"), found.find(b"other")
    token_id = hashlib.sha256(b"other").hexdigest()[:12]

    for refused, message in (
        (
            lambda: named.check_scopes(frozenset({Scope.WRITE}), "x"),
            "key: x needs the scope write, which it has not (key 'dashboards')",
        ),
        (
            lambda: named.check_name("b"),
            "topic: 'b' does not begin with a prefix of this key (key 'dashboards')",
        ),
        (
            lambda: nameless.check_unlimited("x"),
            f"key: x is about the whole server, and this key has prefixes (key '{token_id}')",
        ),
    ):
        with pytest.raises(Rejected) as error:
            refused()
        assert error.value.message == message


def test_a_name_is_seen_within_a_prefix():
    two = keys().find(b"two")

    assert [two.sees(name) for name in ("a.", "a.x", "b.1", "a", "ab", "c.a.", "A.x", "$a.x", "")] == [
        True, True, True, False, False, False, False, False, False,
    ]  # fmt: skip
    assert code(two.check_name, "c") == "forbidden"
    assert code(two.check_unlimited, "x") == "forbidden"
    assert not Keys().stranger.sees("a")


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=5),
    st.text("ab", max_size=3),
    st.lists(st.text("ab", min_size=1, max_size=5), unique=True),
)
def test_the_ranges_of_a_prefix_are_the_names_it_sees_in_order(prefixes, prefix, names):
    key = Key(ALL_SCOPES, tuple(prefixes), KeyCaps())
    listed = [name for one in key.ranges(prefix) for name in sorted(names) if name.startswith(one)]

    assert sorted(name for name in names if key.sees(name) and name.startswith(prefix)) == listed


# Read again.


@pytest.mark.rule("O3.9")
def test_a_key_that_means_the_same_is_the_same_and_every_other_is_revoked():
    found = keys()
    before = {name: found.find(name) for name in (b"one", b"two", b"three")}
    revoked = found.replace(parse_lines("two:r:b.|a. # renamed\nthree:read\nfour\n"))
    after = {name: found.find(name) for name in (b"one", b"two", b"three", b"four")}

    assert revoked == 2
    assert after[b"one"] is None
    assert after[b"two"] is before[b"two"]
    assert after[b"three"] is not before[b"three"]
    assert {name: key.revoked for name, key in before.items()} == {
        b"one": True,
        b"two": False,
        b"three": True,
    }
    assert len(found) == 3
    assert found.replace(()) == 3
    assert found.is_on


def test_whoever_is_bound_is_told_once():
    found = keys()
    one, told = found.find(b"one"), []
    first, second, third = (lambda: told.append(1)), (lambda: told.append(2)), (lambda: told.append(3))
    one.bind(first)
    one.bind(second)
    one.bind(third)
    one.unbind(second)
    one.unbind(second)
    found.replace(())

    assert sorted(told) == [1, 3]
    one.bind(second)  # later than that, so at once
    assert sorted(told) == [1, 2, 3]


def test_any_name_is_no_prefix():
    assert keys().find(b"one").prefixes == ANY_NAME


def test_a_key_was_used_by_the_last_request_that_was_let_in():
    one = keys(requests=1).find(b"one")
    assert one.used is None
    one.begin_request(7.5)
    assert code(one.begin_request, 9.0) == "throttled"

    assert one.used == 7.5
