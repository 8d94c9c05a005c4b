"""The sink: rows of a frame, batch or stream, appended to topics of a server (spark 3).

A task may be tried again, by Spark after a failure or beside itself when it is slow, so each post has an idempotency
key made of the run, the partition and the post's ordinal, never of the attempt: what an earlier attempt has written is
answered, and not written again. For that a partition must be cut into the same posts each time. So its rows are
sorted first, and a post that the server knows with another body ends the task: rows would be lost otherwise. They are
sorted in memory, so a partition of more than `PARTITION_BYTES_MAX` is refused.

The order: the columns `offset` and `timestamp`, if the frame has them, then whatever else tells rows apart. A topic
knows keys for so long and no longer: see `spark.run`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from topics.calls.patience import Patience
from topics.client.client import Client
from topics.host.system.clock import SystemClock
from topics.kernel.errors import TopicsError, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import MIB, Limits
from topics.kernel.ports import Clock
from topics.spark.options import BATCH_ROWS_MAX, SinkOptions
from topics.spark.run import Memory, SinkRun
from topics.spark.server import connected

PARTITION_BYTES_MAX: Final = 256 * MIB  # of Arrow; to sort it takes three times as much
POST_BYTES: Final = 8 * MIB  # of payloads in one post, unless one row is longer
OWN_POST_BYTES_MAX: Final = (
    Limits().body_bytes
)  # of payloads under a key of the rows' own: they are one write
PAYLOAD: Final = ("topic", "key", "value", "headers", "node", "tag")
ORDER: Final = ("offset", "timestamp")
IGNORED: Final = (
    "partition",
    "timestampType",
    "state",
    "damaged",
)  # what a read of topics or Kafka has besides
NO_DATA: Final = msgspec.Raw(b"null")
_MEND: Final = (
    "Make the partitions the same each time (partition the frame and sort it by what tells rows apart), or give "
    "another writeId"
)
_MEND_OWN: Final = (
    "The rows with one text in the idempotencyKeyColumn are one write: repartition the frame by that column, so that "
    "no other task has some of them, and give rows that come later a text of their own"
)


class RowsDiffer(TopicsError):
    """A post was made before under its key, with other rows. Nothing was written now."""


@attrs.frozen
class SinkWritten:
    """What a task did. `known`: posts that the server had already."""

    rows: int
    posts: int
    known: int


def check_columns(names: Sequence[str], options: SinkOptions) -> None:
    """Raises `Rejected` unless these columns can be written."""
    if "value" not in names:
        raise invalid("value", "the frame has no column value: JSON text, as to_json(struct(...)) makes it")
    if options.topic is None and "topic" not in names:
        raise invalid("topic", "name one with the option topic, or give the frame a column topic")
    if options.key_column is not None and options.key_column not in names:
        raise invalid("idempotencyKeyColumn", f"the frame has no column {options.key_column!r}")
    allowed = {*PAYLOAD, *ORDER, *IGNORED, options.key_column}
    for name in names:
        if name not in allowed:
            raise invalid(name, f"is a column that a topic has no place for; there are {', '.join(PAYLOAD)}")


def connected_to(options: SinkOptions) -> Client:
    """A client of the server that rows go to, to be closed."""
    patience = Patience(
        reach_ms=options.timeout_ms, total_ms=options.timeout_ms, attempts_max=options.retries + 1
    )
    return connected(options.url, options.token, patience, cafile=options.cafile)


def write_partition(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    *,
    run: SinkRun,
    partition: int,
    clock: Clock | None = None,
) -> SinkWritten:
    """Write the rows of one partition.

    Raises:
        KeysForgotten: the run began so long ago that what an earlier attempt has written may be unknown.
        RowsDiffer: an earlier attempt, or another run of the same `writeId`, has written other rows in their place.
        Rejected: the partition or the rows of one key are too many; or the server, or the client before it, refuses a
            row. The message names it.
    """
    given = _gathered(batches, partition)
    if given is None:
        return SinkWritten(0, 0, 0)
    table = _sorted(given, options)
    del given  # before the posts are made: it is as large as the sorted rows
    known = posts = 0
    with connected_to(options) as client:
        memory = Memory(run, client, (clock or SystemClock()).now_ms)
        for ordinal, post in enumerate(_posts(table, options)):
            memory.refuse_late(post.topic)
            is_known = _send(client, post, f"{run.name}/{partition}/{ordinal}", partition)
            if not is_known:
                memory.refuse_late_answer(post.topic)
            known += is_known
            posts += 1
    return SinkWritten(table.num_rows, posts, known)


@attrs.frozen
class _Post:
    """Rows of one topic that are written together. `key`: the rows' own, None if there is none."""

    topic: str
    key: str | None
    first: int  # of its rows in the sorted partition
    records: Sequence[dict[str, Any]]


def _send(client: Client, post: _Post, ordinal_key: str, partition: int) -> bool:
    """Write one post. `ordinal_key`: for rows that have none of their own. True if the server had it already."""
    key = ordinal_key if post.key is None else post.key
    try:
        reply = client.topic(post.topic).put_many(post.records, idempotency_key=key, require_same_body=False)
    except TopicsError as error:
        where = f"topic {post.topic!r}, partition {partition}, sorted rows from {post.first}"
        error.args = (f"{where}: {error.message}",)
        raise
    if reply.same_body is False:
        mend = _MEND if post.key is None else _MEND_OWN
        raise RowsDiffer(
            f"topic {post.topic!r}: the rows of partition {partition} from {post.first} are others than those written "
            f"before under the key {key!r}; nothing of them was written now. {mend}",
            topic=post.topic,
            idempotency_key=key,
        )
    return reply.deduped


def _gathered(batches: Iterator[pa.RecordBatch], partition: int) -> pa.Table | None:
    """All rows of a partition; None if there are none."""
    given = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > PARTITION_BYTES_MAX:
            raise invalid(
                "partition",
                f"partition {partition} has {size / MIB:.0f} MiB and more, and the sink sorts at most "
                f"{PARTITION_BYTES_MAX // MIB} MiB in memory: repartition the frame into more of them, or give a "
                "stream smaller batches (maxBytesPerTrigger)",
            )
        if batch.num_rows:
            given.append(batch)
    return pa.Table.from_batches(given) if given else None


def _sorted(table: pa.Table, options: SinkOptions) -> pa.Table:
    """The rows in the one order that any attempt finds."""
    if options.topic is not None:
        named = pa.repeat(pa.scalar(options.topic, pa.string()), table.num_rows)
        table = table.drop_columns(["topic"]) if "topic" in table.column_names else table
        table = table.append_column("topic", named)
    own = () if options.key_column is None else (options.key_column,)
    names = [name for name in dict.fromkeys(("topic", *own, *ORDER, *PAYLOAD)) if name in table.column_names]
    keys = table.select(names)
    if "headers" in names:
        texts = [None if row is None else repr(row) for row in keys["headers"].to_pylist()]
        keys = keys.set_column(names.index("headers"), "headers", pa.array(texts, pa.string()))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    return table.take(order)


def _posts(table: pa.Table, options: SinkOptions) -> Iterator[_Post]:
    """Sorted rows, cut where topic or own key changes, and where a post is full."""
    held: list[dict[str, Any]] = []
    at = first = size = 0
    topic, key = "", None
    for batch in table.to_batches(max_chunksize=options.batch_rows):
        for row in batch.to_pylist():
            its_topic, its_key = _topic_of(row, at), _key_of(row, at, options)
            record = _record(row, at)
            its_size = len(bytes(record["data"]))
            is_same = its_topic == topic and its_key == key
            if is_same and key is not None:
                _check_own(topic, key, rows=len(held) + 1, size=size + its_size)
            is_full = key is None and (len(held) >= options.batch_rows or size + its_size > POST_BYTES)
            if held and (is_full or not is_same):
                yield _Post(topic, key, first, held)
                held, first, size = [], at, 0
            topic, key = its_topic, its_key
            held.append(record)
            size += its_size
            at += 1
    if held:
        yield _Post(topic, key, first, held)


def _check_own(topic: str, key: str, *, rows: int, size: int) -> None:
    """Raises `Rejected` if the rows under a key of their own are more than one write takes."""
    if rows > BATCH_ROWS_MAX or size > OWN_POST_BYTES_MAX:
        raise invalid(
            "idempotencyKeyColumn",
            f"topic {topic!r}: over {BATCH_ROWS_MAX} rows or {OWN_POST_BYTES_MAX // MIB} MiB have the text {key!r}; "
            "all of one text are one write: give fewer rows the same text",
        )


def _topic_of(row: dict[str, Any], at: int) -> str:
    if row["topic"] is None:
        raise invalid("topic", f"is null in the sorted row {at}")
    return check_topic_name(row["topic"])


def _key_of(row: dict[str, Any], at: int, options: SinkOptions) -> str | None:
    if options.key_column is None:
        return None
    key = row[options.key_column]
    if isinstance(key, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            key = key.decode()
    if not isinstance(key, str) or not key:
        raise invalid("idempotencyKeyColumn", f"{options.key_column} is no text in the sorted row {at}")
    return key


def _record(row: dict[str, Any], at: int) -> dict[str, Any]:
    """A row as the client takes records."""
    value = row["value"]
    data = NO_DATA if value is None else msgspec.Raw(value.encode() if isinstance(value, str) else value)
    record: dict[str, Any] = {"data": data}
    for name in ("key", "node", "tag"):
        text = row.get(name)
        if text is not None:
            record[name] = _text(name, text, at)
    headers = row.get("headers")
    if headers:
        meta = {header["key"]: _text("headers", header["value"] or b"", at) for header in headers}
        if len(meta) != len(headers):
            raise invalid("headers", f"the sorted row {at} has a header twice, and meta has each key once")
        record["meta"] = meta
    return record


def _text(name: str, value: str | bytes, at: int) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(name, f"is no UTF-8 in the sorted row {at}") from None
