"""The options of `format("topics")`: text from a user, to values that are checked (spark 3).

Spark hands options over as text under names without case. A name that nobody knows is refused: a misspelt limit that is
silently not there is worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import attrs
import msgspec

from topics.audit.columnar.arrow_batches import Verify
from topics.kernel.errors import invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import MIB, U64_MAX

TARGET_PARTITION_BYTES: Final = 96 * MIB
PARTITIONS_MAX: Final = 100_000
EARLIEST: Final = -2  # as Kafka's source has them, in JSON
LATEST: Final = -1

T = TypeVar("T")


class Table(StrEnum):
    """What `load` gives: the records, or the ranges of seqs that are lost."""

    RECORDS = "records"
    LOSSES = "losses"


@attrs.frozen(kw_only=True)
class ReadOptions:
    """What to read. One of `path` and `url`; one of `topics`, `pattern` and `assigned`.

    `starting`, `ending`: "earliest", "latest", or a seq a topic, the ending one exclusive; `None` is the default of
    batch or stream. `starting_ms`, `ending_ms` win over them.
    """

    path: str | None
    url: str | None
    token: str | None = attrs.field(repr=False)
    cafile: str | None
    cold: str | None
    topics: tuple[str, ...]
    pattern: str | None
    starting: str | Mapping[str, int] | None
    ending: str | Mapping[str, int] | None
    starting_ms: int | None
    ending_ms: int | None
    offsets_per_trigger: int | None
    bytes_per_trigger: int | None
    partitions_min: int
    partition_bytes: int
    fail_on_loss: bool
    headers: bool
    internal: bool
    verify: Verify
    table: Table

    def __attrs_post_init__(self) -> None:
        if (self.path is None) == (self.url is None):
            raise invalid(
                "path", "give the path of a data directory or backup, or the url of a server, not both"
            )
        if not self.topics and self.pattern is None:
            raise invalid("subscribe", "say which topics: subscribe, subscribePattern or assign")
        if self.topics and self.pattern is not None:
            raise invalid("subscribePattern", "give subscribe, subscribePattern or assign, only one of them")
        if self.url is not None and self.internal:
            raise invalid(
                "includeInternal", "a server does not give away ended records; read its directory by path"
            )
        if self.url is not None and self.verify is Verify.FLAG:
            raise invalid(
                "verifyChecksums", "a server verifies what it sends and flags nothing; use fail or off"
            )
        for name, value in (("token", self.token), ("caFile", self.cafile)):
            if value is not None and self.url is None:
                raise invalid(name, "a directory asks for none; it goes with url")
        if self.cold is not None and self.path is None:
            raise invalid("coldPath", "it goes with path")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read.

    Raises:
        Rejected: an unknown option, a value that is none, or two that contradict each other; the message names it.
    """
    known = _Given(given, _READ_NAMES)
    subscribed = known.take("subscribe", _names)
    assigned = known.take("assign", _assigned)
    if subscribed and assigned:
        raise invalid("assign", "give subscribe, subscribePattern or assign, only one of them")
    return ReadOptions(
        path=known.take("path", _place),
        url=known.take("url", _text),
        token=known.take("token", _text),
        cafile=known.take("caFile", _place),
        cold=known.take("coldPath", _place),
        topics=subscribed or assigned or (),
        pattern=known.take("subscribePattern", _pattern),
        starting=known.take("startingOffsets", _bound),
        ending=known.take("endingOffsets", _bound),
        starting_ms=known.take("startingTimestamp", _number(0)),
        ending_ms=known.take("endingTimestamp", _number(0)),
        offsets_per_trigger=known.take("maxOffsetsPerTrigger", _number(1)),
        bytes_per_trigger=known.take("maxBytesPerTrigger", _number(1)),
        partitions_min=known.take("minPartitions", _number(1, PARTITIONS_MAX)) or 1,
        partition_bytes=known.take("targetPartitionBytes", _number(1)) or TARGET_PARTITION_BYTES,
        fail_on_loss=known.flag("failOnDataLoss", default=True),
        headers=known.flag("includeHeaders", default=False),
        internal=known.flag("includeInternal", default=False),
        verify=known.take("verifyChecksums", _one_of(Verify)) or Verify.FAIL,
        table=known.take("table", _one_of(Table)) or Table.RECORDS,
    )


@attrs.frozen(kw_only=True)
class SinkOptions:
    """Where rows go. `write_id` names the run, so that what it has written is known when it is run again. `checkpoint`:
    of a stream; `query`: its name, under which Spark finds a checkpoint that no option says.
    """

    url: str
    token: str | None = attrs.field(repr=False)
    cafile: str | None
    topic: str | None
    write_id: str | None
    key_column: str | None
    batch_rows: int
    timeout_ms: int
    retries: int
    checkpoint: str | None
    query: str | None


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises `Rejected` as `read_options`."""
    known = _Given(given, _SINK_NAMES)
    url = known.take("url", _text)
    if url is None:
        why = "is missing: rows are written to a server"
        raise invalid("url", why + (", for a directory has one owner" if "path" in given else ""))
    topic = known.take("topic", _text)
    return SinkOptions(
        url=url,
        token=known.take("token", _text),
        cafile=known.take("caFile", _place),
        topic=None if topic is None else check_topic_name(topic),
        write_id=known.take("writeId", _write_id),
        key_column=known.take("idempotencyKeyColumn", _text),
        batch_rows=known.take("batchRows", _number(1, BATCH_ROWS_MAX)) or BATCH_ROWS,
        timeout_ms=known.take("timeout", _number(1)) or TIMEOUT_MS,
        retries=(known.take("retries", _number(0, RETRIES_MAX)) if "retries" in given else RETRIES) or 0,
        checkpoint=known.take("checkpointLocation", _place),
        query=known.take("queryName", _text),
    )


BATCH_ROWS: Final = 1000
BATCH_ROWS_MAX: Final = 10_000  # records of a write, unless the server is set to fewer
TIMEOUT_MS: Final = 30_000
RETRIES: Final = 63
RETRIES_MAX: Final = 1000
WRITE_ID_CHARS_MAX: Final = 128  # of the 256 of an idempotency key

_READ_NAMES: Final = (
    "path", "url", "token", "caFile", "coldPath", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "minPartitions", "targetPartitionBytes", "failOnDataLoss", "includeHeaders", "includeInternal", "verifyChecksums",
    "table",
)  # fmt: skip
_SINK_NAMES: Final = (
    "url", "path", "token", "caFile", "topic", "writeId", "idempotencyKeyColumn", "batchRows", "timeout", "retries",
    "checkpointLocation", "queryName", "outputMode",
)  # fmt: skip
_FLAGS: Final = {"true": True, "false": False}
_offsets: Final = msgspec.json.Decoder(dict[str, int]).decode
_listed: Final = msgspec.json.Decoder(list[str]).decode
_partitioned: Final = msgspec.json.Decoder(dict[str, list[int]]).decode


class _Given:
    """What was given, by names that are known."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = given
        lowered = {name.lower() for name in known}
        for name in given:
            if name.lower() not in lowered:
                raise invalid(name, f"is no option of topics; there are {', '.join(known)}")

    def take(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        text = self._given.get(name.lower())
        return None if text is None else parse(name, text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self._given.get(name.lower())
        if text is None:
            return default
        if text.lower() not in _FLAGS:
            raise invalid(name, f"must be true or false, not {text!r}")
        return _FLAGS[text.lower()]


def _text(name: str, text: str) -> str:
    if not text:
        raise invalid(name, "is empty")
    return text


def located(text: str) -> str:
    """A folder or file of this machine as an absolute path, for executors may run in another folder, and Spark writes
    `file:/data` or `file:///data` where others write `/data`. Any other URL stays as it is.
    """
    if text.startswith("file:"):
        text = text.removeprefix("file:")
        text = text.removeprefix("//") if text.startswith("///") else text
        if text.startswith("//"):
            raise invalid("path", f"file:{text} is of another machine; file:///… is a path of this one")
    elif "://" in text:
        return text
    return str(Path(text).absolute())


def _place(name: str, text: str) -> str:
    return located(_text(name, text))


def _names(name: str, text: str) -> tuple[str, ...]:
    """Names of topics, with commas between them."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise invalid(name, f"{text!r} has an empty name in it")
    return tuple(dict.fromkeys(check_topic_name(part) for part in found))


def _assigned(name: str, text: str) -> tuple[str, ...]:
    """`["quakes"]`, or as in Kafka `{"quakes": [0]}`: a topic has one partition, 0."""
    try:
        found = list(_listed(text))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            partitions = _partitioned(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise invalid(name, 'must be JSON like ["quakes"] or {"quakes": [0]}') from None
        for topic, numbers in partitions.items():
            if numbers != [0]:
                raise invalid(name, f"topic {topic!r} has one partition, 0, not {numbers}") from None
        found = list(partitions)
    if not found:
        raise invalid(name, "names no topic")
    return tuple(dict.fromkeys(check_topic_name(topic) for topic in found))


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(_text(name, text))
    except re.error as error:
        raise invalid(name, f"{text!r} is no regular expression: {error}") from None
    return text


def _bound(name: str, text: str) -> str | Mapping[str, int]:
    """`earliest`, `latest`, or JSON of a seq a topic."""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        bounds = _offsets(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        why = 'must be earliest, latest or JSON like {"quakes": 17}'
        raise invalid(name, f"{why} (-2 earliest, -1 latest), not {text!r}") from None
    for topic, seq in bounds.items():
        if not (seq in (EARLIEST, LATEST) or 1 <= seq <= U64_MAX):
            raise invalid(name, f"topic {topic!r}: seqs count from 1 (-2 earliest, -1 latest), not {seq}")
    return bounds


def _number(least: int, most: int = 2**63 - 1) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
            bound = f"from {least} to {most}" if most < 2**63 - 1 else f"of at least {least}"
            raise invalid(name, f"must be a whole number {bound}, not {text!r}")
        return int(text)

    return parse


_Choice = TypeVar("_Choice", bound=StrEnum)


def _one_of(choices: type[_Choice]) -> Callable[[str, str], _Choice]:
    def parse(name: str, text: str) -> _Choice:
        try:
            return choices(text.lower())
        except ValueError:
            raise invalid(name, f"must be one of {', '.join(choices)}, not {text!r}") from None

    return parse


def _write_id(name: str, text: str) -> str:
    if not 1 <= len(text) <= WRITE_ID_CHARS_MAX or not text.isprintable():
        raise invalid(name, f"must be 1 to {WRITE_ID_CHARS_MAX} printable characters")
    return text
