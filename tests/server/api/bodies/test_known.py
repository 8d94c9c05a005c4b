"""Labels that were checked before are found again, and a flood of them takes no more memory than a handful."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Rejected
from topics.kernel.limits import Limits
from topics.server.api.bodies.known import (
    KNOWN_BYTES_MAX,
    KNOWN_MAX,
    LOOKED_EVERY,
    MISSES_MAX,
    KnownLabels,
    KnownTexts,
)
from topics.server.api.bodies.writes import decode_write

LIMITS = Limits(tag_bytes=4, node_bytes=3, meta_bytes=24, meta_keys=2)
labels = st.none() | st.text("aé", max_size=5) | st.sampled_from(["\ud800", "\0", 5])
metas = st.sampled_from([
    "null", "{}", "{ }", '{"a":"b"}', '{"a": "b"}', '{"a":"b","a":"c"}', '{"a":"\\u0062"}', '{"$a":"b"}', '{"a":"$"}',
    '{"a":1}', '{"a":"b","b":"","c":""}', "[]", '{"a":"%s"}' % ("x" * 30), '{"a":%s}' % ("[" * 250 + "]" * 250),
])  # fmt: skip
rows = st.lists(st.tuples(labels, labels, st.none() | metas), min_size=1, max_size=4)


def body_of(labelled) -> bytes:
    records = []
    for tag, node, meta in labelled:
        fields = {"data": 1, "tag": tag, "node": node}
        text = json.dumps({name: value for name, value in fields.items() if value is not None})
        records.append(text if meta is None else f'{text[:-1]},"meta":{meta}}}')
    return b'{"records":[%b]}' % ",".join(records).encode()


def outcome(body: bytes, known: KnownLabels | None):
    try:
        records = decode_write("t", body, LIMITS, auto_create=True, known=known).command.records
    except Rejected as refused:
        return refused.code, refused.message, refused.detail
    return list(records.data), records.tag, records.node, records.meta


@given(st.lists(rows, min_size=2, max_size=4))
def test_a_write_is_the_same_whatever_was_known_before(writes):
    """A refusal, too, names the same field for the same reason."""
    known = KnownLabels()
    for body in [body_of(labelled) for labelled in writes] * 2:
        assert outcome(body, known) == outcome(body, None)


def test_what_was_learnt_is_found_and_the_rest_is_not():
    known = KnownTexts(None)
    known.learn(["a", None, "b"], [b"a", b"", b"b"])

    assert known.column(["b", None, "a", "a"]) == [b"b", b"", b"a", b"a"]
    assert known.column(["a", "c"]) is None
    assert known.column([]) == []


def test_a_flood_of_labels_is_forgotten_in_time_and_long_ones_are_never_kept():
    known = KnownTexts(b"")
    most = 0
    for first in range(0, 40 * KNOWN_MAX, 100):
        texts = [b"%d" % i for i in range(first, first + 100)]
        known.learn(texts, texts)
        most = max(most, len(known))
        assert known.column(texts) == texts
    assert most <= KNOWN_MAX
    assert known.column([b""]) == [b""]

    long = b" " * KNOWN_BYTES_MAX + b"{}"
    known.learn([long], [b""])
    assert known.column([long]) is None
    many = [b"%d" % i for i in range(KNOWN_MAX + 1)]
    known.learn(many, many)
    assert len(known) <= KNOWN_MAX


def test_labels_that_never_come_again_are_not_learnt_for_ever_and_those_that_do_are_found_soon():
    known, told = KnownTexts(b""), 0
    for i in range(100 * MISSES_MAX):
        before, text = len(known), b"%d" % i
        assert known.column([text]) is None
        known.learn([text], [text])
        told += len(known) != before
    assert MISSES_MAX < told <= MISSES_MAX + 100 * MISSES_MAX // LOOKED_EVERY + 1

    def asked_until_found() -> int:
        for asked in range(1, 100):
            if known.column([b"a"]) is not None:
                return asked
            known.learn([b"a"], [b"a"])
        raise AssertionError("it is never found")

    assert asked_until_found() <= 2 * LOOKED_EVERY
    assert asked_until_found() == 1


@pytest.mark.parametrize("kind", ["tags", "nodes", "metas"])
def test_a_server_keeps_what_its_clients_label_with(kind: str):
    known = KnownLabels()
    outcome(body_of([("a", "b", '{"a": "b"}')]), known)

    assert len(getattr(known, kind)) == 1
