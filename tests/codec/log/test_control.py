"""Control frames: each value comes back, whatever is not one is refused."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, U64, short
from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.codec.log.control import (
    TYPES,
    Carried,
    CheckpointMark,
    CommitMark,
    ConfigUpdate,
    Delete,
    EvictWatermark,
    HeadWatermark,
    LossRange,
    TopicCreate,
    TopicDelete,
    WriteResult,
    decode_control,
    decode_payload,
    encode_control,
    encode_mark,
    encode_payload,
)
from topics.codec.log.forwards import Forward, ForwardForm, mask_of
from topics.codec.log.frame import FrameType, encode_run
from topics.codec.log.layout import Ext, pack_exts, pack_frame
from topics.codec.log.routers import GUARANTEES, RouterCreate, RouterDelete
from topics.codec.log.schedules import CATCH_UPS, Schedule
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Corrupt
from topics.kernel.ids import TOPIC_NAME

SEQ = st.integers(1, 2**64 - 1)
NAME = st.from_regex(TOPIC_NAME, fullmatch=True)
ROUTER_CREATE = RouterCreate(id=1, name="r", source_id=7, dest_id=8)
ROUTER = encode_payload(ROUTER_CREATE)
FORWARD = struct.Struct("<BQQQQQQ")
SCHEDULE = encode_payload(Schedule(id=1, name="s", every_ms=1000, data=b"1"))
CONFIG = st.dictionaries(
    st.text(max_size=5), st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.none(), max_size=3
)


@st.composite
def checkpoint_marks(draw):
    """Records appended to a segment, sealed or not; or none, and it is sealed, its data in either tier."""
    segment = draw(SEQ)
    first = draw(st.integers(segment, 2**64 - 1))
    last = draw(st.integers(first - 1, 2**64 - 1))
    adds = first <= last
    return CheckpointMark(
        segment,
        first,
        last,
        draw(U64),
        not adds or draw(st.booleans()),
        cold=not adds and draw(st.booleans()),
    )


@st.composite
def forwards(draw):
    """All of a range of some source, some of it, or none; or what it had lost."""
    first = draw(SEQ)
    last = draw(st.integers(first, min(first + 40, 2**64 - 1)))
    ids = draw(SEQ), draw(SEQ)
    if draw(st.booleans()):
        lost = draw(st.integers(1, last + 1 - first))
        return Forward(ForwardForm.TRIMMED, *ids, first, last, draw(SEQ), lost)
    kept = sorted(draw(st.sets(st.integers(first, last))))
    forward = Forward(ForwardForm.COPIES, *ids, first, last, draw(SEQ), len(kept), mask_of(kept, first, last))
    assert list(forward.seqs()) == kept
    return forward


PAYLOADS = st.one_of(
    forwards(),
    st.builds(TopicCreate, st.text(min_size=1, max_size=9), SEQ, CONFIG, U64),
    st.builds(TopicDelete),
    st.builds(ConfigUpdate, CONFIG),
    st.builds(ConfigUpdate, CONFIG, st.builds(Carried, U64, U64, U64, st.dictionaries(st.text(max_size=5), U64), U64)),
    checkpoint_marks(),
    st.builds(Delete, U64, st.none() | short(20, size_min=1), U64),
    st.builds(Delete, st.none(), short(20, size_min=1), U64),
    st.builds(EvictWatermark),
    st.builds(HeadWatermark, U64),
    st.tuples(SEQ, SEQ).map(lambda pair: LossRange(min(pair), max(pair), "crash")),
    st.builds(CommitMark, st.binary(min_size=8, max_size=8), U64, U64),
    st.builds(
        WriteResult, short(20, size_min=1), U64, st.integers(5, 2**32 - 1), U64,
        st.lists(st.tuples(st.integers(0, 2**32 - 1), U64), max_size=5),
    ),
    st.builds(ConsumerCommit, st.just(ConsumerChange.SET), NAME, U64),
    st.builds(ConsumerCommit, st.just(ConsumerChange.COMMIT), NAME, SEQ),
    st.builds(ConsumerCommit, st.just(ConsumerChange.DELETE), NAME),
    st.builds(Schedule, SEQ),
    st.builds(
        Schedule, SEQ, st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), timezone=st.text(max_size=9),
        jitter_ms=U64, catch_up=st.sampled_from(CATCH_UPS), data=short(20), meta=short(20), key=short(20),
        ttl_ms=U64, priority=st.integers(-1, 9),
    ),
    st.builds(Schedule, SEQ, st.text(min_size=1, max_size=9), every_ms=st.integers(1000, 2**63), data=short(20)),
    st.builds(
        RouterCreate, SEQ, NAME, st.just(7), st.integers(8, 2**64 - 1), st.booleans(), st.booleans(),
        st.none() | st.sampled_from([("tag", "Eq", "x*y"), ("tag", "Glob", "*"), ("tag", "Glob", "x*")]),
        st.booleans(), st.sampled_from(GUARANTEES), U64,
    ),
    st.builds(RouterDelete, SEQ),
)  # fmt: skip


def encode(payload, **extra):
    topic_id = 0 if isinstance(payload, CommitMark) else 7
    return encode_control(payload, topic_id=topic_id, ts=TS, **extra)


@given(st.builds(CommitMark, st.binary(min_size=8, max_size=8), U64, U64), U64)
def test_a_mark_is_packed_as_any_control_frame(mark, ts):
    assert encode_control(mark, topic_id=0, ts=ts) == encode_mark(mark, ts=ts)


@pytest.mark.rule("T2.16", "T2.19")
@given(PAYLOADS, st.booleans(), st.integers(1, 2**32 - 1), st.binary(max_size=5))
def test_a_payload_comes_back(payload, durable, frames, before):
    frame = encode(payload, durable=durable, write_frames=frames)
    control = decode_control(before + frame, len(before))

    assert control.payload == payload
    assert (control.type, control.ts, control.durable) == (TYPES[type(payload)], TS, durable)
    assert (control.offset, control.length, control.write_frames) == (len(before), len(frame), frames)
    assert control.topic_id == (0 if isinstance(payload, CommitMark) else 7)


@pytest.mark.rule("T2.16", "T2.17")
def test_the_types_are_those_of_the_pages():
    assert {kind.name: kind.value for kind in FrameType} == {
        "APPEND": 1, "TOPIC_CREATE": 2, "TOPIC_DELETE": 3, "ROUTER_CREATE": 4, "ROUTER_DELETE": 5, "DELETE": 6,
        "EVICT_WATERMARK": 7, "CHECKPOINT_MARK": 8, "CONFIG_UPDATE": 9, "LEASE": 10, "HEAD_WATERMARK": 11,
        "COMMIT_MARK": 12, "CONSUMER_COMMIT": 13, "SCHEDULE": 14, "LOSS_RANGE": 15, "KV_OP": 16, "INTENTION": 17,
        "WRITE_RESULT": 18, "FORWARD": 19,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [16, 17])
def test_a_type_of_a_later_part_is_unknown_though_it_has_a_number(kind):
    frame = pack_frame(kind, 0, 7, 0, TS, b"")

    with pytest.raises(Corrupt, match="does not know all of it"):
        decode_control(frame)
    with pytest.raises(Corrupt, match="unsupported by this version"):
        decode_payload(kind, b"")


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (2, b""),
        (2, b"[]"),
        (2, b'{"name":"a","epoch":1,"config":{}}'),
        (2, b'{"name":"a","epoch":1,"config":{},"ceiling":64,"more":1}'),
        (2, b'{"name":"a","epoch":"1","config":{},"ceiling":64}'),
        (2, b'{"name":"a","epoch":0,"config":{},"ceiling":64}'),
        (2, b'{"name":"a","epoch":1,"config":{},"ceiling":-1}'),
        (2, b'{"name":"","epoch":1,"config":{},"ceiling":64}'),
        (2, b'{"name":"\xff","epoch":1,"config":{},"ceiling":64}'),
        (2, b'{"name":"a","epoch":18446744073709551616,"config":{},"ceiling":64}'),
        (9, b'{"config":' + b"[" * 100_000),
        (9, b'{"config":' + b'{"a":' * 100_000),
        (3, b"x"),
        (6, bytes(16)),
        (6, b"\x00" + bytes(16)),
        (6, b"\x04" + bytes(16)),
        (6, b"\x02" + bytes(16)),
        (6, b"\x01" + bytes(16) + b'"x"'),
        (6, b"\x02" + bytes(8) + b"\x01" + bytes(7) + b'"x"'),
        (7, b"x"),
        (8, b""),
        (8, struct.pack("<QQQQB", 1, 1, 1, 47, 0)[:-1]),
        (8, struct.pack("<QQQQB", 1, 1, 1, 47, 0) + b"x"),
        (8, struct.pack("<QQQQB", 0, 1, 1, 47, 0)),  # a segment named 0
        (8, struct.pack("<QQQQB", 2, 1, 1, 47, 0)),  # before its segment
        (8, struct.pack("<QQQQB", 1, 3, 1, 47, 1)),  # not even an empty run
        (8, struct.pack("<QQQQB", 1, 2, 1, 47, 0)),  # nothing appended, and not sealed
        (8, struct.pack("<QQQQB", 1, 2, 1, 47, 2)),  # cold, and not sealed
        (8, struct.pack("<QQQQB", 1, 1, 1, 47, 3)),  # cold from its first record on
        (8, struct.pack("<QQQQB", 1, 1, 1, 47, 4)),  # a flag that nobody knows
        (11, bytes(7)),
        (11, bytes(9)),
        (12, bytes(32)),
        (12, bytes(31)),
        (13, b""),
        (13, struct.pack("<BQH", 1, 3, 0)),  # no name
        (13, struct.pack("<BQH", 1, 3, 2) + b"a"),
        (13, struct.pack("<BQH", 1, 3, 1) + b"ab"),
        (13, struct.pack("<BQH", 1, 3, 2) + b"$a"),
        (13, struct.pack("<BQH", 1, 3, 2) + b"\xc3\xa4"),
        (13, struct.pack("<BQH", 1, 3, 256) + b"a" * 256),
        (13, struct.pack("<BQH", 0, 3, 1) + b"a"),
        (13, struct.pack("<BQH", 2, 0, 1) + b"a"),  # a commit of nothing
        (13, struct.pack("<BQH", 3, 3, 1) + b"a"),  # a deletion that says a seq
        (13, struct.pack("<BQH", 4, 3, 1) + b"a"),  # a change that nobody knows
        (4, b""),
        (4, b'{"id":1}'),  # not all of it
        (4, ROUTER.replace(b":1,", b": 1,")),  # spelled otherwise
        *(
            (4, encode_payload(msgspec.structs.replace(ROUTER_CREATE, **fields)))
            for fields in (
                {"id": 0},
                {"name": ""},
                {"source_id": 6},  # the frame is another topic's
                {"source_id": 0},
                {"dest_id": 7},  # into itself
                {"dest_id": 0},
                {"from_seq": -1},
                {"guarantee": "some"},
                {"filter": ("node", "Eq", "x")},
                {"filter": ("tag", "Ne", "x")},
                {"filter": ("tag", "Eq", "")},
                {"filter": ("tag", "Glob", "x")},
                {"filter": ("tag", "Glob", "x*y*")},
                {"filter": ("tag", "Glob", "*x")},
            )
        ),
        (5, bytes(8)),
        (5, b"\1" + bytes(6)),
        (5, b"\1" + bytes(8)),
        (14, b""),
        (14, b'{"id":1}'),  # not all of it
        (14, SCHEDULE.replace(b":1000", b": 1000")),  # spelled otherwise
        *(
            (14, encode_payload(Schedule(id=1, **fields)))
            for fields in (
                {"every_ms": 1000},  # one that has ended and says more
                {"name": "s"},
                {"name": "s", "every_ms": 999},
                {"name": "s", "every_ms": 1000, "cron": "* * * * *"},
                {"name": "s", "every_ms": 1000, "jitter_ms": -1},
                {"name": "s", "every_ms": 1000, "catch_up": "some"},
                {"name": "s", "every_ms": 1000, "ttl_ms": -2},
                {"name": "s", "every_ms": 1000, "priority": 10},
            )
        ),
        (14, encode_payload(Schedule(id=0))),
        (15, b'{"first":2,"last":1,"reason":"crash"}'),
        (15, b'{"first":0,"last":1,"reason":"crash"}'),
        (18, bytes(25)),
        (18, bytes(26)),
        (18, encode_payload(WriteResult(b"k", 1, 0, 0, [(0, 1)]))),
        (18, encode_payload(WriteResult(b"k", 1, 1, 0, [(0, 1)])) + b"x"),
        (18, encode_payload(WriteResult(b"k", 1, 1, 0, [(0, 1)]))[:-1]),
        (19, bytes(48)),
        (19, FORWARD.pack(0, 0, 1, 1, 3, 1, 3)),  # no router
        (19, FORWARD.pack(0, 1, 0, 1, 3, 1, 3)),  # no source
        (19, FORWARD.pack(0, 1, 1, 0, 3, 1, 3)),  # seqs begin with 1
        (19, FORWARD.pack(0, 1, 1, 3, 2, 1, 0)),  # not even an empty range
        (19, FORWARD.pack(0, 1, 1, 1, 3, 0, 3)),  # nowhere
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 4)),  # more than there are
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 2)),  # which two?
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 3) + b"\x07"),  # all of them need no mask
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 0) + b"\x00"),  # nor does none
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 2) + b"\x01"),  # one fewer
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 2) + b"\x09"),  # one behind the range
        (19, FORWARD.pack(0, 1, 1, 1, 9, 1, 2) + b"\x03"),  # a byte too few
        (19, FORWARD.pack(1, 1, 1, 1, 3, 1, 0)),  # nothing was lost
        (19, FORWARD.pack(1, 1, 1, 1, 3, 1, 2) + b"\x03"),  # a loss has no mask
        (19, FORWARD.pack(2, 1, 1, 1, 3, 1, 3)),  # a form that nobody knows
    ],
)
def test_what_is_no_payload_is_refused(kind, data):
    frame = pack_frame(kind, 0, 0 if kind == 12 else 7, 0, TS, data)

    with pytest.raises(Corrupt, match=f"{FrameType(kind).name} frame at offset 0.*malformed"):
        decode_control(frame)


@pytest.mark.invariant("I-18")
@given(st.sampled_from(sorted(TYPES.values())), st.binary(max_size=80))
def test_any_bytes_are_a_payload_or_refused(kind, data):
    try:
        payload = decode_payload(kind, data)
    except Corrupt:
        return
    if isinstance(payload, TopicCreate | ConfigUpdate | LossRange):
        assert msgspec.json.decode(encode_payload(payload)) == msgspec.json.decode(data)
    else:
        assert encode_payload(payload) == data


def test_an_append_is_no_control_frame():
    chunk, _ = encode_run(7, 1, TS, RecordColumns([b"x"]), durable=False, keyed=None, write_frames=1)
    with pytest.raises(Corrupt, match="no control frame"):
        decode_control(chunk)


def test_an_extension_of_records_is_refused():
    frame = pack_frame(3, 0, 7, 0, TS, b"", exts=pack_exts([(Ext.KEY, b"k")]))
    with pytest.raises(Corrupt, match="extension"):
        decode_control(frame)


@pytest.mark.invariant("I-18")
@given(PAYLOADS)
def test_every_flipped_bit_and_every_cut_is_found(payload):
    frame = encode(payload, write_frames=2)
    for bit in range(0, len(frame) * 8, 7):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_control(bytes(damaged))
    for stop in range(len(frame)):
        with pytest.raises(Corrupt):
            decode_control(frame, 0, stop)
