"""What commands need of a store: the embedded one and a server's client both have it, so there is one code path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from os import PathLike

    from topics.codec.manifest import Written
    from topics.embed.page import Page, Record
    from topics.engine.recover import DamageReport
    from topics.engine.replies import Appended, RecordsDeleted, TopicState
    from topics.kernel.config import TopicConfig
    from topics.kernel.limits import Limits
    from topics.log.floors import Gap


class TopicPort(Protocol):
    """A topic, wherever it is."""

    @property
    def name(self) -> str: ...

    def put_many(
        self,
        records: Iterable[Any],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        require_same_body: bool = True,
    ) -> Appended: ...

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
    ) -> Page: ...

    def pages(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        epoch: int | None = None,
        wait_ms: int = 0,
    ) -> Iterator[Page]: ...

    def records(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
    ) -> Iterator[Record | Gap]: ...

    def delete(
        self, *, before_seq: int | None = None, match: str | Sequence[str] | None = None
    ) -> RecordsDeleted: ...

    def configure(self, *, replace: bool = False, **config: Any) -> TopicConfig: ...

    def state(self) -> TopicState: ...


class Listed(Protocol):
    """A row of a list of topics; a directory's rows have more."""

    @property
    def topic(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def head_seq(self) -> int: ...
    @property
    def earliest_seq(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class StorePort(Protocol):
    """Topics, wherever they are. `where` is a directory or a URL."""

    @property
    def where(self) -> str: ...
    @property
    def limits(self) -> Limits: ...

    def create(self, name: str, *, exist_ok: bool = False, **config: Any) -> TopicPort: ...

    def topic(self, name: str) -> TopicPort: ...

    def list(self, prefix: str = "") -> Sequence[Listed]: ...

    def delete(self, name: str, *, if_empty: bool = False) -> bool: ...

    def config(self, name: str) -> TopicConfig | None: ...

    def backup(
        self,
        dest: str | PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written: ...


@runtime_checkable
class Opened(Protocol):
    """A directory's store: it knows what was found damaged."""

    @property
    def damages(self) -> Sequence[DamageReport]: ...


@runtime_checkable
class Served(Protocol):
    """A server's store: it says so when it is asked."""

    def ready(self) -> Mapping[str, Any]: ...
