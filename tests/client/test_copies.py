"""Every public value and error goes to another process and back, whole: by pickle, and by both kinds of copy."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec
import pytest

import topics
from topics.calls.messages import KeySummary, PressureSignals
from topics.client import Trouble
from topics.codec.why import Event, LogTold, Part, Standing
from topics.embed.lock import Reentered
from topics.engine.recovery.recover import CutReport, DamageReport
from topics.host.checkpoint.blocked_topics import CheckpointIncomplete
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Code, TopicsError, Unusable, WrongState
from topics.log.regions import SegmentId, WalFileId
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.rule("O5.9")

# What belongs to a process, or is no object of its own: everything else that is public has an example.
HANDLES: Final = (
    "Store", "Client", "Topic", "Producer", "Receipt", "AsyncClient", "AsyncTopic", "AsyncProducer", "AsyncReceipt",
    "AsyncStore", "Queue", "AsyncQueue", "Job", "AsyncJob", "Worker", "AsyncWorker", "Watch",
    "AsyncWatch", "Consumer", "AsyncConsumer",
)  # fmt: skip
LOOKED_AT: Final = LogTold(folded_from="creation", since_ts=None, is_whole=True, bytes_read=9, bytes_left=0)
NEITHER: Final = ("open", "open_trio", "__version__")
WAYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def examples(store: topics.Store) -> dict[str, list[Any]]:
    topic = store.create("t", cap_records=2, retry_backoff={"base_ms": 1, "factor": 2, "max_ms": 9})
    written = topic.put_many(
        [{"data": n, "tag": "a", "meta": {"k": "v"}} for n in range(3)], idempotency_key="k"
    )
    topic.put(b"\x00", content_type="image/png", key="k", node="n", ttl_ms=10**6)
    page = topic.read(account=True)
    store.create("q", type="queue")
    queue = store.queue("q", node="w")
    queue.put_many([{"data": 1}, {"data": 2, "delay_ms": 5}])
    job = queue.claim()[0]
    watch = store.watch("t")
    lost, watched, caught_up = next(watch), next(watch), [next(watch) for _ in range(2)][-1]
    consumer = topic.consumer("c")
    damage = DamageReport(file=SegmentId(1, 1), offset=7, why="torn", topic="t", first_seq=1, last_seq=2)
    cut = CutReport(file=WalFileId(0, 0, 1), offset=7, bytes=100, seqs={"t": 3})
    return {
        "Account": [page.account],
        "Appended": [written, topic.put(0, idempotency_key="k", require_same_body=False)],
        "CannotOpen": [topics.CannotOpen(Unusable.IN_USE, "in use", pid=7)],
        "CompactionResult": [topics.CompactionResult(segments_removed=1, bytes_freed=2)],
        "ConsumerPut": [consumer.seek(seq=1)],
        "ConsumerCommitted": [consumer.commit(3)],
        "ConsumerState": [consumer.position()],
        "Corrupt": [
            topics.Corrupt("damaged", seq=1, files=["a"]),
            CheckpointIncomplete("left out", damages=[damage], cuts=[cut]),
            topics.Corrupt("damaged", file=SegmentId(1, 1)),
        ],
        "CaughtUp": [caught_up],
        "Fatal": [topics.Fatal("the disk said no", shard=0), coded(topics.Fatal("no"), Code.INTERNAL)],
        "Gap": [page.tombstone],
        "JobsSettled": [queue.ack([job, 9])],
        "KeySummary": [
            KeySummary(
                id="5f", name="shop", scopes=("read",), prefixes=(), asks=True, used_ts=None, requests=1, streams=0,
                watches=0,
            )
        ],
        "Limits": [topics.Limits(record_bytes=10)],
        "Page": [page],
        "Pressure": [
            topics.Pressure(
                pressure=0.5, step="none", signals=PressureSignals(ready_topics=1, scheduling_latency_ms=0.1, busy=0.2),
                bands={"high": 1}, held_topics=0, coalesce_ms=0.0, commit_ms=0.0,
            )
        ],
        "Patience": [topics.Patience(reach_ms=1)],
        "PeekedJob": queue.peek("delayed"),
        "QueueState": [queue.state().queue],
        "Raw": [topics.Raw(b'{"a": 1}')],
        "Record": page.records,
        "RecordsDeleted": [topic.delete(before_seq=1)],
        "Rejected": [
            refusal(lambda: store.create("t", cap_records=3)), refusal(lambda: topic.put(1, tag="")),
            refusal(lambda: topic.put(0, idempotency_key="k")),
            Reentered(), WrongState("not now", field="f"),
        ],
        "Router": [store.put_router("r", "t", "copies")],
        "Schedule": [store.put_schedule("s", "t", 1, every_ms=10**9)],
        "StoreStats": [store.stats()],
        "StoreOptions": [topics.StoreOptions(shards=2, archive=ArchiveRules())],
        "Tombstone": [lost],
        "TopicConfig": [topic.state().config],
        "TopicDeleted": [topics.TopicDeleted(topic="t", head_seq=7)],
        "TopicState": [topic.state()],
        "TopicSummary": [*store.list()],
        "TopicsError": [noted(TopicsError("anything", more=[1]))],
        "WatchedRecord": [watched],
        "Why": [
            topics.Why(
                topic="t", type="log", epoch=1, durability="disk", seq=1, head_seq=2, now=Standing(state="live"),
                events=[Event(ts=1, event="put", first_seq=1, last_seq=2)], log=LOOKED_AT,
            )
        ],
        "WhyRange": [
            topics.WhyRange(
                topic="t", type="log", epoch=1, from_seq=0, to_seq=1, head_seq=2, log=LOOKED_AT,
                parts=[Part(first=1, last=1, as_="lost", state="lost", reason="cap")],
            )
        ],
        "Unreachable": [topics.Unreachable(Trouble.LOST, "http://x", "lost", sent=True, idempotency_key="k")],
    }  # fmt: skip


def refusal(call: Callable[[], object]) -> topics.Rejected:
    with pytest.raises(topics.Rejected) as refused:
        call()
    return refused.value


def coded(error: topics.Fatal, code: Code) -> topics.Fatal:
    error.code = code
    return error


def noted(error: TopicsError) -> TopicsError:
    error.add_note("a note of whoever passed it on")
    return error


def facts(value: Any) -> Any:
    """All that is in a value, as what `==` compares by content."""
    kind = type(value)
    if isinstance(value, BaseException):
        return kind, str(value), repr(value), value.args, facts(vars(value))
    if isinstance(value, topics.Record):
        names = [name for name in dir(value) if not name.startswith("_") and name != "json"]
        return kind, value.json(), {name: getattr(value, name) for name in names}
    if attrs.has(kind):
        return kind, {field.name: facts(getattr(value, field.name)) for field in attrs.fields(kind)}
    if isinstance(value, msgspec.Struct):
        return kind, {name: facts(getattr(value, name)) for name in kind.__struct_fields__}
    if isinstance(value, msgspec.Raw):
        return kind, bytes(value)
    if isinstance(value, Mapping):
        return kind, {key: facts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return kind, [facts(item) for item in value]
    return kind, value


@pytest.fixture
def store() -> topics.Store:
    from topics.store.opening import open_store
    from topics.testing.entropy import SeededEntropy

    disk = SimDisk(seed=1)
    opened = open_store(
        disk, ManualClock(1_700_000_000_000), SeededEntropy(1), where="sim", machine_restarted=False,
        confirm=lambda _: None, options=topics.StoreOptions(),
    )  # fmt: skip
    return topics.Store(opened, disk, where="sim", housekeeping=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name in topics.__all__ if name not in (*HANDLES, *NEITHER)])
def test_every_public_value_comes_back_whole(store: topics.Store, name: str, way: str) -> None:
    values = examples(store)[name]

    for value in values:
        assert isinstance(value, getattr(topics, name))
        assert facts(value) == facts(WAYS[way](value))


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_what_belongs_to_a_process_says_so(store: topics.Store, way: str) -> None:
    awaited = topics.AsyncClient("http://127.0.0.1:9")
    with topics.Client("http://127.0.0.1:9") as client:
        for handle in (store, store.topic("t"), client, client.topic("t"), awaited, awaited.topic("t")):
            with pytest.raises(TypeError, match="belongs to the process that opened it: open another one"):
                WAYS[way](handle)


def test_a_pool_of_processes_lives_on_behind_an_error() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(topics.Unreachable) as unreachable:
            pool.apply_async(_read, ("http://127.0.0.1:9",)).get(timeout=60)
        with pytest.raises(topics.Rejected) as refused:
            pool.apply_async(_read, ("nonsense",)).get(timeout=60)

    assert (unreachable.value.reason, unreachable.value.sent) == (Trouble.REFUSED, False)
    assert refused.value.code is Code.INVALID_REQUEST
    assert refused.value.detail == {"field": "url"}


def _read(url: str) -> None:
    with topics.Client(url, patience=topics.Patience(reach_ms=0)) as client:
        client.topic("t").read()
