"""Group commit and nothing else: what the floor server and the Quart server put their requests into.

The product's engine, writer and shard task (`topics.embed.aio.shard`) over a directory with one topic. Every check
of the engine, checksums, marks, rotation and reserves are on; what a server adds above it is not there.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import trio

from topics.embed.aio.shard import ShardTask
from topics.embed.aio.thread import Threads
from topics.engine.commands import Append, PutTopic
from topics.engine.replies import Appended
from topics.engine.tickets import Ticket
from topics.host.directory.lock import DirectoryLock
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.kernel.errors import Rejected
from topics.store.opened import Opened, StoreOptions
from topics.store.opening import open_store

TOPIC = "bench"
SWITCH_INTERVAL_S = 0.0003  # the product's choice lies within 0.2 to 0.5 ms (performance 4)
KEEPING_S = 0.02


class Body(msgspec.Struct):
    """A write as http-api 4 has it; a record stays the text it came as."""

    records: list[msgspec.Raw]


_decode = msgspec.json.Decoder(Body).decode


class Commit:
    """The engine of one directory, driven from Trio tasks."""

    def __init__(self, opened: Opened) -> None:
        self._engine = opened.engine
        (writer,) = opened.writers
        self._shard = ShardTask(opened.engine, writer, self._told, _unobserved, Threads())

    async def write(self, body: bytes) -> bytes:
        """Append the records of a body; the answer when its class says so."""
        records = _decode(body).records
        reply = await self.submit(Append(topic=TOPIC, records=RecordColumns(list(map(bytes, records)))))
        assert isinstance(reply, Appended)
        return b'{"topic":"%b","first_seq":%d,"last_seq":%d,"head_seq":%d,"durable_seq":%d,"count":%d}' % (
            TOPIC.encode(),
            reply.first_seq or 0,
            reply.last_seq or 0,
            reply.head_seq,
            reply.durable_seq,
            reply.count,
        )

    async def submit(self, command: Append | PutTopic) -> object:
        ticket = await self._propose(command)
        self._shard.ring()
        if not ticket.done:
            ticket.waiter = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(partial(_leave, ticket))
        return ticket.result()

    async def _propose(self, command: Append | PutTopic) -> Ticket:
        """A write that outruns the reserve waits for it, as it does in the product."""
        while True:
            try:
                return self._engine.propose(command)
            except Rejected as refused:
                needed = refused.detail.get("needed_bytes")
                if not isinstance(needed, int) or not await self._shard.make_room(needed):
                    raise

    def _told(self, _took: object) -> None:
        if self._engine.has_effects:
            for ticket in self._engine.take_effects().finished:
                if ticket.waiter is not None:
                    ticket.waiter()

    async def run(self) -> None:
        await self._shard.run()

    async def keep(self) -> None:
        """The next file is reserved beside the writing; marks and heads at rest are the shard's and the end's."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shard.keep_reserve)
            while True:
                await trio.sleep(KEEPING_S)
                self._engine.tick()
                self._shard.ring()

    def close(self) -> None:
        self._shard.close()


def _leave(ticket: Ticket, _: object) -> trio.lowlevel.Abort:
    ticket.waiter = None
    return trio.lowlevel.Abort.SUCCEEDED


def _unobserved(seconds: float) -> None:
    """No histogram here."""


@asynccontextmanager
async def open_commit(path: Path, durability: str) -> AsyncIterator[Commit]:
    """A directory with its one topic."""
    lock = DirectoryLock.acquire(path)
    opened = open_store(
        OsDisk(path),
        SystemClock(),
        SystemEntropy(),
        where=str(path),
        machine_restarted=lock.machine_restarted,
        confirm=lock.confirm,
        options=StoreOptions(shards=1),
    )
    commit = Commit(opened)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.run)
        await commit.submit(PutTopic(topic=TOPIC, config=parse_config({"durability": durability})))
        async with trio.open_nursery() as inner:
            inner.start_soon(commit.keep)
            try:
                yield commit
            finally:
                inner.cancel_scope.cancel()
        commit.close()
    lock.release()


Serve = Callable[[Commit, socket.socket], Awaitable[None]]


def main(serve: Serve) -> None:
    """`--data DIR --port-file FILE --durability CLASS`: serve on a free port until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--durability", required=True)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    options.data.mkdir(parents=True, exist_ok=True)
    trio.run(_main, serve, options.data, options.port_file, options.durability)


async def _main(serve: Serve, data: Path, port_file: Path, durability: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        async with open_commit(data, durability) as commit, trio.open_nursery() as nursery:
            nursery.start_soon(serve, commit, listening)
            name = port_file.with_suffix(".new")
            name.write_text(str(listening.getsockname()[1]), encoding="ascii")
            name.rename(port_file)
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    break
            nursery.cancel_scope.cancel()
