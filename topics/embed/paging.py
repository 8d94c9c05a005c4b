"""Page after page of a topic, and the items in them: the same for a store's topics and for a server's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from topics.embed.page import Page, Record
from topics.kernel.checks import flag
from topics.kernel.errors import invalid
from topics.kernel.limits import READ_NODES_MAX, WAIT_MS_MAX
from topics.log.floors import Gap


class Paging:
    """What can be read one page at a time."""

    __slots__ = ()

    @abstractmethod
    def read(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        limit: int = 0,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        account: bool = False,
        epoch: int | None = None,
        max_bytes: int = 0,
        wait_ms: int = 0,
    ) -> Page: ...

    @property
    @abstractmethod
    def _page_records(self) -> int:
        """How many records are asked for at once."""

    def pages(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        epoch: int | None = None,
        wait_ms: int = 0,
    ) -> Iterator[Page]:
        """Page after page: up to the head, or with `wait_ms` for ever, each as soon as there is something to tell."""
        nodes, limit = nodes_of(node), self._page_records
        page = self.read(
            from_seq=from_seq, from_ts=from_ts, limit=limit, match=match, node=nodes, epoch=epoch, wait_ms=wait_ms
        )  # fmt: skip
        while True:
            yield page
            if page.caught_up and not wait_ms:
                return
            page = self.read(
                from_seq=page.next_from_seq, limit=limit, match=match, node=nodes, epoch=page.epoch, wait_ms=wait_ms
            )  # fmt: skip

    def records(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        epoch: int | None = None,
        follow: bool = False,
    ) -> Iterator[Record | Gap]:
        """Every record up to the head as it is when reached, and a `Gap` wherever records were lost.

        `follow`: and then each as it is written, as `follow()` does.
        """
        wait_ms = WAIT_MS_MAX if flag("follow", follow) else 0
        return _flat(
            self.pages(
                from_seq=from_seq, from_ts=from_ts, match=match, node=node, epoch=epoch, wait_ms=wait_ms
            )
        )

    def follow(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        epoch: int | None = None,
    ) -> Iterator[Record | Gap]:
        """Every record from there on, each as it is written, and a `Gap` wherever records were lost.

        It ends by an error only: `topic_not_found` when the topic is deleted, `shutting_down` when the store is closed,
        `Unreachable` when the server is gone.
        """
        return self.records(
            from_seq=from_seq, from_ts=from_ts, match=match, node=node, epoch=epoch, follow=True
        )


def _flat(pages: Iterator[Page]) -> Iterator[Record | Gap]:
    for page in pages:
        if page.tombstone is not None:
            yield page.tombstone
        yield from page.records


def nodes_of(node: str | Iterable[str] | None) -> str | list[str] | None:
    """A copy, so that an iterator serves more than one page; one too many is refused by the read."""
    if node is None or isinstance(node, str):
        return node
    if not isinstance(node, Iterable):
        raise invalid("node", f"must be a name or a list of names, not {type(node).__name__}")
    return list(islice(node, READ_NODES_MAX + 1))
