"""A large body is decoded in pieces: what it becomes is the same, and what is refused was not built first."""

import gc
import gzip
import json
import tracemalloc

import msgspec
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import open_site
from topics.kernel.errors import Rejected
from topics.kernel.limits import MIB, Limits
from topics.server.api.bodies import pieces
from topics.server.api.bodies import writes as writing
from topics.server.api.bodies.pieces import JsonWalk, check_utf8, slimmed, write_pieces
from topics.server.api.bodies.writes import decode_write
from topics.server.api.resources.reads import decode_reading
from topics.server.api.resources.records import decode_delete

LIMITS = Limits()
MANY = 300_000


def outcome_of(body: bytes, limits: Limits = LIMITS):
    """What the body becomes, or how it is refused."""
    try:
        wish = decode_write("t", body, limits, auto_create=True)
    except Rejected as refused:
        return refused.code, refused.detail.get("field")
    records, command = wish.command.records, wish.command
    optional = {name: getattr(records, name) for name in ("node", "tag", "key", "meta", "dedup_id", "ttl_ms")}
    columns = {name: None if column is None else list(column) for name, column in optional.items()}
    return list(records.data), records.sizes, columns, command.config, command.create, wish.return_seqs


def in_pieces(body: bytes, *, run_bytes: int, limits: Limits = LIMITS):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "PIECED_BYTES_MIN", 0)
        patch.setattr(pieces, "RUN_BYTES", run_bytes)
        return outcome_of(body, limits)


values = st.recursive(
    st.none() | st.integers(-5, 5) | st.sampled_from(["}, {", '"}],', "\\", "é", "]}", "😀"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
records = st.fixed_dictionaries(
    {"data": values},
    optional={
        "tag": st.sampled_from(["t", "é", "", 5]),
        "node": st.sampled_from(["n", None]),
        "key": st.just("k"),
        "meta": st.sampled_from([{"a": "b"}, {}, {"a": 1}, None]),
        "ttl_ms": st.sampled_from([5, -1, 1.5]),
        "other": values,
    },
)
writes = st.fixed_dictionaries(
    {"records": st.lists(records, max_size=8)},
    optional={
        "node": st.sampled_from(["n", ""]),
        "create": st.booleans(),
        "x": values,
        "config": st.just({}),
    },
)


@given(writes, st.integers(1, 120), st.sampled_from([None, 1]), st.booleans())
@example({"records": [{"data": [{}, {"a": 1}]}, {"data": 1}]}, 14, None, False)
def test_a_write_in_pieces_is_the_write(write, run_bytes, indent, ascii_only):
    body = json.dumps(write, indent=indent, ensure_ascii=ascii_only).encode()

    whole, pieced = outcome_of(body), in_pieces(body, run_bytes=run_bytes)
    if len(whole) == 2:  # of two faults another may be named
        assert (len(pieced), pieced[0]) == (2, whole[0])
    else:
        assert pieced == whole


@given(writes, st.data())
def test_a_body_that_is_broken_somewhere_is_refused_in_pieces_too(write, data):
    body = json.dumps(write, ensure_ascii=False).encode()
    at = data.draw(st.integers(0, len(body) - 1))
    broken = (
        body[:at]
        + data.draw(st.sampled_from([b"", b"\xff", b"}", b'"', b",", b"\x00", b"]"]))
        + body[at + 1 :]
    )
    whole, pieced = outcome_of(broken), in_pieces(broken, run_bytes=30)

    if len(whole) == 2:
        assert len(pieced) == 2, f"whole it is refused: {whole}"
        assert pieced[0] == whole[0]
    else:
        assert pieced == whole


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{} x", b'{"a"}', b'{"a":1,}', b"{1:2}", b'{"a":tru', b'{"a" 1}']
)
def test_what_is_no_object_is_refused_by_name(text):
    with pytest.raises(Rejected, match=r"^body: (is not JSON|must be an object)"):
        list(slimmed(text, ()))


def test_an_error_in_a_piece_names_the_record_of_the_whole():
    write = {"records": [{"data": n} for n in range(100)]}
    write["records"][77]["tag"] = 5
    body = json.dumps(write).encode()

    assert in_pieces(body, run_bytes=50) == outcome_of(body) == ("invalid_request", "records[77].tag")


def test_the_decoder_names_the_byte_at_which_something_else_follows():
    """What the walk stands on; nothing documents it."""
    for value in (b"1", b"-1.5e3", b'"a"', b'"\xc3\xa9\\n"', b"[]", b'{"a":[1]}', b"true", b"null"):
        for behind in (b",", b"]", b"}", b":", b"  ,", b" \n]"):
            walk = JsonWalk(value + behind)
            assert bytes(walk.value("x")).rstrip() == value
            assert walk.at == len(value + behind) - 1


def test_records_that_are_given_twice_are_not_added_up():
    body = b'{"records":[{"data":1}],"records":[{"data":2}]}'

    assert outcome_of(body)[0] == [b"2"]
    assert in_pieces(body, run_bytes=30) == ("invalid_request", "records")


def test_utf8_is_checked_in_slices():
    text = "aé€😀ü".encode() * 20
    check_utf8(text, field="body", slice_bytes=5)
    for at in range(len(text)):
        if text[at] < 0x80:
            continue
        broken = text[:at] + b"\xff" + text[at + 1 :]
        with pytest.raises(UnicodeDecodeError) as expected:
            broken.decode()
        with pytest.raises(Rejected) as refused:
            check_utf8(broken, field="body", slice_bytes=5)
        assert refused.value.message == f"body: is not UTF-8 (byte {expected.value.start})"


def test_no_piece_is_large():
    data = b'{"data":[%b{}]}' % (b'{"a":1},' * 1000)
    body = b'{"records":[%b]}' % b",".join([data] * 300 + [b'{"data":1}'] * 9000)
    sizes = [len(piece) for piece in write_pieces(body, (), LIMITS)]

    assert max(sizes) < pieces.RUN_BYTES + 2 * len(data)
    assert sum(sizes) < 1.1 * len(body)


# What is refused is not built.


def peak_of(decode) -> tuple[int, Rejected]:
    """Bytes that a refused body took beside itself, and its refusal."""
    tracemalloc.start()
    try:
        with pytest.raises(Rejected) as refused:
            decode()
        return tracemalloc.get_traced_memory()[1], refused.value
    finally:
        tracemalloc.stop()


def a_write(inner: bytes) -> bytes:
    return b'{"records":[%b]}' % inner


@pytest.mark.rule("H1.38", "H1.52")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (a_write(b",".join([b'{"data":1}'] * MANY)), "batch_too_large"),
        (a_write(b",".join([b'{"data":1}'] * MANY + [b'{"data":1,"key":"k"}'])), "batch_too_large"),
        (
            a_write(b'{"data":1,"meta":{%b}}' % b",".join(b'"%x":"a"' % n for n in range(100_000))),
            "invalid_request",
        ),
        (
            a_write(b'{"data":1,"meta":{%b}}' % b",".join(b'"%x":"a"' % n for n in range(MANY))),
            "record_too_large",
        ),
        (a_write(b'{"data":"%b"}' % (b"a" * 3 * MIB)), "record_too_large"),
        (b'{"records":[{"data":1}],"node":"%b"}' % (b"a" * MIB), "invalid_request"),
        (b"{%b}" % b",".join([b'"records":[{"data":1}]'] * 50_000), "invalid_request"),
    ],
    ids=["records", "other records", "keys", "more keys", "data", "node", "members"],
)
def test_a_write_with_too_many_of_something_is_refused_before_they_are_built(body, code):
    peak, refused = peak_of(lambda: decode_write("t", body, LIMITS, auto_create=True))

    assert refused.code.value == code
    assert peak < 4 * MIB
    if "its text" in str(refused):
        assert refused.detail["limit"] == LIMITS.record_bytes
        assert f"and a record may have {LIMITS.record_bytes}" in str(refused)


@pytest.mark.rule("H1.52")
@pytest.mark.parametrize("decode", [decode_reading, decode_delete])
@pytest.mark.parametrize("field", [b"node", b"match", b"from_seq", b"before_seq", b"x"])
def test_a_long_list_in_another_body_is_not_built(decode, field):
    body = b'{"%b":[%b]}' % (field, b",".join([b'"ab"'] * MANY))
    known = {decode_reading: (b"node", b"match", b"from_seq"), decode_delete: (b"match", b"before_seq")}[
        decode
    ]
    if field not in known:
        if decode is decode_delete:
            body = b'{"before_seq":1,' + body[1:]  # it needs a selector
        decode("t", body, LIMITS)
        return

    assert peak_of(lambda: decode("t", body, LIMITS))[0] < 4 * MIB


def test_a_list_of_nodes_names_itself_when_it_is_too_long():
    body = b'{"node":[%b]}' % b",".join([b'"ab"'] * MANY)
    with pytest.raises(Rejected, match=r"^node: .* more than any right value of it has"):
        decode_reading("t", body, LIMITS)
    with pytest.raises(Rejected, match=r"^node: more than the limit of 64 nodes"):
        decode_reading("t", msgspec.json.encode({"node": ["a"] * 65}), LIMITS)


@pytest.mark.rule("H1.52")
@pytest.mark.trio
async def test_nothing_holds_what_a_refused_body_was_decoded_to():
    body = a_write(b",".join([b'{"data":%d}' % n for n in range(MANY)]))
    packed = gzip.compress(body, 1)
    async with open_site(limits=LIMITS) as site:
        await ask(site, "POST", "/v0/topics/a", a_write(b'{"data":1}'))
        gc.collect()
        gc.disable()  # a cycle would stay until the collector comes
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(3):
                answer = await ask(site, "POST", "/v0/topics/a", packed, headers={"Content-Encoding": "gzip"})
                assert fields_of(answer)["error"]["code"] == "batch_too_large"
            for _ in range(100):  # the thread lets go of its job a moment behind the answer
                await trio.to_thread.run_sync(gc.isenabled)
                kept = tracemalloc.get_traced_memory()[0] - before
                if kept < len(body) / 20:
                    break
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept < len(body) / 20, f"{kept} bytes are kept of bodies of {len(body)}"


@pytest.mark.trio
@pytest.mark.rule("H1.49")
async def test_what_a_large_body_becomes_is_held_while_it_is_decoded():
    body = a_write(b'{"data":"%b"}' % (b"a" * 600_000))
    async with open_site(limits=LIMITS, held_bytes_max=2 * len(body)) as site:
        assert (await ask(site, "POST", "/v0/topics/a", body)).status == 201
        site.requests.hold(len(body) + 1)  # by its plane, and a byte by somebody
        refused = await ask(site, "POST", "/v0/topics/a", body)
        assert (refused.status, fields_of(refused)["error"]["detail"]["limit"]) == (
            429,
            "requests_held_bytes",
        )
        site.requests.release(1)
        assert (await ask(site, "POST", "/v0/topics/a", body)).status == 200
        site.requests.release(len(body))
        assert site.held_bytes == 0


@pytest.mark.trio
@pytest.mark.rule("H1.49")
async def test_room_for_what_a_gzip_body_may_become_is_held_before_it_is_unfolded():
    packed = gzip.compress(a_write(b'{"data":"%b"}' % (b"a" * 5000)))
    async with open_site(limits=LIMITS, held_bytes_max=200 * len(packed)) as site:
        site.requests.hold(1)
        refused = await ask(site, "POST", "/v0/topics/a", packed, headers={"Content-Encoding": "gzip"})
        assert (refused.status, site.held_bytes) == (429, 1)
        site.requests.release(1)
        taken = await ask(site, "POST", "/v0/topics/a", packed, headers={"Content-Encoding": "gzip"})
        assert (taken.status, site.held_bytes) == (201, 0)
