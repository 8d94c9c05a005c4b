"""What the codec's tests share: writes drawn by hypothesis, and records flattened so that runs can be compared."""

from __future__ import annotations

from hypothesis import strategies as st

from topics.codec.log.control import Control, WriteResult, encode_control
from topics.codec.log.encode import encode_run
from topics.codec.log.run import Keyed, Run
from topics.kernel.columns import RecordColumns

TS = 1_700_000_000_000
U64 = st.integers(0, 2**64 - 1)


def short(size_max=12, size_min=0):
    return st.binary(min_size=size_min, max_size=size_max)


def column(values, count):
    """None, or one value a record."""
    return st.none() | st.lists(values, min_size=count, max_size=count)


@st.composite
def columns(draw, count_min=1, count_max=6):
    data = draw(st.lists(short(40), min_size=count_min, max_size=count_max))
    count = len(data)
    if draw(st.booleans()):
        return RecordColumns(data)
    return RecordColumns(
        data,
        node=draw(column(short(4), count)),
        tag=draw(column(short(4), count)),
        key=draw(column(short(4), count)),
        meta=draw(column(short(6), count)),
        content_type=draw(column(short(4), count)),
        dedup_id=draw(column(short(4), count)),
        ttl_ms=draw(column(st.none() | st.integers(0, 2**40), count)),
        priority=draw(column(st.none() | st.integers(0, 9), count)),
        delay_ms=draw(column(st.none() | st.integers(0, 2**40), count)),
        compressed=draw(column(st.booleans(), count)),
        hops=draw(column(st.none() | st.integers(1, 255), count)),
    )


class Log:
    """A WAL body put together write by write, with what a scan of it must find."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[int] = [0]  # after each complete write
        self.records: list[tuple] = []  # of complete writes, in order
        self.counts: list[int] = [0]  # records after each complete write
        self.next_seq: dict[int, int] = {}

    def append(self, topic_id, ts, records, *, durable=False, key=b"", duplicates=()):
        seq = self.next_seq.get(topic_id, 1)
        keyed = Keyed(key, 77) if key else None
        count = len(records)
        if keyed is not None and duplicates:
            result = WriteResult(key, 77, count + len(duplicates), seq, list(duplicates))
            self.chunks.append(
                encode_control(result, topic_id=topic_id, ts=ts, durable=durable, write_frames=count + 1)
            )
            self.records.append(("control", result))
            keyed, frames = None, 0
        else:
            frames = count
        chunk, run = encode_run(topic_id, seq, ts, records, durable=durable, keyed=keyed, write_frames=frames)
        self.chunks.append(chunk)
        self.records += flat(run)
        self.next_seq[topic_id] = seq + count
        self._ended()

    def control(self, payload, *, topic_id, ts=TS):
        self.chunks.append(encode_control(payload, topic_id=topic_id, ts=ts))
        self.records.append(("control", payload))
        self._ended()

    def _ended(self):
        self.ends.append(sum(map(len, self.chunks)))
        self.counts.append(len(self.records))

    @property
    def bytes(self) -> bytes:
        return b"".join(self.chunks)


@st.composite
def logs(draw, writes_max=6):
    log = Log()
    ts = TS
    for _ in range(draw(st.integers(0, writes_max))):
        topic_id = draw(st.integers(1, 2))
        ts += draw(st.integers(0, 1))
        records = draw(columns(count_max=4))
        key = draw(st.just(b"") | short(4, size_min=1))
        duplicates = (
            draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=2)) if key else []
        )
        log.append(topic_id, ts, records, durable=draw(st.booleans()), key=key, duplicates=duplicates)
    return log


def flat(run: Run) -> list[tuple]:
    """One tuple a record: all that the run says of it."""

    def column(values, absent):
        return [absent] * len(run) if values is None else list(values)

    dedup = dict(run.dedup or ())
    rows = zip(
        run.lengths, run.sizes, column(run.flags, 0), column(run.tags, b""), column(run.nodes, b""),
        column(run.expires, 0), column(run.jobs, 0), column(run.keys, b""), strict=True,
    )  # fmt: skip
    return [
        (
            run.topic_id, run.seq_start + i, run.ts, run.durable, run.keyed if i == 0 else None, dedup.get(i, b""), *row
        )
        for i, row in enumerate(rows)
    ]  # fmt: skip


def flat_items(items) -> list[tuple]:
    found: list[tuple] = []
    for item in items:
        found += [("control", item.payload)] if isinstance(item, Control) else flat(item)
    return found
