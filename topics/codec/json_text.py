"""JSON at the edge: what is accepted as JSON, and answers spliced from stored bytes.

A payload is stored and returned byte for byte, so it is checked once, on the way in: UTF-8, the grammar of RFC 8259
(no NaN, no Infinity, no raw control character in a string), no half of a surrogate pair, and nesting of at most
JSON_DEPTH_MAX. The grammar is checked by decoding to `msgspec.Raw`, which walks the text and builds nothing; it looks
at neither UTF-8 nor depth, so those are checked here, on the whole body at C speed. Many separate texts are checked as
one list.

A payload that is bytes goes out as `{"$bytes": BASE64}` beside `"$content_type"`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Final

import msgspec

from topics.codec.log.frame import FrameView
from topics.codec.log.layout import COMPRESSED, DURABLE
from topics.codec.primitives import LAYOUT_BYTES_MAX
from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX

_text: Final = msgspec.json.Decoder(msgspec.Raw)
_texts: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode

_TRUNCATED: Final = "Input data was truncated"  # said of a half pair near the end of a text as well
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_STRUCTURE: Final = b'[]{}"'
_REST: Final = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")  # +1 and -1 as signed bytes
_PEELS: Final = 4
_STEPS_AT_ONCE: Final = 1 << 16
FLAT_BYTES: Final = 2 * JSON_DEPTH_MAX  # a level takes two bytes: no JSON text up to here nests too deep
_CUT_MAX: Final = 256  # texts in one layout,
_CUTS_MAX: Final = 32  # and layouts kept

_NOT_PLAIN: Final = ~DURABLE


def check_json(body: bytes, *, field: str = "body") -> None:
    """Nothing, if the body is one JSON text.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    try:
        body.decode()
        _text.decode(body)
    except UnicodeDecodeError as error:
        raise invalid(field, f"is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise _too_deep(field) from None
    except msgspec.DecodeError as error:
        if not body.strip():
            raise invalid(field, "is empty: JSON is expected") from None
        half = _HALF_PAIR.search(body) if str(error) == _TRUNCATED else None
        what = error if half is None else f"half of a surrogate pair (byte {half.start()})"
        raise invalid(field, f"is not JSON: {what}") from None
    if not depth_fits(body, JSON_DEPTH_MAX):
        raise _too_deep(field)


def check_json_many(pieces: Sequence[bytes], *, field: str = "data") -> None:
    """Nothing, if each piece is one JSON text.

    Raises:
        Rejected: invalid_request, naming the first bad piece as `records[i].<field>`.
    """
    if not pieces:
        return
    sizes = list(map(len, pieces))
    _check_joined(b"[%b]" % b",".join(pieces), sizes, max(sizes), pieces, field)


def copy_json(pieces: Sequence[msgspec.Raw], *, field: str = "data") -> tuple[Sequence[bytes], list[int]]:
    """A copy of each JSON text, checked as `check_json_many` does, and their sizes.

    A text may lie in memory that another thread changes: what is checked is what was copied.
    """
    assert pieces
    sizes = list(map(len, pieces))
    count, size = len(sizes), sizes[0]
    if count > _CUT_MAX or size > LAYOUT_BYTES_MAX or sizes.count(size) != count:
        texts: Sequence[bytes] = list(map(bytes, pieces))
        joined = b",".join(texts)
        size = max(sizes)
    else:
        joined = b",".join(pieces)
        texts = _cut(size, count).unpack(joined)
    _check_joined(b"[%b]" % joined, sizes, size, texts, field)
    return texts, sizes


@lru_cache(_CUTS_MAX)
def _cut(size: int, count: int) -> Struct:
    """Texts of one size with a byte between each two."""
    return Struct("x".join([f"{size}s"] * count))


def _check_joined(
    joined: bytes, sizes: list[int], longest: int, pieces: Sequence[bytes], field: str
) -> None:  # fmt: skip
    try:
        if not joined.isascii():
            joined.decode()
        # Equal counts and lengths put each text exactly where its piece is: joined texts fill the list without a gap.
        whole = list(map(len, _texts.decode(joined))) == sizes
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        whole = False
    if whole and (longest <= FLAT_BYTES or depth_fits(joined, JSON_DEPTH_MAX + 1)):
        return
    for index, piece in enumerate(pieces):
        check_json(piece, field=f"records[{index}].{field}")


def depth_fits(text: bytes, depth_max: int) -> bool:
    """True if a JSON text nests at most so deep. For text that is no JSON the answer means nothing."""
    assert depth_max >= _PEELS
    if len(text) <= 2 * depth_max:
        return True
    structure = text.translate(None, _REST)
    if structure.count(b"[") + structure.count(b"{") <= depth_max:
        return True
    if b"\\" in text:
        structure = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _REST)
    # Strings without a bracket inside have left two adjacent quotes. An odd number of adjacent quotes means a bracket
    # between quotes; only then is the slow way needed.
    brackets = structure.replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(structure.split(b'"')[::2])  # what is between strings
    brackets = brackets.translate(_SQUARE)
    for _ in range(_PEELS):
        brackets = brackets.replace(b"[]", b"")  # takes exactly one level off, the innermost of each branch
        if not brackets:
            return True
    steps, level = array("b", brackets.translate(_STEPS)), 0
    for start in range(0, len(steps), _STEPS_AT_ONCE):
        levels = list(accumulate(steps[start : start + _STEPS_AT_ONCE], initial=level))
        if max(levels) > depth_max - _PEELS:
            return False
        level = levels[-1]
    return True


def records_json(
    views: Iterable[FrameView],
    *,
    include_tags: bool = False,
    include_meta: bool = True,
    include_data: bool = True,
) -> bytes:
    """A JSON array of the records, their stored texts byte for byte (http-api 5)."""
    texts: list[bytes] = []
    for view in views:
        if view.flags & _NOT_PLAIN == 0 and include_data:
            texts.append(b'{"$seq":%d,"$ts":%d,"data":%b}' % (view.seq, view.ts, view.data))
        else:
            texts.append(
                _record_json(
                    view, include_tags=include_tags, include_meta=include_meta, include_data=include_data
                )
            )
    return b"[" + b",".join(texts) + b"]"


def with_members(record: bytes, members: bytes) -> bytes:
    """A record's object with `members` more, as `"a":1,"b":2`: what is said of the job that it is."""
    return b"{%b,%b" % (members, record[1:])


def page_json(
    views: Iterable[FrameView],
    *,
    topic: str,
    epoch: int,
    from_seq: int,
    next_from_seq: int,
    head_seq: int,
    durable_seq: int,
    earliest_seq: int,
    tombstone: Mapping[str, object] | None = None,
    account: Mapping[str, int] | None = None,
    include_tags: bool = False,
    include_meta: bool = True,
    include_data: bool = True,
) -> bytes:
    """The answer to a diff (http-api 5). `caught_up` and `lag` follow from the seqs."""
    records = records_json(
        views, include_tags=include_tags, include_meta=include_meta, include_data=include_data
    )
    return spliced_page(
        records,
        topic=topic,
        epoch=epoch,
        from_seq=from_seq,
        next_from_seq=next_from_seq,
        head_seq=head_seq,
        durable_seq=durable_seq,
        earliest_seq=earliest_seq,
        tombstone=tombstone,
        account=account,
    )


def spliced_page(
    records: bytes,
    *,
    topic: str,
    epoch: int,
    from_seq: int,
    next_from_seq: int,
    head_seq: int,
    durable_seq: int,
    earliest_seq: int,
    tombstone: Mapping[str, object] | None = None,
    account: Mapping[str, int] | None = None,
) -> bytes:
    """A page around `records`, which are a JSON array already."""
    assert from_seq <= next_from_seq <= head_seq
    return b"".join(
        (
            b'{"topic":%b,"epoch":%d,"from_seq":%d,"records":' % (_encode(topic), epoch, from_seq),
            records,
            b',"next_from_seq":%d,"head_seq":%d,"durable_seq":%d,"earliest_seq":%d,"caught_up":%b'
            % (
                next_from_seq,
                head_seq,
                durable_seq,
                earliest_seq,
                b"true" if next_from_seq == head_seq else b"false",
            ),
            b',"tombstone":%b,"lag":%d' % (_encode(tombstone), head_seq - next_from_seq),
            b"" if account is None else b',"account":' + _encode(account),
            b"}",
        )
    )


def _record_json(view: FrameView, *, include_tags: bool, include_meta: bool, include_data: bool) -> bytes:
    assert view.flags & COMPRESSED == 0  # the driver decompresses after fetch
    parts = [b'{"$seq":%d,"$ts":%d' % (view.seq, view.ts)]
    if view.node:
        parts.append(b',"$node":' + _string(view.node))
    if include_tags and view.tag:
        parts.append(b',"$tag":' + _string(view.tag))
    if view.key:
        parts.append(b',"$key":' + _string(view.key))
    if view.content_type:
        parts.append(b',"$content_type":' + _string(view.content_type))
    if include_data:
        parts.append(
            b',"data":' + (b'{"$bytes":%b}' % _encode(view.data) if view.content_type else view.data)
        )
    if include_meta and view.meta:
        parts.append(b',"meta":' + view.meta)
    parts.append(b"}")
    return b"".join(parts)


def _string(text: bytes) -> bytes:
    return _encode(text.decode("utf-8", "replace"))


def _too_deep(field: str) -> Rejected:
    return invalid(field, f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX)
