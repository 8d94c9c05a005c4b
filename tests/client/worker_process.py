"""A worker in a process of its own, one line an event: `worker_process.py threads|tasks URL QUEUE NODE`."""

from __future__ import annotations

import sys
import threading

import anyio

import topics


def say(*words: object) -> None:
    print(*words, flush=True)


async def tasks(url: str, queue: str, node: str) -> None:
    async def handle(job: topics.AsyncJob) -> None:
        say("begun", job.seq)
        try:
            await (anyio.sleep_forever() if job.data == "endless" else anyio.sleep(job.data))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                say("cancelled", job.is_lost, await job.ack())
            raise
        say("done", job.seq)

    async with topics.AsyncClient(url) as client:
        async with client.worker(queue, node=node, concurrency=2) as worker:
            say("working")
            await worker.run(handle)
        say("drained")


def threads(url: str, queue: str, node: str) -> None:
    pause = threading.Event()

    def handle(job: topics.Job) -> None:
        say("begun", job.seq)
        while job.data == "endless":
            pause.wait(0.01)
            if job.is_lost:
                say("cancelled", job.is_lost, job.ack())
                return
        pause.wait(job.data)
        say("done", job.seq)

    with topics.Client(url) as client:
        with client.worker(queue, node=node, concurrency=2) as worker:
            say("working")
            worker.run(handle)
        say("drained")


if __name__ == "__main__":
    kind, url, queue, node = sys.argv[1:]
    if kind == "tasks":
        anyio.run(tasks, url, queue, node, backend="trio")
    else:
        threads(url, queue, node)
