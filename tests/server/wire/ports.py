"""A real port for tests, over a store in memory whose syncs end when they are let."""

import threading
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.wire.places import alone, begun, new_site
from tests.transcripts.steps import post
from topics.engine.commands import PutTopic
from topics.host.system.memory import MemoryDisk
from topics.kernel.config import parse_config
from topics.server.listener import Listener, ListenerOptions, bind, port_of

SETTLE_S = 0.01  # of nothing happening, for the kernel to tell


class HeldDisk(MemoryDisk):
    """Syncs end when they are let."""

    def __init__(self):
        super().__init__()
        self.goes = threading.Event()
        self.goes.set()

    def sync_data(self, path):
        assert self.goes.wait(10)
        super().sync_data(path)


@asynccontextmanager
async def served(durability="disk", **options):
    """A listener over a store with a topic `t`, its runtime, its port and its disk. Drained behind the block."""
    site = new_site(keys=options.pop("keys", None), more_routes=options.pop("more_routes", ()))
    disk = HeldDisk()
    async with alone(), begun(site, shards=1, disk=disk) as runtime:
        await runtime.submit(PutTopic(topic="t", config=parse_config({"durability": durability})))
        listeners = await bind("127.0.0.1", 0)
        listener = Listener(site, listeners, options=ListenerOptions(**options))
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            with trio.fail_after(20):
                yield listener, runtime, port_of(listeners[0]), disk
                site.draining = True
                await listener.drain(trio.CancelScope(deadline=trio.current_time() + 5))
            assert listener.counts.forced == 0


WRITE = post(b'{"records":[{"data":1}]}', path=b"/v0/topics/t")


async def connected(port, count):
    """Clients that have had an answer each, so that their head is known."""
    clients = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(count)]
    for client in clients:
        await client.send_all(WRITE)
        assert (await client.receive_some()).startswith(b"HTTP/1.1 20")
    await wait_all_tasks_blocked(SETTLE_S)
    return clients
