"""Frames read and made the short way are what `websockets` makes of them."""

import pytest
from websockets.frames import Frame, Opcode

from topics.server.wire.frames import control_frame, lone_control, lone_text, text_frame

MIB = 1 << 20
SIZES = (0, 1, 2, 125, 126, 127, 4096, 65_535)


def masked(message, opcode=Opcode.TEXT, **bits):
    return Frame(opcode, message, **bits).serialize(mask=True)


def message_of(size):
    return bytes(i % 251 for i in range(size))


@pytest.mark.parametrize("size", [*SIZES, 65_536, 1 << 20])
def test_a_frame_is_as_the_library_makes_it(size):
    message = message_of(size)

    assert text_frame(message) == Frame(Opcode.TEXT, message).serialize(mask=False)


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_message_alone_is_taken(size):
    data = masked(message_of(size))

    assert lone_text(data, MIB) == message_of(size)
    assert lone_text(data, size) == message_of(size)


@pytest.mark.parametrize("size", SIZES)
def test_part_of_a_message_and_more_than_one_are_left_to_the_library(size):
    data = masked(message_of(size))

    assert [lone_text(data[:cut], MIB) for cut in range(min(len(data), 300))] == [None] * min(len(data), 300)
    assert lone_text(data[:-1], MIB) is None
    assert lone_text(data + b"\x81", MIB) is None
    assert lone_text(data + data, MIB) is None


def test_whatever_is_not_plainly_a_message_is_left_to_the_library():
    others = [
        masked(b"x" * 4, Opcode.BINARY),
        masked(b"x" * 4, Opcode.PING),
        masked(b"x" * 4, Opcode.CONT),
        masked(b"x" * 4, fin=False),
        Frame(Opcode.TEXT, b"x" * 4).serialize(mask=False),
        Frame(Opcode.TEXT, b"x" * 400).serialize(mask=False),
        masked(b"x" * 65_536),  # its length in eight bytes: it never comes in one piece
        bytes((masked(b"x" * 4)[0] | 0x40,)) + masked(b"x" * 4)[1:],  # a bit of an extension
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x81\x7e\0\5",  # the head of one without a mask, alone: its length less the mask's bit is below 0
        b"\x81\x7f\0\0\0",
    ]

    assert [lone_text(data, MIB) for data in others] == [None] * len(others)


def test_one_that_is_too_large_is_for_the_library_to_refuse():
    assert lone_text(masked(b"x" * 300), 299) is None


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG])
@pytest.mark.parametrize("size", [0, 1, 125])
def test_a_sign_of_life_is_read_and_made_as_the_library_does(opcode, size):
    data = masked(message_of(size), opcode)

    assert lone_control(data) == (opcode, message_of(size))
    assert control_frame(opcode, message_of(size)) == Frame(opcode, message_of(size)).serialize(mask=False)
    assert [lone_control(data[:cut]) for cut in range(len(data))] == [None] * len(data)
    assert lone_control(data + data) is None


def test_no_other_frame_is_a_sign_of_life():
    ping = masked(b"x" * 4, Opcode.PING)
    others = [
        masked(b"x" * 4),
        masked(b"x" * 4, Opcode.CLOSE),
        bytes((ping[0] & 0x7F,)) + ping[1:],  # in fragments
        bytes((ping[0] | 0x40,)) + ping[1:],  # a bit of an extension
        Frame(Opcode.PING, b"x" * 4).serialize(mask=False),
        bytes((ping[0], 0x80 | 126)) + b"x" * 130,  # its length in two bytes
        bytes((ping[0], 0x80 | 127)) + b"x" * 131,
    ]

    assert [lone_control(data) for data in others] == [None] * len(others)
