"""`Client`: a server's topics, under the names the embedded store has for its own. Usable by many threads.

A call is repeated where that is safe, and ends in bounded time: see `patience` and `transport`. The key that a server
may ask for comes from `TOPICS_API_KEY` or from a file, never from an argument, and is in no message.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from topics.client import messages
from topics.client.address import parse_address
from topics.client.messages import TopicSummary
from topics.client.patience import Pace, Patience
from topics.client.topic import Topic
from topics.client.transport import Request, Transport
from topics.client.trouble import Unreachable, not_topics
from topics.codec.manifest import Written
from topics.engine.commands import PutMode
from topics.engine.replies import TopicState
from topics.host.unpacking import receive_backup
from topics.kernel.checks import flag
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Fatal, Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import Limits

T = TypeVar("T")

KEY_VARIABLE: Final = "TOPICS_API_KEY"
KEY_CHARS_MAX: Final = 4096
PAGE_SIZE: Final = 1000
TOPICS_LISTED_MAX: Final = 10_000_000
BACKUP_WAIT_MS: Final = 600_000  # for a checkpoint that is under way


class Client:
    """A server at a URL. Use it as a context manager, or call `close`.

    `cafile`: PEM certificates to trust instead of the usual ones. `limits`: what the server is taken to allow in a page
    or a batch; the server itself decides.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_file: str | os.PathLike[str] | None = None,
        cafile: str | os.PathLike[str] | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._begin(
            url,
            read_api_key(api_key_file),
            cafile=None if cafile is None else os.fspath(cafile),
            patience=patience,
            limits=limits,
            pace=pace,
        )

    @classmethod
    def with_key(
        cls, url: str, key: str, *, cafile: str | None = None, patience: Patience | None = None
    ) -> Self:
        """For a program that was handed the key together with its work, as an executor of Spark is.

        Whoever writes a key down has it in a file or in the environment, and leaves it there.

        Raises:
            Rejected: what cannot stand in a header.
        """
        client = cls.__new__(cls)
        client._begin(url, _checked(key, "the token"), cafile=cafile, patience=patience)  # noqa: SLF001 -- its own class
        return client

    def _begin(
        self,
        url: str,
        key: str | None,
        *,
        cafile: str | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
    ) -> None:
        address = parse_address(url)
        self.where = address.url
        self.limits = limits or Limits()
        self._transport = Transport(
            address,
            api_key=key,
            cafile=cafile,
            patience=patience or Patience(),
            pace=pace or Pace(),
        )

    def create(self, name: str, *, exist_ok: bool = False, **config: Any) -> Topic:
        """Create a topic. One that is there is never changed: it is returned if every field that is given has that
        value there, or `exist_ok` is true, and refused otherwise.

        Raises:
            Rejected: a bad name or config; topic_exists_incompatible, whose `differences` say what is there and what
                was asked; of another type it is so with `exist_ok`, too.
        """
        flag("exist_ok", exist_ok)
        try:
            self.put_topic(name, config, mode=PutMode.CREATE)
        except Rejected as refused:
            if not exist_ok or refused.detail.get("reason") != "config":
                raise
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """A handle. The topic need not exist: a write creates it, a read says that it is not there."""
        return Topic(self, check_topic_name(name))

    def list(self, prefix: str = "") -> Sequence[TopicSummary]:
        """A row for every topic whose name starts so, ascending by name; as many requests as it takes."""
        if not isinstance(prefix, str):
            raise invalid("prefix", f"must be a string, not {type(prefix).__name__}")
        found: list[TopicSummary] = []
        query = {"prefix": prefix, "page_size": str(PAGE_SIZE)}
        while True:
            rows, cursor = self.call(
                Request(method="GET", path="/v0/topics", query=query, repeatable=True), messages.read_list
            )
            found += rows
            if cursor is None:
                return found
            if cursor == query.get("cursor") or len(found) > TOPICS_LISTED_MAX:
                raise not_topics(self.where, "its list of topics has no end")
            query["cursor"] = cursor

    def delete(self, name: str, *, if_empty: bool = False) -> bool:
        """Delete a topic with everything in it. False if there was none.

        Raises:
            Unreachable: if it was sent, it may have been carried out; it is not repeated.
        """
        query = {"if_empty": "true" if flag("if_empty", if_empty) else "false"}
        request = Request(method="DELETE", path=_path(name), query=query, writes=True)
        return self.call(request, messages.read_topic_deleted)

    def sync(self) -> None:
        """An embedded store syncs here; a server has no route for it.

        Raises:
            Rejected: not_implemented, always.
        """
        raise Rejected(
            Code.NOT_IMPLEMENTED,
            'a server has no route to sync; write to a topic with durability="fsync", or watch its durable_seq',
        )

    def close(self) -> None:
        """Close the connections. Twice is fine."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    def __reduce__(self) -> NoReturn:
        """No copies, and no way into another process."""
        raise TypeError(
            f"{self!r} belongs to the process that opened it: open another one where it is needed"
        )

    def __repr__(self) -> str:
        return f"Client({self.where!r})"

    # About the server itself.

    def health(self) -> Mapping[str, Any]:
        """`{"status": "ok", "version": …, "uptime_ms": …}`, also while the log is being recovered."""
        return self.call(Request(method="GET", path="/v0/health", repeatable=True), messages.read_object)

    def ready(self) -> Mapping[str, Any]:
        """What recovery found, once it is through; waits for that as long as any call does.

        Raises:
            Rejected: not_ready, with `replay_progress`.
        """
        return self.call(Request(method="GET", path="/v0/ready", repeatable=True), messages.read_object)

    def checkpoint(self) -> None:
        """Have the server take a checkpoint now. It takes them by itself when enough was written.

        Raises:
            Rejected: its storage is read-only, or its disk is full.
            Corrupt: records that are in its log alone are damaged; everything else was done.
        """
        self.call(Request(method="POST", path="/v0/admin/checkpoint", repeatable=True), messages.read_object)

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        """Write a backup of the server's store to the directory `dest` here, which must not be there.

        `tell` is told the bytes that have come, and how many there are. What is in the server's cold tier stays there,
        and is copied only `with_cold`.

        Raises:
            Rejected: something is at `dest`, or the server's storage is read-only.
            CannotOpen: it cannot be written there; nothing is left of it.
            Corrupt: what came is no whole backup.
            Unreachable: it was broken off.
        """

        def take(pieces: Iterator[bytes], size: int | None) -> Written:
            return receive_backup(
                pieces, dest, lambda done: None if tell is None else tell(done, size or done)
            )

        query = {"with_cold": "true"} if flag("with_cold", with_cold) else {}
        request = Request(method="POST", path="/v0/admin/backup", query=query, wait_ms=BACKUP_WAIT_MS)
        return self._transport.download(request, take)

    # For Topic.

    def call(self, request: Request, read: Callable[[bytes], T], *, key: object = None) -> T:
        """Exchange and decode. `key`: the idempotency key, told by errors after which the outcome is unknown."""
        try:
            body = self._transport.exchange(request)
        except (Fatal, Unreachable) as error:
            if key is not None:
                error.detail = {**error.detail, "idempotency_key": key}
            raise
        try:
            return read(body)
        except messages.MALFORMED as error:
            raise not_topics(
                self.where, f"{request.path} answered what is not of its form: {error}"
            ) from error

    def new_key(self) -> str:
        """An idempotency key nobody has: 144 random bits."""
        return secrets.token_urlsafe(18)

    def state(self, name: str) -> TopicState:
        return self.call(Request(method="GET", path=_path(name), repeatable=True), messages.read_state)

    def config(self, name: str) -> TopicConfig | None:
        """The published config, None if there is no such topic."""
        request = Request(method="GET", path=_path(name), query={"touch": "false"}, repeatable=True)
        try:
            return self.call(request, messages.read_state).config
        except Rejected as refused:
            if refused.code is not Code.TOPIC_NOT_FOUND:
                raise
            return None

    def put_topic(self, name: str, config: Mapping[str, Any], *, mode: PutMode) -> TopicConfig:
        """The config as it is then. What one attempt has done, the next one finds done."""
        request = Request(
            method="PATCH" if mode is PutMode.MERGE else "PUT",
            path=_path(name),
            query={"replace": "false"} if mode is PutMode.CREATE else {},
            body=messages.fields_body(config, field="config"),
            repeatable=True,
            writes=True,
        )
        return self.call(request, messages.read_configured)


def _path(name: str) -> str:
    return f"/v0/topics/{check_topic_name(name)}"


def read_api_key(file: str | os.PathLike[str] | None) -> str | None:
    """The key, of the file if one is named. No message holds any part of it.

    Raises:
        Rejected: an unreadable file, or what cannot stand in a header.
    """
    if file is not None:
        source, text = os.fspath(file), ""
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise invalid("api_key_file", f"{source} cannot be read ({type(error).__name__})") from None
        if not text.strip():
            raise invalid("api_key_file", f"{source} is empty; it holds the key on one line")
    else:
        source, text = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "")
        if not text.strip():
            return None
    return _checked(text, source)


def _checked(text: str, source: str) -> str:
    key = text.strip()
    if not key or len(key) > KEY_CHARS_MAX or not all("!" <= sign <= "~" for sign in key):
        raise invalid("api_key", f"what {source} holds is no key: one word of visible ASCII characters")
    return key
