"""Objects in bodies, field by field: what is known becomes values, the rest is walked over."""

import json
import tracemalloc

import msgspec
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import open_site
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import Limits
from topics.server.api.bodies.fields import FIELD_BYTES_MAX, ClosedForm, decode_form
from topics.server.api.resources.state import DECODED_AT_ONCE, DECODED_INLINE_BYTES_MAX


class Known(msgspec.Struct):
    """A form with a field of each type."""

    a: int | None = None
    b: str | None = None
    c_d: bool | None = None


NAMES = ("a", "b", "c_d")
TYPES = {"a": int, "b": str, "c_d": bool}
OPEN, CLOSED = msgspec.json.Decoder(Known), ClosedForm("Closed", NAMES)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from((*NAMES, "x", "", "null", "c")) | st.text(max_size=3), VALUES)


def refusal(text, *, form=OPEN, **more):
    with pytest.raises(Rejected) as refused:
        decode_form(form, text, **more) if form is OPEN else form.decode(text, **more)
    assert refused.value.code is Code.INVALID_REQUEST
    return refused.value.detail["field"]


@pytest.mark.rule("H0.1")
@given(BODIES, st.booleans(), st.sampled_from((None, 1)))
def test_known_fields_have_their_values_null_is_absent_and_others_may_be_anything(body, ascii_only, indent):
    text = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode()
    known = {name: body[name] for name in NAMES if body.get(name) is not None}
    wrong = {name for name, value in known.items() if type(value) is not TYPES[name]}

    if wrong:
        assert refusal(text) in wrong
    else:
        found = decode_form(OPEN, text)
        assert {name: getattr(found, name) for name in NAMES} == dict.fromkeys(NAMES) | known


@given(BODIES)
@example({"\n": 1})
def test_a_closed_form_has_its_values_null_too_or_names_what_it_does_not_know(body):
    found = CLOSED.decode(json.dumps(body).encode())

    if set(body) <= set(NAMES):
        assert found == body
    else:
        (unknown,) = found
        assert unknown in set(body) - set(NAMES)


@pytest.mark.rule("H1.5")
@pytest.mark.parametrize("form", [OPEN, CLOSED])
def test_what_is_no_json_or_no_object_is_refused_by_name(form):
    for text in (b"[]", b"1", b'"a"', b"null", b"{", b"{}x", b"nul", b"\xff", b'{"b":"\xff"}', b'{"a":NaN}'):
        assert refusal(text, form=form) == "body"
        assert refusal(text, form=form, field="config") == "config"


def test_no_text_is_an_empty_object():
    assert decode_form(OPEN, b"") == decode_form(OPEN, b" {} ") == Known()
    assert CLOSED.decode(b"") == CLOSED.decode(b"{}") == {}


def test_no_text_where_a_field_is_needed_is_called_empty():
    needed = msgspec.defstruct("Needed", [("node", str)])
    with pytest.raises(Rejected, match=r"^body: is empty: node: is missing$"):
        decode_form(msgspec.json.Decoder(needed), b"")


@pytest.mark.rule("H1.17")
def test_a_value_of_another_type_is_refused_with_what_was_expected():
    for value in (b"1.0", b"true", b'"1"', b"[1]", b"1e2"):
        with pytest.raises(
            Rejected, match=r"^a: must be a whole number, not (a decimal number|a boolean|a string|an array)$"
        ):
            decode_form(OPEN, b'{"a":%b}' % value)
    assert refusal(b'{"a":1e999}') == "a"
    assert refusal(b'{"b":1,"a":1e999}', form=CLOSED) == "a"


@pytest.mark.rule("H1.5")
def test_what_nests_too_deep_is_refused_even_where_nobody_looks():
    for depth in (199, 200, 100_000):
        text = b'{"x":%b%b}' % (b"[" * depth, b"]" * depth)
        if depth == 199:
            assert decode_form(OPEN, text) == Known()
        else:
            assert refusal(text) == "body"


def test_what_is_not_known_is_not_built():
    text = b'{"x":[%b],"a":1}' % b",".join([b"[]"] * 300_000)
    tracemalloc.start()
    assert decode_form(OPEN, text) == Known(a=1)
    assert CLOSED.decode(text) == {"x": None}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * len(text), "its lists alone would take twenty times the text"


def test_a_large_field_of_a_closed_form_is_not_built():
    assert CLOSED.decode(b'{"b":"%b"}' % (b"x" * (FIELD_BYTES_MAX - 2))) == {"b": "x" * (FIELD_BYTES_MAX - 2)}
    assert refusal(b'{"b":"%b"}' % (b"x" * (FIELD_BYTES_MAX - 1)), form=CLOSED) == "b"


# Large bodies leave the loop.

LARGE = b'{"x":"%b",' % (b" " * DECODED_INLINE_BYTES_MAX)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("method", "target", "small", "status"),
    [
        ("POST", "/v0/topics/a", b'{"records":[{"data":1}]}', 200),
        ("POST", "/v0/topics/a/diff", b'{"limit":1}', 200),
        ("POST", "/v0/topics/a/delete", b'{"before_seq":1}', 200),
        ("PUT", "/v0/topics/a", b'{"cap_records":1}', 400),
    ],
)
async def test_a_large_body_is_decoded_in_a_thread_while_others_are_served(method, target, small, status):
    async with open_site(limits=Limits()) as site:
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 0}]})
        holders = [object() for _ in range(DECODED_AT_ONCE)]
        for holder in holders:
            await site.decoding.acquire_on_behalf_of(holder)
        answers = []

        async def large():
            answers.append(await ask(site, method, target, LARGE + small[1:]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(large)
            await wait_all_tasks_blocked()
            assert site.decoding.statistics().tasks_waiting == 1, "it is not decoded on the loop"
            assert (await ask(site, method, target, small)).status == 200
            assert answers == []
            for holder in holders:
                site.decoding.release_on_behalf_of(holder)

        assert [answer.status for answer in answers] == [status]
        if status == 400:
            assert fields_of(answers[0])["error"]["detail"] == {"field": "config.x"}
