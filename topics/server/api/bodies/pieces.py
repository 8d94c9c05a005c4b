"""A large body in pieces, so that no step takes long and nothing is built of what will be refused (http-api 1).

Theory. A decoder in C keeps the interpreter until it is done, and builds a list before anybody can count it. So a large
body is walked value by value: a decoder that builds nothing says where a value ends, for it names the byte at which
something else follows. Records are taken by runs of about `RUN_BYTES`: a run that is a list between brackets is as many
whole records, whatever is inside of them; where the guess of its end was wrong, its records are taken one by one.
A run is then decoded as a small write, with all checks of one.

What the walk bounds: members of the body, records, and the bytes of one value. Values that nobody looks at are walked
over; a field that is known has nothing nearly as large as `FIELD_BYTES_MAX`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from topics.codec.json_text import depth_fits
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX, KIB, MIB, Limits

FIELD_BYTES_MAX: Final = 64 * KIB  # of a field beside the records: nothing right is nearly as large
RUN_BYTES: Final = 128 * KIB
VALUE_BYTES_MAX: Final = 2 * MIB  # of one value in a large body: it is walked over in one step
MEMBERS_MAX: Final = 1000  # of a large body
PIECED_BYTES_MIN: Final = 512 * KIB  # a body above it is decoded in pieces
_CUT_BYTES: Final = 16  # so near to the end of a window, an error may be the window's
_value: Final = msgspec.json.Decoder(msgspec.Raw)
_name: Final = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.Encoder().encode
_BEHIND: Final = re.compile(r"trailing characters \(byte ([0-9]+)\)")
_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)")
_RECORDS: Final = b'{"records":['
WRAP: Final = 3  # levels around a payload: body, records, record
_NAME_SHOWN_MAX: Final = 40
_CONTINUES: Final = bytes(range(0x80, 0xC0))  # bytes in the middle of a character
_SPACE: Final = re.compile(rb"[ \t\n\r]*")


class JsonWalk:
    """A JSON text, read from its beginning. `field`: what errors name."""

    def __init__(self, text: bytes, *, value_bytes_max: int = VALUE_BYTES_MAX, field: str = "body") -> None:
        self._text = text
        self._view = memoryview(text)
        self._value_bytes_max = value_bytes_max
        self._field = field
        self.at = 0

    def members(self) -> Iterator[str]:
        """The names of the object that the text is. Whoever is given one reads its value before the next.

        Raises:
            Rejected: invalid_request: it is no object, no JSON, or has too many members.
        """
        check_utf8(self._text, field=self._field)
        if self.peek() != b"{":
            self.value(self._field)
            raise invalid(self._field, "must be an object")
        self.at += 1
        count, more = 0, not self._take(b"}")
        while more:
            count += 1
            if count > MEMBERS_MAX:
                raise invalid(self._field, f"has more than {MEMBERS_MAX} members", limit=MEMBERS_MAX)
            if self.peek() != b'"':
                raise self._malformed("object keys must be strings")
            name = _name.decode(self.value(self._field))
            if not self._take(b":"):
                raise self._malformed("expected ':'")
            yield name
            more = self._more(b"}")
        if self.peek():
            raise self._malformed("trailing characters")

    def runs(
        self, name: str, record_bytes_max: int, one_by_one_max: int = sys.maxsize
    ) -> Iterator[memoryview]:
        """The records of the list that is next, as many together as fit into a run, with the commas between them.
        `name`: of the list; an error names a record by its place in the run. `one_by_one_max`: records that are not
        taken by runs, for whoever does not count them all.

        Raises:
            Rejected: as `value`; batch_too_large.
        """
        assert self.peek() == b"["
        self.at += 1
        more, left = not self._take(b"]"), one_by_one_max
        while more:
            self.peek()
            start = self.at
            end = self._text.rfind(b"},", start, start + RUN_BYTES) + 1
            if end > 0 and _is_list(self._text[start:end]):
                self.at = end
                more = self._more(b"]")
            else:
                count = 0
                while more and self.at - start < RUN_BYTES:
                    self.value(f"{name}[{count}]", record_bytes_max)
                    end = self.at
                    more = self._more(b"]")
                    count += 1
                    if count > left:
                        message = f"{name}: more than the limit of {one_by_one_max} a write"
                        raise Rejected(Code.BATCH_TOO_LARGE, message, limit=one_by_one_max)
                left -= count
            yield self._view[start:end]

    def value(self, name: str, record_bytes_max: int | None = None) -> memoryview:
        """The text of the value that is next, and perhaps white space behind it. `record_bytes_max`: if it is a record.

        Raises:
            Rejected: invalid_request, it is no JSON, or too long; record_too_large. They name `name`.
        """
        self.peek()
        start = self.at
        stop = min(start + self._value_bytes_max, len(self._text))
        try:
            _value.decode(self._view[start:stop])
        except RecursionError:
            raise invalid(self._field, f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX) from None
        except msgspec.DecodeError as error:
            message = str(error)
            behind = _BEHIND.search(message)
            if behind is None:
                place = _BYTE.search(message)
                cut = place is None or int(place[1]) > stop - start - _CUT_BYTES
                if cut and stop < len(self._text):
                    raise self._too_long(name, record_bytes_max) from None
                message = _BYTE.sub(lambda found: f"(byte {start + int(found[1])})", message)
                raise invalid(self._field, f"is not JSON: {message}") from None
            stop = start + int(behind[1]) - 1  # it has read that byte, and stands behind it
        else:
            if stop < len(self._text):
                raise self._too_long(name, record_bytes_max)
        self.at = stop
        return self._view[start:stop]

    def peek(self) -> bytes:
        """The next byte that is no white space, none at the end."""
        while self._text[self.at : self.at + 1] in (b" ", b"\n", b"\r", b"\t"):
            space = _SPACE.match(self._text, self.at, self.at + MIB)
            assert space is not None
            self.at = space.end()
        return self._text[self.at : self.at + 1]

    def _more(self, closer: bytes) -> bool:
        """Over the comma behind a value, or over the end of what it is in: then False."""
        if self._take(b","):
            return True
        if not self._take(closer):
            raise self._malformed(f"expected ',' or '{closer.decode()}'")
        return False

    def _take(self, byte: bytes) -> bool:
        found = self.peek() == byte
        self.at += found
        return found

    def _malformed(self, what: str) -> Rejected:
        ended = self.at == len(self._text)
        message = "Input data was truncated" if ended else f"JSON is malformed: {what} (byte {self.at})"
        return invalid(self._field, f"is not JSON: {message}")

    def _too_long(self, name: str, record_bytes_max: int | None) -> Rejected:
        most = self._value_bytes_max
        message = f"{name}: its text in a large body is longer than {most} bytes"
        if record_bytes_max is None:
            return Rejected(Code.INVALID_REQUEST, message, field=name, limit=most)
        message += f", and a record may have {record_bytes_max}"
        return Rejected(Code.RECORD_TOO_LARGE, message, field=name, limit=record_bytes_max)


def check_utf8(text: bytes, *, field: str, slice_bytes: int = MIB) -> None:
    """Nothing, if the text is UTF-8. Slice by slice: as text, a large one would take up to four times its room.

    Raises:
        Rejected: invalid_request.
    """
    if text.isascii():
        return
    start = 0
    while start < len(text):
        end = start + slice_bytes
        while end < min(len(text), start + slice_bytes + 3) and text[end] in _CONTINUES:
            end += 1
        try:
            text[start:end].decode()
        except UnicodeDecodeError as error:
            raise invalid(field, f"is not UTF-8 (byte {start + error.start})") from None
        start = end


def _is_list(run: bytes) -> bool:
    """True if it is whole values with commas between them: then the guess of its end was right."""
    try:
        _value.decode(b"[%b]" % run)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def slimmed(
    text: bytes,
    known: Collection[str],
    *,
    field: str = "body",
    large: str = "",
    value_bytes_max: int = VALUE_BYTES_MAX,
) -> bytes:
    """The same object, but for large values of members that nobody knows: those are null. Of those that are known only
    `large` may have one.

    Raises:
        Rejected: invalid_request.
    """
    walk = JsonWalk(text, value_bytes_max=value_bytes_max, field=field)
    return b"{%b}" % b",".join(
        [_member(walk, name, known, JSON_DEPTH_MAX, large=large) for name in walk.members()]
    )


def write_pieces(body: bytes, known: Collection[str], limits: Limits) -> Iterator[bytes]:
    """The body of a write as the bodies of smaller ones: their records are those of the whole, in order. The last has
    none, and everything else.

    Raises:
        Rejected: invalid_request.
    """
    walk = JsonWalk(body, value_bytes_max=value_bytes_max(limits))
    rest: dict[str, bytes] = {}
    for name in walk.members():
        if name == "records" and name in rest:
            # Of two the last would count, and the records of the first are taken already.
            raise invalid(name, "is given twice, in a large body")
        if name == "records" and walk.peek() == b"[":
            rest[name] = b'"records":[]'
            for run in walk.runs(name, limits.record_bytes):
                yield b"".join((_RECORDS, run, b"]}"))
        else:
            rest[name] = _member(walk, name, known, JSON_DEPTH_MAX + WRAP)
    yield b"{%b}" % b",".join(rest.values())


def value_bytes_max(limits: Limits) -> int:
    """Of one value in the large body of a write: of a record, too."""
    return max(VALUE_BYTES_MAX, 2 * limits.record_bytes)


def _member(walk: JsonWalk, name: str, known: Collection[str], depth_max: int, *, large: str = "") -> bytes:
    """A member of a body that may nest so deep."""
    value = bytes(walk.value(name[:_NAME_SHOWN_MAX]))
    if len(value) > FIELD_BYTES_MAX and name != large:
        if name in known:
            raise too_large(name, len(value))
        if not depth_fits(value, depth_max - 1):
            raise invalid("body", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX)
        value = b"null"
    return b"%b:%b" % (_encode(name), value)


def too_large(name: str, size: int) -> Rejected:
    """Of a field that is larger than anything right."""
    return invalid(
        name,
        f"{size} bytes are more than any right value of it has (at most {FIELD_BYTES_MAX})",
        limit=FIELD_BYTES_MAX,
    )
