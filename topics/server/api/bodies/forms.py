"""What the body of a write may look like, and its decoders (http-api 4).

A body is decoded to the narrowest form that it has: plain records, labelled ones, any. A narrow decoder gives up at the
first field it does not know, so that only a body with fields that nobody knows is looked through for their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from topics.codec.json_text import check_json
from topics.kernel.errors import invalid
from topics.kernel.limits import JSON_DEPTH_MAX
from topics.server.api import schemas as s
from topics.server.api.bodies.envelope import enveloped
from topics.server.api.bodies.fields import (
    IGNORED_MAX,
    OpenForm,
    field_names,
    in_words,
    what_is_wrong,
)

_EXPECTED: Final = 'a write is {"records": [{"data": 1}, …]}'
_NO_META: Final = msgspec.Raw(b"")
NO_CONFIG: Final = msgspec.Raw(b"null")  # `Raw | None` would take nothing but null


class PlainRecordIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record that is data and nothing else."""

    data: msgspec.Raw


class LabelledRecordIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record with nothing beside its data but what most writes label theirs with."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = _NO_META


class RecordIn(msgspec.Struct, gc=False):
    """A record as a client writes it."""

    data: Annotated[
        msgspec.Raw,
        s.said('Any JSON value, stored and returned byte for byte; or bytes, as `{"$bytes": BASE64}`'),
    ]
    tag: Annotated[str | None, s.nonempty_text("What deletes and filters select by, at most 256 bytes")] = (
        None
    )
    node: Annotated[str | None, s.nonempty_text("Who writes it, at most 128 bytes")] = None
    key: Annotated[str | None, s.nonempty_text("At most 256 bytes")] = None
    content_type: Annotated[str | None, s.nonempty_text("Of `data` that is bytes; at most 255 bytes")] = None
    dedup_id: Annotated[
        str | None, s.nonempty_text("Of two records with one id the second is dropped; at most 256 bytes")
    ] = None
    ttl_ms: Annotated[int | None, s.unsigned("It expires so long after its ts")] = None
    priority: Annotated[int | None, s.unsigned("Of a job, 0 to 9")] = None
    delay_ms: Annotated[int | None, s.unsigned("Of a job: not before so long after its ts")] = None
    meta: Annotated[msgspec.Raw, s.said(**s.or_null(s.META))] = _NO_META


class _WriteIn(msgspec.Struct, kw_only=True):
    node: Annotated[str | None, s.nonempty_text("Of the records that have none of their own")] = None
    idempotency_key: Annotated[
        str | None, s.nonempty_text("A retry with it is answered as the first write was, and writes nothing")
    ] = None
    create: Annotated[
        bool | None, s.said("Create an absent topic; the server's `TOPICS_AUTO_CREATE` if not given")
    ] = None
    config: Annotated[msgspec.Raw, s.said(**s.or_null(s.ref("TopicConfig")))] = NO_CONFIG
    disable_backpressure: Annotated[bool | None, s.said("Not to be refused for pressure; takes `admin`")] = (
        None
    )
    expected_head: Annotated[
        int | None, s.unsigned("Write only if this is the last assigned seq, else 409 `seq_mismatch`")
    ] = None
    return_seqs: Annotated[bool | None, s.said("Give `seqs`; as in the query")] = None


class PlainWriteIn(_WriteIn, forbid_unknown_fields=True, kw_only=True):
    """A write of plain records: decoded and checked in half the time, and most writes are."""

    records: list[PlainRecordIn]


class LabelledWriteIn(_WriteIn, forbid_unknown_fields=True, kw_only=True):
    """A write of labelled records: nothing in it but payloads, metas and the config can nest."""

    records: list[LabelledRecordIn]


class WriteIn(_WriteIn, kw_only=True):
    """The body of any write."""

    records: list[RecordIn]


class _AroundIn(_WriteIn, kw_only=True):
    """A write whose records are not looked at."""

    records: msgspec.Raw


AnyWriteIn = PlainWriteIn | LabelledWriteIn | WriteIn
_record_form: Final = OpenForm(RecordIn)
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])


class WriteForms:
    """The decoders of writes. `whole`: what becomes of each form."""

    def __init__(self, whole: Callable[[type[msgspec.Struct]], type[Any]]) -> None:
        self._type: type[WriteIn] = whole(WriteIn)
        self._plain: msgspec.json.Decoder[PlainWriteIn] = msgspec.json.Decoder(whole(PlainWriteIn))
        self._labelled: msgspec.json.Decoder[LabelledWriteIn] = msgspec.json.Decoder(whole(LabelledWriteIn))
        self._exact = OpenForm(self._type, records=list[_record_form.exact]).exact_decoder  # type: ignore[name-defined]  # a type made here
        self._any: msgspec.json.Decoder[WriteIn] = msgspec.json.Decoder(self._type)
        self._around: msgspec.json.Decoder[_AroundIn] = msgspec.json.Decoder(whole(_AroundIn))
        self._around_form = OpenForm(self._around.type)
        self.known: Final = frozenset(field_names(self._any))

    def decoded(self, body: bytes) -> AnyWriteIn:
        """The narrowest form it has: a narrow decoder gives up at the first field it does not know."""
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._plain.decode(body)
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._labelled.decode(body)
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            exact: WriteIn = self._exact.decode(body)
            return exact
        try:
            return self._any.decode(body)
        except RecursionError:
            raise invalid("body", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not body.strip():
                raise invalid("body", f"is empty: {_EXPECTED}") from None
            check_json(body)  # is it JSON at all?
            field, what = what_is_wrong(str(error))
            expected = f": {_EXPECTED}" if field in ("", "records") else ""
            raise invalid(field or "body", f"{in_words(what)}{expected}") from None

    def ignored(self, body: bytes, write: AnyWriteIn) -> Sequence[str]:
        """Names that nobody knows, of a write that is well-formed and not too large: its own, then those of its
        records.
        """
        if type(write) is not self._type:
            return ()
        texts = self._around.decode(body).records
        found = list(self._around_form.ignored(body, known_bytes=len(texts)))
        for i, (text, record) in enumerate(zip(_raws.decode(texts), write.records, strict=True)):
            if len(found) >= IGNORED_MAX:
                break
            names = _record_form.ignored(bytes(text), known_bytes=len(record.data) + len(record.meta))
            found += [f"records[{i}].{name}" for name in names]
        return found[:IGNORED_MAX]


BODY: Final = WriteForms(lambda form: form)
MESSAGE: Final = WriteForms(enveloped)
