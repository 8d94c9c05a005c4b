"""What a newer version wrote is told from what is malformed, and nothing that is torn is taken for it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.log.test_control import PAYLOADS, encode
from tests.support.frames import TS, columns
from topics.codec.log.control import Delete, HeadWatermark, WriteResult, encode_payload
from topics.codec.log.frame import encode_run
from topics.codec.log.layout import Ext, pack_exts, pack_frame
from topics.codec.log.newer import is_newer
from topics.codec.log.routers import RouterCreate
from topics.codec.log.schedules import Schedule
from topics.codec.log.writes import whole_writes

MARK = struct.Struct("<QQQQB")
RESULT = encode_payload(WriteResult(b"k", 1, 1, 0, [(0, 1)]))
ROUTER = encode_payload(RouterCreate(id=1, name="r", source_id=7, dest_id=8))
FORWARD = struct.Struct("<BQQQQQQ")
SCHEDULE = encode_payload(Schedule(id=1, name="s", every_ms=1000, data=b"1"))
CARRIED = b'"head_seq":1,"evict_floor":0,"lost_ts":0,"reasons":{},"last_write_ts":0'


def control(kind, data, *, exts=b""):
    return pack_frame(kind, 0, 0 if kind == 12 else 7, 0, TS, data, exts=exts)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (2, b'{"name":"a","epoch":1,"config":{},"ceiling":64,"more":1}'),
        (3, b"x"),
        (6, b"\x04" + bytes(16)),
        (6, b"\x07" + bytes(16) + b'"x"'),
        (7, b"x"),
        (8, MARK.pack(1, 1, 1, 47, 0) + b"x"),
        (8, MARK.pack(1, 1, 1, 47, 4)),
        (8, MARK.pack(1, 2, 1, 47, 8)),
        (9, b'{"config":{},"newer":1}'),
        (9, b'{"config":{},"carried":{%b,"newer":1}}' % CARRIED),
        (11, bytes(9)),
        (12, b"\xc0mmit\xa7\x0f\x9b" + bytes(25)),
        (13, struct.pack("<BQH", 1, 3, 1) + b"ab"),
        (13, struct.pack("<BQH", 3, 0, 1) + b"ab"),
        (13, struct.pack("<BQH", 4, 3, 1) + b"a"),
        (13, struct.pack("<BQH", 9, 3, 1) + b"a" + b"more"),
        (15, b'{"first":1,"last":1,"reason":"crash","newer":[]}'),
        (14, SCHEDULE[:-1] + b',"newer":1}'),
        (4, ROUTER[:-1] + b',"newer":1}'),
        (5, struct.pack("<Q", 1) + b"x"),
        (18, RESULT + b"x"),
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 2) + b"\x05x"),
        (19, FORWARD.pack(2, 1, 1, 1, 3, 1, 2) + b"\x05"),
        (19, FORWARD.pack(9, 1, 1, 1, 3, 1, 3) + b"where they lie"),
    ],
)
def test_a_payload_that_is_one_but_for_more_is_a_newer_versions(kind, data):
    frame = control(kind, data)

    assert is_newer(frame, 0, len(frame))
    assert not is_newer(frame, 0, len(frame) - 1)
    assert list(whole_writes(encode(HeadWatermark(1)) + frame, 0))[1:] == []


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (2, b'{"name":"","epoch":1,"config":{},"ceiling":64,"more":1}'),
        (2, b'{"name":"a","epoch":1,"config":{},"more":1}'),
        (2, b'{"name":"\xff","more":1}'),
        (2, b"[]"),
        (6, bytes(17)),
        (6, b"\x04"),
        (8, MARK.pack(0, 1, 1, 47, 4)),
        (8, bytes(3)),
        (9, b'{"config":' + b'{"a":' * 100_000),
        (9, b'{"config":{},"carried":[]}'),
        (11, bytes(7)),
        (12, bytes(40)),
        (13, struct.pack("<BQH", 0, 3, 1) + b"a"),
        (13, struct.pack("<BQH", 1, 3, 2) + b"a"),
        (13, struct.pack("<BQH", 4, 3, 1) + b"$"),
        (15, b'{"first":2,"last":1,"reason":"crash","newer":1}'),
        (18, RESULT[:-1]),
        (19, FORWARD.pack(2, 0, 1, 1, 3, 1, 2) + b"\x05"),
        (19, FORWARD.pack(0, 1, 1, 1, 3, 1, 2)),
        (19, bytes(7)),
    ],
)
def test_one_that_is_wrong_otherwise_is_malformed(kind, data):
    frame = control(kind, data)

    assert not is_newer(frame, 0, len(frame))


def test_an_extension_that_belongs_to_no_control_frame_of_ours():
    frame = control(3, b"", exts=pack_exts([(Ext.KEY, b"k")]))

    assert is_newer(frame, 0, len(frame))


def whole_frames():
    runs = columns().map(
        lambda records: encode_run(7, 5, TS, records, durable=False, keyed=None, write_frames=len(records))[0]
    )
    payloads = st.one_of(PAYLOADS, st.just(Delete(1, None, 2)))
    return st.one_of(runs, payloads.map(encode))


@pytest.mark.invariant("I-18")
@given(whole_frames(), st.data())
def test_no_frame_of_ours_is_a_newer_versions_cut_off_or_with_bits_turned(frame, data):
    stop = data.draw(st.integers(0, len(frame)))
    assert not is_newer(frame, 0, stop)
    assert not is_newer(frame, 0, len(frame))

    torn = bytearray(frame)
    for bit in data.draw(st.lists(st.integers(0, len(frame) * 8 - 1), min_size=1, max_size=9)):
        torn[bit // 8] ^= 1 << bit % 8
    assert not is_newer(torn, 0, len(torn))
    torn[stop:] = bytes(len(torn) - stop)
    assert not is_newer(torn, 0, len(torn))
