"""The metas of a write: objects of strings, stored as the embedded store would write them (http-api 1)."""

from __future__ import annotations

from typing import Final

import msgspec

from topics.calls.intake import encode_meta
from topics.kernel.errors import invalid
from topics.kernel.limits import Limits
from topics.server.api.bodies.fields import what_is_wrong

KEYS_BUILT_MAX: Final = 1024  # of a meta with too many: to say how many there are is worth that much
_ABSENT: Final = (b"", b"null")
_decoder: Final = msgspec.json.Decoder(list[dict[str, str]])
_encode: Final = msgspec.json.Encoder().encode
_MEMBER_BYTES: Final = len('"":"",')  # the least that a key takes in an object of strings
_RESERVED: Final = (b'"$', b'"_topics')  # how a reserved key begins, or any text that looks like one


def stored_metas(metas: list[bytes], limits: Limits) -> list[bytes]:
    """The column of metas as the embedded store would write them; each distinct one is looked at once."""
    known, distinct = dict.fromkeys(_ABSENT, b""), dict.fromkeys(metas)
    texts = list(distinct)
    if max(map(len, texts), default=0) > limits.meta_bytes:
        _check_keys(metas, limits)
    if not known.keys().isdisjoint(distinct):
        texts = [text for text in texts if text not in known]
    stored = _stored(texts, limits) if texts else texts
    if stored is texts and len(texts) == len(distinct):
        return metas
    if stored is None:
        for i, text in enumerate(metas):  # name the first that is wrong
            if text not in known:
                field = f"records[{i}].meta"
                known[text] = encode_meta(field, _one_meta(field, text), limits)
    else:
        known |= zip(texts, stored, strict=True)
    return list(map(known.__getitem__, metas))


def _stored(texts: list[bytes], limits: Limits) -> list[bytes] | None:
    """What is stored for each text, the very list if that is the texts; None if one needs a closer look."""
    joined = b"[%b]" % b",".join(texts)
    try:
        values = _decoder.decode(joined)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    again = _encode(values)
    if any(map(again.count, _RESERVED)):
        return None
    stored = texts
    if again != joined or not all(values):
        stored = [_encode(value) if value else b"" for value in values]
    longest = max(map(len, stored))
    if longest > limits.meta_keys * _MEMBER_BYTES and max(map(len, values)) > limits.meta_keys:
        return None
    return stored if longest <= limits.meta_bytes else None


def _check_keys(metas: list[bytes], limits: Limits) -> None:
    """A meta whose text is long has not so many keys that they are better not built. Each key has four quotes."""
    for i, text in enumerate(metas):
        if len(text) > limits.meta_bytes:
            plain = text.replace(rb"\\", b"") if b"\\" in text else text
            if plain.count(b'"') - plain.count(rb"\"") > 4 * max(limits.meta_keys, KEYS_BUILT_MAX):
                raise invalid(
                    f"records[{i}].meta",
                    f"has more keys than the limit of {limits.meta_keys}",
                    limit=limits.meta_keys,
                )


def _one_meta(field: str, text: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        place, what = what_is_wrong(str(error))
        raise invalid(field + place, what) from None
