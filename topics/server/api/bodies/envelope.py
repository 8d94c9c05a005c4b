"""What is around a command that comes as a message: the fields that any message may have (http-api 10).

`op` says what is asked, `request_id` comes back in the answer as it was given. The rest is the op's, whose form has
these fields too (`enveloped`), so that a message is decoded as the body of a request is. `topic` stands here because
most ops have one, and what HTTP has in its path is known before a body is decoded.

How deep a message nests is for its op to say: payloads may be as deep as anywhere.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX, Limits
from topics.server.api.bodies.fields import ABSENT, refusal_of
from topics.server.api.bodies.pieces import (
    FIELD_BYTES_MAX,
    PIECED_BYTES_MIN,
    JsonWalk,
    too_large,
    value_bytes_max,
)

T = TypeVar("T", bound=msgspec.Struct)


class MessageFields(msgspec.Struct, gc=False):
    """The texts of these fields, `ABSENT` if not there. They hold the whole message."""

    op: msgspec.Raw = ABSENT
    topic: msgspec.Raw = ABSENT
    request_id: msgspec.Raw = ABSENT


FIELDS: Final = MessageFields.__struct_fields__
_envelope: Final = msgspec.json.Decoder(MessageFields)
_name: Final = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.Encoder().encode


def enveloped(form: type[T], **options: Any) -> type[T]:
    """The form, with the fields of an envelope, which are not looked at."""
    fields = [(name, msgspec.Raw, ABSENT) for name in FIELDS]
    return msgspec.defstruct(form.__name__, fields, bases=(form,), kw_only=True, **options)  # type: ignore[return-value]  # a subclass of form


def decode_envelope(text: bytes, limits: Limits) -> MessageFields:
    """The envelope of a message, which is UTF-8. To be done in a thread if it is large.

    Raises:
        Rejected: invalid_request.
    """
    if len(text) > PIECED_BYTES_MIN:
        text = _slimmed(text, limits)
    try:
        envelope = _envelope.decode(text)
    except RecursionError:
        raise invalid("message", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX) from None
    except msgspec.DecodeError as error:
        raise refusal_of(error, text, field="message") from None
    if len(envelope.request_id) > FIELD_BYTES_MAX:
        raise too_large("request_id", len(envelope.request_id))
    return envelope


def name_in(field: str, text: msgspec.Raw) -> str:
    """A field of an envelope that is a name.

    Raises:
        Rejected: invalid_request.
    """
    if text is ABSENT:
        raise invalid(field, "is missing")
    try:
        return _name.decode(text)
    except msgspec.DecodeError as error:
        raise refusal_of(error, bytes(text), field=field) from None


def _slimmed(text: bytes, limits: Limits) -> bytes:
    """A large message without all that is no envelope: nothing of it is built. What is wrong with the rest is better
    said by the op, if it is known by then. No list has more values than a write has records.
    """
    walk = JsonWalk(text, value_bytes_max=value_bytes_max(limits), field="message")
    found: dict[str, bytes] = {}
    try:
        for name in walk.members():
            if walk.peek() == b"[" and name not in FIELDS:
                for _ in walk.runs(name, limits.record_bytes, limits.records_per_write):
                    pass
                continue
            value = walk.value(name)
            if name in FIELDS:
                found[name] = b"%b:%b" % (_encode(name), bytes(value))
    except Rejected:
        if "op" not in found:
            raise
    return b"{%b}" % b",".join(found.values())
