"""topics: a durable event log and job queue that one machine can run and that people trust.

    import topics

    with topics.open("./data") as store:
        store.topic("quakes").put({"mag": 4.2}, tag="us")
        for item in store.topic("quakes").records():
            print(item)

The same against a server: `topics.Client("http://127.0.0.1:4000")` in the place of `topics.open(…)`. For tasks:
`topics.open_trio(…)` and `topics.AsyncClient(…)`.

Public names are imported when first used, so that `import topics` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

from topics.kernel.version import __version__

TYPE_CHECKING = False  # as `typing` has it, whose import is most of what `import topics` would cost
if TYPE_CHECKING:
    from msgspec import Raw

    from topics.calls.awaiting import AsyncConsumer, AsyncJob, AsyncQueue, AsyncTopic
    from topics.calls.blocking import Consumer, Job, Queue, Topic
    from topics.calls.definitions.routers import Router
    from topics.calls.definitions.schedules import Schedule
    from topics.calls.messages import KeySummary, Pressure, TopicSummary
    from topics.calls.page import Page, Record
    from topics.calls.patience import Patience
    from topics.calls.producing.async_producer import AsyncProducer, AsyncReceipt
    from topics.calls.producing.producer import Producer, Receipt
    from topics.calls.queues.values import PeekedJob
    from topics.calls.trouble import Unreachable
    from topics.calls.watching.async_watch import AsyncWatch
    from topics.calls.watching.values import CaughtUp, Tombstone, TopicDeleted, WatchedRecord
    from topics.calls.watching.watch import Watch
    from topics.calls.workers.async_worker import AsyncWorker
    from topics.calls.workers.worker import Worker
    from topics.client.async_client import AsyncClient
    from topics.client.client import Client
    from topics.codec.why import Why, WhyRange
    from topics.embed.aio.store import AsyncStore, open_trio
    from topics.embed.store import Store, open
    from topics.engine.replies import (
        Appended,
        ConsumerCommitted,
        ConsumerPut,
        ConsumerState,
        JobsSettled,
        QueueState,
        RecordsDeleted,
        TopicState,
    )
    from topics.host.checkpoint.compaction import CompactionResult
    from topics.kernel.config import TopicConfig
    from topics.kernel.errors import CannotOpen, Corrupt, Fatal, Rejected, TopicsError
    from topics.kernel.limits import Limits
    from topics.log.floors import Gap
    from topics.log.reads.diff import Account
    from topics.store.opened import StoreOptions
    from topics.store.stats import StoreStats

_WHERE = {
    "Account": "topics.log.reads.diff",
    "Appended": "topics.engine.replies",
    "AsyncClient": "topics.client.async_client",
    "AsyncConsumer": "topics.calls.awaiting",
    "AsyncJob": "topics.calls.awaiting",
    "AsyncProducer": "topics.calls.producing.async_producer",
    "AsyncQueue": "topics.calls.awaiting",
    "AsyncReceipt": "topics.calls.producing.async_producer",
    "AsyncStore": "topics.embed.aio.store",
    "AsyncTopic": "topics.calls.awaiting",
    "AsyncWatch": "topics.calls.watching.async_watch",
    "AsyncWorker": "topics.calls.workers.async_worker",
    "CannotOpen": "topics.kernel.errors",
    "CaughtUp": "topics.calls.watching.values",
    "Client": "topics.client.client",
    "CompactionResult": "topics.host.checkpoint.compaction",
    "Consumer": "topics.calls.blocking",
    "ConsumerCommitted": "topics.engine.replies",
    "ConsumerPut": "topics.engine.replies",
    "ConsumerState": "topics.engine.replies",
    "Corrupt": "topics.kernel.errors",
    "Fatal": "topics.kernel.errors",
    "Gap": "topics.log.floors",
    "Job": "topics.calls.blocking",
    "JobsSettled": "topics.engine.replies",
    "KeySummary": "topics.calls.messages",
    "Limits": "topics.kernel.limits",
    "Page": "topics.calls.page",
    "Patience": "topics.calls.patience",
    "PeekedJob": "topics.calls.queues.values",
    "Pressure": "topics.calls.messages",
    "Producer": "topics.calls.producing.producer",
    "Queue": "topics.calls.blocking",
    "QueueState": "topics.engine.replies",
    "Raw": "msgspec",
    "Receipt": "topics.calls.producing.producer",
    "Record": "topics.calls.page",
    "RecordsDeleted": "topics.engine.replies",
    "Rejected": "topics.kernel.errors",
    "Router": "topics.calls.definitions.routers",
    "Schedule": "topics.calls.definitions.schedules",
    "Store": "topics.embed.store",
    "StoreOptions": "topics.store.opened",
    "StoreStats": "topics.store.stats",
    "Tombstone": "topics.calls.watching.values",
    "Topic": "topics.calls.blocking",
    "TopicConfig": "topics.kernel.config",
    "TopicDeleted": "topics.calls.watching.values",
    "TopicState": "topics.engine.replies",
    "TopicSummary": "topics.calls.messages",
    "TopicsError": "topics.kernel.errors",
    "Unreachable": "topics.calls.trouble",
    "Watch": "topics.calls.watching.watch",
    "WatchedRecord": "topics.calls.watching.values",
    "Why": "topics.codec.why",
    "WhyRange": "topics.codec.why",
    "Worker": "topics.calls.workers.worker",
    "open": "topics.embed.store",
    "open_trio": "topics.embed.aio.store",
}

# What lacks no more than anyio: "worker".
_EXTRAS = (("topics.client.", "client"), ("topics.embed.aio.", "trio"))

__all__ = [
    "Account", "Appended", "AsyncClient", "AsyncConsumer", "AsyncJob", "AsyncProducer", "AsyncQueue",
    "AsyncReceipt", "AsyncStore", "AsyncTopic", "AsyncWatch", "AsyncWorker", "CannotOpen", "CaughtUp", "Client",
    "CompactionResult", "Consumer", "ConsumerCommitted", "ConsumerPut", "ConsumerState", "Corrupt", "Fatal",
    "Gap", "Job", "JobsSettled", "KeySummary", "Limits", "Page", "Patience", "PeekedJob", "Pressure", "Producer",
    "Queue", "QueueState", "Raw", "Receipt", "Record", "RecordsDeleted", "Rejected", "Router", "Schedule", "Store",
    "StoreOptions", "StoreStats", "Tombstone", "Topic", "TopicConfig", "TopicDeleted", "TopicState", "TopicSummary",
    "TopicsError", "Unreachable", "Watch", "WatchedRecord", "Why", "WhyRange", "Worker", "__version__", "open",
    "open_trio",
]  # fmt: skip


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'topics' has no attribute {name!r}")
    from topics.kernel.extras import Needs

    with Needs(f"topics.{name}", next((what for room, what in _EXTRAS if module.startswith(room)), "worker")):
        value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
