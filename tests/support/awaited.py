"""What is awaited, called from a test that blocks: each call runs in the loop of another thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from topics import AsyncTopic
from topics.calls.awaiting import AsyncTopicStore


class Awaited:
    """An async store or a topic of it, with the methods of a blocking one; a stream is read to its end."""

    def __init__(self, portal: BlockingPortal, there: AsyncTopicStore | AsyncTopic) -> None:
        self.portal, self.there = portal, there

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.there, "aclose" if name == "close" else name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        async def call() -> Any:
            given = method(*arguments, **options)
            if isinstance(given, AsyncIterator):
                return [item async for item in given]
            return await given if isinstance(given, Awaitable) else given

        found = self.portal.call(call)
        return Awaited(self.portal, found) if isinstance(found, AsyncTopic) else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


@contextmanager
def awaited(store: AbstractAsyncContextManager[AsyncTopicStore], backend: str) -> Iterator[Awaited]:
    """The store until it is closed, in a loop of its own: "trio" or "asyncio"."""
    with start_blocking_portal(backend) as portal, portal.wrap_async_context_manager(store) as opened:
        yield Awaited(portal, opened)
