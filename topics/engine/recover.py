"""Recovery: what the files of a directory say, folded by the same `apply` as live writes (storage 4).

Pure. The driver reads each file and asks `look`; `judge` decides shard by shard; `recover` folds everything kept, in
the order generations, shard 0 first, other shards, and says what is damaged or cut, by topic and seq. A damaged
store gives the read-only view that a repair would keep: every intact frame, and a `corrupt` lost range for what is
missing between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from topics.codec.control import LossRange, TopicCreate
from topics.codec.frame import Run
from topics.engine.apply import Catalog, apply
from topics.engine.judge import Item, State, Verdict
from topics.log import fold
from topics.log.floors import Reason
from topics.log.lost import LostRange
from topics.log.regions import WalFileId

ShardKey = tuple[int, int]


@attrs.frozen(kw_only=True)
class DamageReport:
    """Acknowledged data that is gone or wrong: file, offset, why; topic and seqs where they can be told."""

    file: WalFileId
    offset: int
    why: str
    topic: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None

    def __str__(self) -> str:
        what = "unknown records"
        if self.topic is not None:
            what = f"topic {self.topic!r} seqs {self.first_seq}-{self.last_seq}"
        return f"{what}: {self.why} (wal file {self.file.first_frame}, offset {self.offset})"


@attrs.frozen(kw_only=True)
class CutReport:
    """An un-synced tail that was cut: how many bytes, and the highest seqs still readable in it, by topic."""

    file: WalFileId
    offset: int
    bytes: int
    seqs: Mapping[str, int]

    def __str__(self) -> str:
        named = (
            ", ".join(f"{topic!r} up to seq {seq}" for topic, seq in self.seqs.items()) or "no whole record"
        )
        where = f"at offset {self.offset} of wal file {self.file.first_frame}"
        return f"{self.bytes} bytes of un-synced tail cut {where}: {named}"


@attrs.frozen(kw_only=True)
class Recovered:
    catalog: Catalog
    damages: Sequence[DamageReport]
    cuts: Sequence[CutReport]

    @property
    def read_only(self) -> bool:
        return bool(self.damages)


def recover(verdicts: Mapping[ShardKey, Verdict]) -> Recovered:
    """Fold the kept items of every shard, generations in order, shard 0 of each first."""
    catalog = Catalog()
    damages: list[DamageReport] = []
    for key in sorted(verdicts):
        verdict = verdicts[key]
        whole = verdict.state is not State.CORRUPT
        for item, file in verdict.items():
            damages += _check_order(catalog, item, file, whole=whole)
            if _applies(catalog, item):
                apply(catalog, item, file)
        if not whole:
            damages += _name_damages(catalog, verdict)
    cuts = [_cut(catalog, verdict) for _, verdict in sorted(verdicts.items()) if verdict.state is State.TORN]
    return Recovered(catalog=catalog, damages=damages, cuts=[cut for cut in cuts if cut is not None])


def _applies(catalog: Catalog, item: Item) -> bool:
    """False for what a damaged log cannot place: a record already there, a topic whose creation is gone."""
    if not isinstance(item, Run) and isinstance(item.payload, TopicCreate):
        return item.topic_id not in catalog.topics and item.payload.name not in catalog.topic_ids
    start = _starts(item)
    if start is None:
        return True
    topic = catalog.topics.get(item.topic_id)
    return topic is not None and start == topic.head_seq + 1


def _starts(item: Item) -> int | None:
    """The first seq of an item that moves the head, None for the others."""
    if isinstance(item, Run):
        return item.seq_start
    if isinstance(item.payload, LossRange) and item.payload.reason != Reason.RESTART.value:
        return item.payload.first
    return None


def _check_order(catalog: Catalog, item: Item, file: WalFileId, *, whole: bool) -> Iterable[DamageReport]:
    """Seqs follow each other and belong to a topic that was created; anything else is damage."""
    start = _starts(item)
    if start is None:
        return
    topic = catalog.topics.get(item.topic_id)
    if topic is None:
        if item.topic_id >= catalog.next_topic_id:
            why = f"seq {start} and on of topic id {item.topic_id}, whose creation is not in the log"
            yield DamageReport(file=file, offset=item.offset, why=why)
        return
    head_seq = topic.head_seq
    if start <= head_seq:
        if whole:
            why = f"seq {start} comes again behind {head_seq}"
            yield DamageReport(
                file=file, offset=item.offset, why=why, topic=topic.name, first_seq=start, last_seq=head_seq
            )
        return
    if start > head_seq + 1:
        fold.loss(topic, LostRange(head_seq + 1, start - 1, Reason.CORRUPT.value, item.ts))
        yield DamageReport(
            file=file, offset=item.offset, why="missing before an intact record", topic=topic.name,
            first_seq=head_seq + 1, last_seq=start - 1,
        )  # fmt: skip


def _name_damages(catalog: Catalog, verdict: Verdict) -> Iterable[DamageReport]:
    """Each damaged place, with the topic and seq its head still claims; a claimed seq above the head is lost too."""
    for damage in verdict.damages:
        topic_id, seq = damage.plausible or (0, 0)
        topic = catalog.topics.get(topic_id)
        if topic is None:
            yield DamageReport(file=damage.file, offset=damage.offset, why=damage.why)
            continue
        if seq > topic.head_seq:
            first = topic.head_seq + 1
            fold.loss(topic, LostRange(first, seq, Reason.CORRUPT.value, catalog.high_ts))
            yield DamageReport(
                file=damage.file,
                offset=damage.offset,
                why=damage.why,
                topic=topic.name,
                first_seq=first,
                last_seq=seq,
            )
        else:
            yield DamageReport(
                file=damage.file,
                offset=damage.offset,
                why=damage.why,
                topic=topic.name,
                first_seq=seq,
                last_seq=seq,
            )


def _cut(catalog: Catalog, verdict: Verdict) -> CutReport | None:
    """What a cut takes; None if there is nothing to cut but zeros."""
    assert verdict.tail is not None
    assert verdict.state is State.TORN
    if verdict.lost_bytes == 0:
        return None
    seqs: dict[str, int] = {}
    for item in verdict.beyond:
        if isinstance(item, Run) and (topic := catalog.topics.get(item.topic_id)) is not None:
            seqs[topic.name] = max(seqs.get(topic.name, 0), item.seq_stop - 1)
    return CutReport(file=verdict.tail.file, offset=verdict.tail.end, bytes=verdict.lost_bytes, seqs=seqs)
