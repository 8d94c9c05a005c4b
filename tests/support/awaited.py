"""What is awaited, called from a test that blocks: each call runs in the loop of another thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from topics import AsyncConsumer, AsyncJob, AsyncTopic
from topics.calls.awaiting import AsyncTopicStore


class Awaited:
    """An async store, a topic, consumer or job of it, with the methods of a blocking one; a stream is read whole."""

    def __init__(
        self, portal: BlockingPortal, there: AsyncTopicStore | AsyncTopic | AsyncConsumer | AsyncJob
    ) -> None:
        self.portal, self.there = portal, there

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.there, "aclose" if name == "close" else name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        plain = [_plain(one) for one in arguments]

        async def call() -> Any:
            given = method(*plain, **options)
            if isinstance(given, AsyncIterator):
                return [item async for item in given]
            return await given if isinstance(given, Awaitable) else given

        return self._wrapped(self.portal.call(call))

    def _wrapped(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._wrapped(one) for one in found]
        return (
            Awaited(self.portal, found) if isinstance(found, AsyncTopic | AsyncConsumer | AsyncJob) else found
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


def _plain(given: Any) -> Any:
    if isinstance(given, list):
        return [_plain(one) for one in given]
    return given.there if isinstance(given, Awaited) else given


@contextmanager
def awaited(store: AbstractAsyncContextManager[AsyncTopicStore], backend: str) -> Iterator[Awaited]:
    """The store until it is closed, in a loop of its own: "trio" or "asyncio"."""
    with start_blocking_portal(backend) as portal, portal.wrap_async_context_manager(store) as opened:
        yield Awaited(portal, opened)
