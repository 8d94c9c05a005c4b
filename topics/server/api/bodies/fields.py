"""Objects in bodies, field by field: what is known becomes values, whatever else is in there is walked over.

Theory. Unknown fields are ignored, so they may be anything and of any size: building what nobody looks at costs most of
a second for a dozen MiB. A typed decoder builds what it knows and walks over the rest at the speed of its grammar. What
it does not look at is checked on the whole text: UTF-8 and nesting. A field that is null is absent.

The answer names what was ignored (http-api 0). Whether there is anything costs nothing: a decoder that takes the known
fields and no others is tried first, and only where it gives up are the names looked for.

A topic's config is the exception: no other fields are allowed, null is a value, and its parser wants plain values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.codec.json_text import FLAT_BYTES, check_json, depth_fits
from topics.kernel.checks import json_kind
from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX
from topics.server.api.bodies.pieces import FIELD_BYTES_MAX, VALUE_BYTES_MAX, slimmed, too_large

IGNORED_MAX: Final = 10  # names in an answer,
IGNORED_CHARS_MAX: Final = 128  # and of each so much
T = TypeVar("T", bound=msgspec.Struct)
ABSENT: Final = msgspec.Raw(b"null")
_PLACE: Final = re.compile(r" - at `\$\.?(.*?)`$")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_INDEX: Final = re.compile(r"\[[0-9]+\]$")
_EXPECTED: Final = re.compile(r"Expected `(.*?)(?: \| null)?`, got `(.*)`")
_WORDS: Final = {
    "int": "a whole number",
    "bool": "true or false",
    "str": "a string",
    "str | array": "a name or a list of names",
    "array": "a list",
    "object": "an object",
}
_KINDS: Final = {"null": json_kind(None), "array": json_kind([]), "object": json_kind({})} | {
    kind.__name__: json_kind(kind()) for kind in (bool, int, float, str)
}
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_UNKNOWN_WORDS: Final = "unknown field"


def decode_form(
    decoder: msgspec.json.Decoder[T],
    text: bytes,
    *,
    field: str = "body",
    large: str = "",
    value_bytes_max: int = VALUE_BYTES_MAX,
) -> T:
    """An object as a typed form; no text is an empty object. `large`: the field that may be as large as a value.

    Raises:
        Rejected: invalid_request, naming the field, or `field` for the whole.
    """
    if len(text) > FIELD_BYTES_MAX:
        known = field_names(decoder)
        text = slimmed(text, known, field=field, large=large, value_bytes_max=value_bytes_max)
    try:
        form = decoder.decode(text or b"{}")
        if not text.isascii():
            text.decode()
    except RecursionError:
        raise _too_deep(field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        refused = refusal_of(error, text or b"{}", field=field)
        raise refused if text else invalid(field, f"is empty: {refused.message}") from None
    if len(text) > FLAT_BYTES and not depth_fits(text, JSON_DEPTH_MAX):
        raise _too_deep(field)
    return form


def refusal_of(error: msgspec.DecodeError | UnicodeDecodeError, text: bytes, *, field: str) -> Rejected:
    """What a decoder had to say of this text, naming the field, or `field` for the whole."""
    try:
        check_json(text, field=field)  # is it JSON at all?
    except Rejected as refused:
        return refused
    name, what = what_is_wrong(str(error))
    unknown = _UNKNOWN.fullmatch(what)
    if unknown is not None:
        return invalid(f"{name}.{unknown[1][:IGNORED_CHARS_MAX]}".lstrip("."), _UNKNOWN_WORDS)
    return invalid(_INDEX.sub("", name) or field, in_words(what))


def field_names(decoder: msgspec.json.Decoder[Any]) -> tuple[str, ...]:
    """Of the form that it decodes to."""
    names: tuple[str, ...] = decoder.type.__struct_fields__
    return names


def what_is_wrong(message: str) -> tuple[str, str]:
    """The field of a decoder's message, as the embedded store names it, and the rest of the message."""
    place = _PLACE.search(message)
    field, what = "", message
    if place is not None:
        field, what = place[1].removesuffix("[...]"), message[: place.start()]
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        field, what = f"{field}.{missing[1]}".lstrip("."), "is missing"
    return field, what


def plain_value(name: str, raw: msgspec.Raw) -> Any:
    """The value of a field that is not typed. Nothing large is built: no right value of it is.

    Raises:
        Rejected: invalid_request.
    """
    if len(raw) > FIELD_BYTES_MAX:
        raise too_large(name, len(raw))
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:  # JSON bounds no number, Python's floats are bounded
        raise invalid(name, str(error)) from None


class OpenForm(Generic[T]):
    """Objects with these fields; others are walked over, and named.

    `exact`: those that have no others. `inner`: types of fields that are forms themselves, as exact ones.
    """

    def __init__(self, form: type[T], **inner: Any) -> None:
        self.exact: type[T] = msgspec.defstruct(
            "Exact", inner.items(), bases=(form,), forbid_unknown_fields=True, gc=False
        )  # type: ignore[assignment]  # a subclass of form
        self.exact_decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(self.exact)
        self._open: msgspec.json.Decoder[T] = msgspec.json.Decoder(form)
        self._names = frozenset(form.__struct_encode_fields__)

    def decode(self, text: bytes) -> tuple[T, Sequence[str]]:
        """The form, and the first names in the text that it has no field for.

        Raises:
            Rejected: invalid_request, naming the field.
        """
        if len(text) > FIELD_BYTES_MAX:
            text = slimmed(text, self._names)
        try:
            return decode_form(self.exact_decoder, text), ()
        except Rejected:
            form = decode_form(self._open, text)
        return form, self.ignored(text)

    def ignored(self, text: bytes, *, known_bytes: int = 0) -> Sequence[str]:
        """The first names of an object, known to be well-formed, that have no field here.

        `known_bytes`: of the text, what the values of known fields take. Where the rest is larger than what anybody
        writes by mistake, the first name stands for all, so that nothing large is built.
        """
        if len(text) - known_bytes > FIELD_BYTES_MAX:
            found = self._first(text)
        else:
            found = [name for name in _members.decode(text) if name not in self._names]
        return [name[:IGNORED_CHARS_MAX] for name in found[:IGNORED_MAX]]

    def _first(self, text: bytes) -> list[str]:
        try:
            self.exact_decoder.decode(text)
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.fullmatch(str(error))
            return [] if unknown is None else [unknown[1]]
        return []


class ClosedForm:
    """Objects with these fields and no others, their values plain."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        self._names = tuple(names)
        assert len(self._names) > 1
        form = msgspec.defstruct(
            kind, [(name, msgspec.Raw, ABSENT) for name in self._names], forbid_unknown_fields=True, gc=False
        )
        self._decoder = msgspec.json.Decoder(form)
        self._values = attrgetter(*self._names)

    def decode(self, text: bytes, *, field: str = "body") -> dict[str, Any]:
        """What is there, by name; an unknown field alone if there is one, for the parser to refuse.

        Raises:
            Rejected: invalid_request, naming the field, or `field` for the whole.
        """
        try:
            form = decode_form(self._decoder, text, field=field)
        except Rejected as refused:
            unknown = refused.message.removesuffix(f": {_UNKNOWN_WORDS}")
            if unknown == refused.message:
                raise
            return {unknown: None}
        values = zip(self._names, self._values(form), strict=True)
        return {name: plain_value(name, raw) for name, raw in values if raw is not ABSENT}


def in_words(message: str) -> str:
    """A decoder's message as the embedded store would put it."""
    expected = _EXPECTED.fullmatch(message)
    if expected is None or expected[1] not in _WORDS:
        return message
    return f"must be {_WORDS[expected[1]]}, not {_KINDS.get(expected[2], expected[2])}"


def _too_deep(field: str) -> Rejected:
    return invalid(field, f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX)
