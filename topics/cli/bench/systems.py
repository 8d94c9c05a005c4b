"""The table of systems: how each is started, what an acknowledgement of it means, and what it cannot do."""

from __future__ import annotations

import sqlite3
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

import topics
from topics.cli.bench import in_process, processes
from topics.cli.bench.beanstalkd import Beanstalkd
from topics.cli.bench.connection import HOST, Connection, connected
from topics.cli.bench.nats import Nats, NatsCore
from topics.cli.bench.ours import Topics
from topics.cli.bench.processes import process_cpu_s, version_in, version_of
from topics.cli.bench.rabbitmq import RabbitMQ
from topics.cli.bench.redis import Redis

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore

Payloads = Sequence[bytes]
LOGS: Final = ("writes", "pages", "watched")  # what is written to, read from and watched is not the same
QUEUE: Final = "jobs"


@attrs.frozen
class Running:
    """A system that is ready. `connect`: to one of LOGS or to QUEUE. `version`: its own, "" if it is ours. `cpu_s`: of
    its process so far, None for one that is elsewhere. `filled`: those of LOGS that have something to read.
    """

    connect: Callable[[str], Connection]
    version: str = ""
    cpu_s: Callable[[], float] | None = None
    filled: set[str] = attrs.field(factory=set)


@attrs.frozen
class System:
    """`synced`: whether what it acknowledged is on the disk, "yes" or "no: " and when it will be. `can`: what workloads
    need beside single writes. `is_library`: it lives in this process, as the load generator does.
    """

    name: str
    synced: str
    start: Callable[[Path, Payloads], AbstractContextManager[Running]]
    can: frozenset[str]
    is_library: bool = False


_EACH_SECOND: Final = "no: each second"
_NOW_AND_THEN: Final = "no: now and then"
_ALL: Final = frozenset({"jobs", "batch", "read", "watch", "fan-out"})
_READ: Final = frozenset({"jobs", "batch", "read"})
_WATCH: Final = frozenset({"jobs", "batch", "watch"})
_JOBS: Final = frozenset({"jobs"})
_CLASSES: Final = (("fsync", "yes"), ("disk", _EACH_SECOND))


def ours() -> list[System]:
    """With private servers, and in this process."""
    return [
        *(System(f"topics, {one}", told, partial(_private_topics, one), _ALL) for one, told in _CLASSES),
        *(_library(f"topics embedded, {one}", told, partial(_embedded, one), _READ) for one, told in _CLASSES),
    ]  # fmt: skip


def at_url(store: TopicStore, url: str, *, cafile: str | None, key: str | None, prefix: str) -> list[System]:
    """A server that runs: topics are made there, and removed in the end."""
    start = partial(_running_topics, store, url, cafile=cafile, key=key)
    return [
        System(f"topics, {one}", told, partial(start, one, f"{prefix}-{one}-"), _ALL)
        for one, told in _CLASSES
    ]


def peers() -> list[System]:
    """In the order of the page on performance. beanstalkd that syncs each command gains nothing by a batch."""
    libraries = (
        ("persist-queue", "yes", in_process.persist_queue),
        ("litequeue", _NOW_AND_THEN, in_process.litequeue),
        ("huey", "yes", in_process.huey),
    )
    return [
        System("Redis Streams, always", "yes", partial(_redis, "always"), _ALL),
        System("Redis Streams, everysec", _EACH_SECOND, partial(_redis, "everysec"), _ALL),
        System("NATS JetStream, file", "no: in minutes", _nats, _ALL),
        System("NATS, core", "no: nothing is kept", _nats_core, _ALL - {"jobs", "read"}),
        System("RabbitMQ, quorum", "yes", _rabbitmq, _WATCH),
        System("beanstalkd, -f 0", "yes", partial(_beanstalkd, "0"), frozenset({"jobs", "watch"})),
        System("beanstalkd, -f 1000", _EACH_SECOND, partial(_beanstalkd, "1000"), _WATCH),
        _library("SQLite, FULL", "yes", partial(_sqlite, "FULL"), _READ),
        _library("SQLite, NORMAL", _NOW_AND_THEN, partial(_sqlite, "NORMAL"), _READ),
        *(_library(name, told, partial(_queue, make, name)) for name, told, make in libraries),
    ]


def _library(
    name: str,
    synced: str,
    start: Callable[[Path, Payloads], AbstractContextManager[Running]],
    can: frozenset[str] = _JOBS,
) -> System:
    return System(name, synced, start, can, is_library=True)


@contextmanager
def _private_topics(durability: str, path: Path, payloads: Payloads) -> Iterator[Running]:
    from topics.cli.demo.private_server import PrivateServer

    path.mkdir()
    with PrivateServer(path / "data", path) as server, topics.Client(server.url) as client:
        _create(client, durability)

        def connect(name: str) -> Connection:
            return Topics(connected(server.port), name, payloads, host=f"{HOST}:{server.port}")

        yield Running(connect, cpu_s=partial(process_cpu_s, server.pid))


@contextmanager
def _running_topics(
    store: TopicStore, url: str, durability: str, prefix: str, _path: Path, payloads: Payloads, *,
    cafile: str | None, key: str | None,
) -> Iterator[Running]:  # fmt: skip
    from urllib.parse import urlsplit

    from topics.client.address import parse_address

    address = urlsplit(parse_address(url).url)
    host, port = str(address.hostname), address.port or (443 if address.scheme == "https" else 80)
    trust = ssl.create_default_context(cafile=cafile) if address.scheme == "https" else None

    def connect(name: str) -> Connection:
        made = connected(port, host)
        if trust is not None:
            made = trust.wrap_socket(made, server_hostname=host)
        return Topics(made, prefix + name, payloads, host=address.netloc, path=address.path, key=key)

    def remove() -> None:
        for name in (*LOGS, QUEUE):
            store.delete(prefix + name)

    remove()  # nothing is there: a key that may not do it is refused before anything is made
    try:
        _create(store, durability, prefix)
        yield Running(connect)
    finally:
        remove()


@contextmanager
def _embedded(durability: str, path: Path, payloads: Payloads) -> Iterator[Running]:
    with topics.open(path) as store:
        _create(store, durability)
        yield Running(lambda name: in_process.Embedded(store, name, payloads), cpu_s=time.process_time)


def _create(store: TopicStore | topics.Store, durability: str, prefix: str = "") -> None:
    for name in LOGS:
        store.create(prefix + name, durability=durability)
    store.create(prefix + QUEUE, type="queue", durability=durability)


@contextmanager
def _redis(fsync: str, path: Path, payloads: Payloads) -> Iterator[Running]:
    with processes.redis(path, fsync) as (port, pid):
        yield Running(
            lambda name: Redis(connected(port), name, payloads),
            version_of("redis-server", "--version"),
            partial(process_cpu_s, pid),
        )


@contextmanager
def _nats(path: Path, payloads: Payloads) -> Iterator[Running]:
    with processes.nats(path) as (port, pid):
        yield Running(
            lambda name: Nats(connected(port), name, payloads, is_queue=name == QUEUE),
            version_of("nats-server", "--version"),
            partial(process_cpu_s, pid),
        )


@contextmanager
def _nats_core(path: Path, payloads: Payloads) -> Iterator[Running]:
    with processes.nats(path) as (port, pid):
        yield Running(
            lambda name: NatsCore(connected(port), name, payloads),
            version_of("nats-server", "--version"),
            partial(process_cpu_s, pid),
        )


@contextmanager
def _rabbitmq(path: Path, payloads: Payloads) -> Iterator[Running]:
    with processes.rabbitmq(path) as (port, pid, said):
        yield Running(
            lambda name: RabbitMQ(connected(port), name, payloads),
            version_in(said, "RabbitMQ"),
            partial(process_cpu_s, pid),
        )


@contextmanager
def _beanstalkd(sync_ms: str, path: Path, payloads: Payloads) -> Iterator[Running]:
    with processes.beanstalkd(path, sync_ms) as (port, pid):
        yield Running(
            lambda name: Beanstalkd(connected(port), name, payloads),
            version_of("beanstalkd", "-v"),
            partial(process_cpu_s, pid),
        )


@contextmanager
def _sqlite(synchronous: str, path: Path, payloads: Payloads) -> Iterator[Running]:
    path.mkdir()
    with closing(in_process.SqliteFile(path / "bench.db", synchronous)) as database:
        yield Running(
            lambda name: in_process.Sqlite(database, name, payloads),
            sqlite3.sqlite_version,
            time.process_time,
        )


@contextmanager
def _queue(
    make: Callable[[Path], in_process.QueueCalls], package: str, path: Path, payloads: Payloads
) -> Iterator[Running]:
    """A queue a name, for libraries have one a file."""
    path.mkdir()
    calls = {name: make(path / name) for name in (LOGS[0], QUEUE)}
    yield Running(lambda name: in_process.Library(calls[name], payloads), version(package), time.process_time)
