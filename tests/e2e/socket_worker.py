"""The client's worker in a process of its own; each line that it prints is what it was given, said and was told.

`socket_worker.py HOME NODE SEED LEASE_MS`, as `job_worker.py`. Leases begin when the server says so, whose clock is
this machine's.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import random
import select
import sys
import time
from typing import ClassVar

import anyio

import topics
from topics.calls.patience import Patience
from topics.calls.queues.jobs import AckCall, ExtendCall

CONCURRENCY = 8
FREEZES, LASTS = 0.002, 0.02  # of jobs


def now_ms():
    return time.time_ns() // 1_000_000


def tell(*event):
    os.write(1, json.dumps(event).encode() + b"\n")


class Telling:
    """A supply that tells what it tells."""

    deadlines: ClassVar[dict[str, int]] = {}  # of leases that were extended, some before their job is begun

    def __init__(self, supply):
        self.run, self._supply = supply.run, supply

    async def tell(self, call):
        jobs, asked_ms = list(call.jobs), now_ms()
        if isinstance(call, ExtendCall):
            found = await self._supply.tell(call)
            longer = {job.lease_id: found.deadline for job in jobs if job.seq in found.seqs}
            self.deadlines.update(longer)
            tell("longer", longer)
            return found
        action = "ack" if isinstance(call, AckCall) else "nack"
        tell(f"{action}ing", asked_ms, [job.lease_id for job in jobs])
        found = await self._supply.tell(call)
        done, skipped = ([job.seq for job in jobs if job.seq in seqs] for seqs in (found.seqs, found.skipped))
        tell(f"{action}ed", asked_ms, now_ms(), done, skipped)  # acks of others may have gone with it
        return found


class Said(logging.Handler):
    def emit(self, record):
        if "trying again" in (message := record.getMessage()):
            tell("away", now_ms(), message.partition(": ")[2])


class Client(topics.AsyncClient):
    def supply(self, queue, **options):
        return Telling(super().supply(queue, **options))


class Handler:
    def __init__(self, seed, lease_ms):
        self.random, self.lease_ms = random.Random(seed), lease_ms
        self.hands = set()

    async def __call__(self, job):
        began_ms = job.deadline - self.lease_ms
        deadline = Telling.deadlines.get(job.lease_id, job.deadline)
        tell("claimed", began_ms, now_ms(),
             [[job.data, job.key or None, job.seq, job.lease_id, deadline, job.deliveries]])  # fmt: skip
        self.hands.add(job.lease_id)
        try:
            await self.work(job)
        except anyio.get_cancelled_exc_class():
            tell("lost", job.lease_id)
            raise
        finally:
            self.hands.discard(job.lease_id)

    async def work(self, job):
        chance = self.random.random()
        if chance < FREEZES:
            tell("froze", sorted(self.hands))
            select.select([], [], [], self.lease_ms * 1.3 / 1000)  # so stands everything still here
        elif chance < FREEZES + LASTS:
            await anyio.sleep(self.lease_ms * 0.8 / 1000)
        if job.data["fails"]:
            raise ValueError("it always fails")


async def main(port, node, seed, lease_ms):
    logging.getLogger("topics.worker").addHandler(Said())
    async with (
        Client(f"http://127.0.0.1:{port}", patience=Patience(reach_ms=30_000)) as client,
        client.worker("q", node=node, concurrency=CONCURRENCY) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(worker.run, Handler(node + seed, int(lease_ms)))
        await anyio.to_thread.run_sync(
            sys.stdin.read, abandon_on_cancel=True
        )  # it ends with whoever has started it
        os._exit(0)


if __name__ == "__main__":
    home, *rest = sys.argv[1:]
    anyio.run(main, pathlib.Path(home, "port").read_text(), *rest, backend="trio")
