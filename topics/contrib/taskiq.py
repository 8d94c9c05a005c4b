"""`TopicsBroker`: Taskiq's tasks as jobs of a queue. topics-log[taskiq]; docs/frameworks.md.

A job is leased to this process until Taskiq acknowledges it. Leases are extended as long as that takes, and what was
not acknowledged is given back at the end. Results are not kept here: that is the part of one of Taskiq's backends.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
import msgspec
from taskiq import AckableMessage, AsyncBroker, BrokerMessage

import topics

CONCURRENCY: Final = 100  # as `taskiq worker --max-async-tasks` has it


class TopicsBroker(AsyncBroker):
    """Sends to, and listens at, one queue of a server, which is made if it is not there, with this config.

    `concurrency`: how many tasks this process has in hand at most; not more than `--max-async-tasks`, or the rest waits
    here. `lease_ms`: for how long a task is leased at a time, if not as the queue says. Labels: `delay` in seconds,
    `priority` 0 to 9.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str = "taskiq",
        concurrency: int = CONCURRENCY,
        lease_ms: int | None = None,
        api_key_file: str | os.PathLike[str] | None = None,
        cafile: str | os.PathLike[str] | None = None,
        **config: Any,
    ) -> None:
        super().__init__()
        self.queue = queue
        self._config = config
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._client = topics.AsyncClient(url, api_key_file=api_key_file, cafile=cafile)
        self._working: asyncio.Task[None] | None = None
        self._leaving: anyio.CancelScope

    async def startup(self) -> None:
        await self._client.create(self.queue, exist_ok=True, **{"type": "queue", **self._config})
        await super().startup()

    async def shutdown(self) -> None:
        """Behind it nothing is held: what Taskiq has not acknowledged is handed out again."""
        await super().shutdown()
        if self._working is not None:
            self._leaving.cancel()
            await asyncio.wait({self._working})  # of what it ended, who listened was told
        await self._client.aclose()

    async def kick(self, message: BrokerMessage) -> None:
        delay, priority = message.labels.get("delay"), message.labels.get("priority")
        await self._client.queue(self.queue).put(
            _payload(message.message),
            tag=message.task_name,
            delay_ms=None if delay is None else round(float(delay) * 1000),
            priority=None if priority is None else int(priority),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Left, it takes no more; tasks in hand go on, and are acknowledged, until `shutdown`."""
        came: asyncio.Queue[AckableMessage | None] = asyncio.Queue(self._concurrency + 1)  # and the end
        stop = asyncio.Event()
        self._leaving = anyio.CancelScope()  # not the task: what is in hand is given back before it ends
        working = self._working = asyncio.create_task(self._work(came, stop))
        try:
            while (message := await came.get()) is not None:
                yield message
        finally:
            stop.set()
        await working  # which says why it has ended

    async def _work(self, came: asyncio.Queue[AckableMessage | None], stop: asyncio.Event) -> None:
        """In a task of its own, for Taskiq asks for each message in another one."""

        async def hand(job: topics.AsyncJob) -> None:
            """The job is in hand until it is acknowledged."""
            settled = asyncio.Event()

            async def ack() -> None:
                await job.ack()
                settled.set()

            came.put_nowait(AckableMessage(data=_message(job), ack=ack))
            await settled.wait()

        async def until_stopped() -> None:
            await stop.wait()
            worker.stop()

        try:
            with self._leaving:
                async with self._client.worker(
                    self.queue, concurrency=self._concurrency, lease_ms=self._lease_ms, handle_signals=False
                ) as worker:
                    stopping = asyncio.create_task(until_stopped())
                    try:
                        await worker.run(hand)
                    finally:
                        stopping.cancel()
        finally:
            came.put_nowait(None)


def _payload(message: bytes) -> topics.Raw | str:
    """What Taskiq's formatter made: JSON, mostly an object, is kept as such, to be read by who looks at the queue. What
    else it is, is text.
    """
    try:
        if isinstance(msgspec.json.decode(message), dict):
            return topics.Raw(message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return b64encode(message).decode()


def _message(job: topics.AsyncJob) -> bytes:
    return b64decode(job.data) if isinstance(job.data, str) else job.raw
