"""What lives in this process: a store of topics, SQLite as an expert sets it up, and queues that are libraries.

A call returns when it is done. Connections of one system are of threads, and share what the system wants them to share.
"""

from __future__ import annotations

import importlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import attrs

import topics
from topics.cli.bench.connection import Connection, Unexpected
from topics.cli.bench.processes import MissingPeer

_LEASE_MS: Final = 60_000


class InProcess(Connection):
    """`count`: what the last call was about."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads
        self._singles = cycle(payloads)
        self._count = 0

    def answer(self) -> int:
        return self._count

    def _some(self, count: int) -> Sequence[bytes]:
        return [next(self._singles)] if count == 1 else self._payloads[:count]


class Embedded(InProcess):
    """`topics.open`: what the log and the queue of a store do, by batches if there is more than one."""

    def __init__(self, store: topics.Store, topic: str, payloads: Sequence[bytes]) -> None:
        super().__init__(payloads)
        self._topic = store.topic(topic)
        self._queue = store.queue(topic)
        self._jobs: Sequence[topics.Job] = ()
        self._next = 0

    def put(self, count: int) -> None:
        raws = [topics.Raw(payload) for payload in self._some(count)]
        if count == 1:
            self._topic.put(raws[0])
        else:
            self._topic.put_many(raws)
        self._count = count

    def read(self, count: int) -> None:
        page = self._topic.read(from_seq=self._next, limit=count)
        self._next = page.next_from_seq if len(page.records) == count else 0
        self._count = len(page.records)

    def claim(self, count: int) -> None:
        self._jobs = self._queue.claim(count)
        self._count = len(self._jobs)

    def ack(self) -> None:
        self._queue.ack(self._jobs)


class SqliteFile:
    """A file of SQLite in WAL mode: one connection behind a lock, which is faster than several whose busy handler
    sleeps. `synchronous`: FULL syncs each transaction, NORMAL when the WAL is moved.
    """

    def __init__(self, path: Path, synchronous: str) -> None:
        self.lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.lock:
            return self._db.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """In one transaction."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class Sqlite(InProcess):
    """A table, one index that serves the claim, one transaction a call."""

    def __init__(self, database: SqliteFile, table: str, payloads: Sequence[bytes]) -> None:
        super().__init__(payloads)
        self._database = database
        self._insert = f"INSERT INTO {table} (data) VALUES (?)"  # noqa: S608 -- the names are ours
        self._page = f"SELECT id, data FROM {table} WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 -- the names are ours
        self._take = (
            f"UPDATE {table} SET until = ? WHERE id IN "  # noqa: S608 -- the names are ours
            f"(SELECT id FROM {table} WHERE until < ? ORDER BY until, id LIMIT ?) RETURNING id, data"
        )
        self._delete = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608 -- the names are ours
        self._jobs: list[tuple[object, ...]] = []
        self._next = 0
        database.run(
            f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, until INTEGER NOT NULL DEFAULT 0, data TEXT)"
        )
        database.run(f"CREATE INDEX IF NOT EXISTS {table}_ready ON {table} (until, id)")

    def put(self, count: int) -> None:
        rows = [(payload.decode(),) for payload in self._some(count)]
        if count == 1:
            self._database.run(self._insert, rows[0])
        else:
            self._database.run_many(self._insert, rows)
        self._count = count

    def read(self, count: int) -> None:
        rows = self._database.run(self._page, (self._next, count))
        self._next = rows[-1][0] if len(rows) == count else 0
        self._count = len(rows)

    def claim(self, count: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        taken = self._database.run(self._take, (now_ms + _LEASE_MS, now_ms, count))
        self._jobs = [(job,) for job, _ in taken]
        self._count = len(taken)

    def ack(self) -> None:
        if len(self._jobs) == 1:
            self._database.run(self._delete, self._jobs[0])
        else:
            self._database.run_many(self._delete, self._jobs)


@attrs.frozen
class QueueCalls:
    """Of a queue that takes one job a call. `finish_one` is given what `take_one` gave. `at_once`: puts inside it are
    one transaction, where there is such a thing.
    """

    put_one: Callable[[bytes], object]
    take_one: Callable[[], Any]
    finish_one: Callable[[Any], object]
    at_once: Callable[[], AbstractContextManager[object]] = nullcontext


class Library(InProcess):
    def __init__(self, calls: QueueCalls, payloads: Sequence[bytes]) -> None:
        super().__init__(payloads)
        self._calls = calls
        self._taken: list[Any] = []

    def put(self, count: int) -> None:
        with self._calls.at_once() if count > 1 else nullcontext():
            for payload in self._some(count):
                self._calls.put_one(payload)
        self._count = count

    def claim(self, count: int) -> None:
        self._taken = [self._calls.take_one() for _ in range(count)]
        self._count = count

    def ack(self) -> None:
        for taken in self._taken:
            self._calls.finish_one(taken)


def persist_queue(path: Path, synchronous: str = "FULL") -> QueueCalls:
    """What is acked is kept, and marked as such. The default is its own."""
    made = library("persistqueue", "persist-queue").SQLiteAckQueue(str(path), multithreading=True)
    made._putter.execute(f"PRAGMA synchronous={synchronous}")  # noqa: SLF001 -- it has no option for that
    return QueueCalls(
        made.put, lambda: made.get(block=False, raw=True)["pqid"], lambda number: made.ack(id=number)
    )


def litequeue(path: Path, synchronous: str = "NORMAL") -> QueueCalls:
    """It is for one thread at a time. The default is its own."""
    made = library("litequeue", "litequeue").LiteQueue(str(path))
    made.conn.execute(f"PRAGMA synchronous={synchronous}")
    lock = threading.RLock()

    def put_one(payload: bytes) -> None:
        with lock:
            made.put(payload.decode())

    def take_one() -> Any:
        with lock:
            if (message := made.pop()) is None:
                raise Unexpected("litequeue: no job is there")
            return message.message_id

    def finish_one(message: Any) -> None:
        with lock:
            made.done(message)

    @contextmanager
    def at_once() -> Iterator[None]:
        with lock, made.transaction():
            yield

    return QueueCalls(put_one, take_one, finish_one, at_once)


def huey(path: Path) -> QueueCalls:
    """What its tasks stand on, synced. A job that is taken is gone: it knows no ack."""
    made = library("huey.storage", "huey").SqliteStorage(filename=str(path), fsync=True)

    def take_one() -> Any:
        if (taken := made.dequeue()) is None:
            raise Unexpected("huey: no job is there")
        return taken

    return QueueCalls(made.enqueue, take_one, lambda _: None)


def library(module: str, package: str) -> Any:
    """Raises `MissingPeer`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPeer(f"{package} is not installed: pip install {package}") from None
