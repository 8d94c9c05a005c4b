"""Where the topics are: a directory, or a server at a URL; and what is said when that cannot be used.

A directory that a server owns is reached through that server, whose URL is in LOCK; a backup, or one that cannot
be written, is read as it is. A read makes nothing: where there is no directory, or nothing in it yet, it says so. What
recovery had to cut, and damages it found, are told on stderr before anything else is printed. A server that is being
started is waited for, as long as the client's patience lasts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from topics.cli.core.failure import USAGE, Failed, near, say

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from topics.calls.blocking import TopicStore
    from topics.cli.config.settings import Settings, Value
    from topics.embed.store import Store
    from topics.kernel.errors import Rejected
    from topics.kernel.ports import Clock
    from topics.store.opened import StoreOptions

_DAMAGES_SHOWN_MAX: Final = 20
# A crash in mid-write leaves such a tail; so does damage to the last mark of a sync, and then it had been synced.
_UNTOLD: Final = "no whole mark of a sync is left behind it, so whether it had been synced cannot be told"


class Target(Protocol):
    """`name`: how messages call it."""

    @property
    def name(self) -> str: ...

    def there(self, *, fires: bool = False) -> AbstractContextManager[TopicStore]:
        """The store, which must be there. `fires`: its schedules do meanwhile, as those of a server always."""
        ...

    def writing(self) -> AbstractContextManager[TopicStore]:
        """The store, made if it is not there. Its schedules fire."""
        ...

    def at_server(self) -> AbstractContextManager[TopicStore]:
        """A client of the server, for what only a server can tell. Raises `Failed` if none serves it."""
        ...


def choose(settings: Settings) -> Target:
    """The directory or the server, whichever is named more strongly.

    Raises:
        Failed: both are, equally.
    """
    url, data = settings.values["url"], settings.values["data"]
    if url.value is None or _rank(url) < _rank(data):
        return DirectoryTarget(settings)
    if _rank(url) == _rank(data):
        raise Failed(
            f"{url.source} names the server {url.value} and {data.source} the directory {data.value}; give one of them",
            code=USAGE,
        )
    return ServerTarget(settings, str(url.value))


def _rank(value: Value) -> int:
    """How strong a source is: defaults, the file, the environment, flags."""
    if value.source == "default":
        return 0
    if value.source.startswith("--"):
        return 3
    return 2 if value.source.startswith("TOPICS_") else 1


class DirectoryTarget:
    """A data directory, opened in this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = settings.data
        self.name = str(self.root)

    @contextmanager
    def there(self, *, fires: bool = False) -> Iterator[TopicStore]:
        root = self.root
        if not root.exists():
            raise Failed(
                f"{root} does not exist, so nothing is stored there; {self._elsewhere()}", code=USAGE
            )
        if root.is_dir() and not (root / "FORMAT").exists() and not any(root.iterdir()):
            raise Failed(f"{root} is empty, nothing is stored there; {self._elsewhere()}", code=USAGE)
        with self._open(create=False, read_only=is_backup(root), fires=fires) as store:
            yield store

    @contextmanager
    def writing(self, *, clock: Clock | None = None) -> Iterator[TopicStore]:
        """`clock`: of the store that is opened here; a server has its own."""
        is_new = not self.root.exists()
        check_no_backup(self.root)
        with self._open(create=True, clock=clock) as store:
            if is_new:
                say(f"made the data directory {self.root}", "topics: ", colour="cyan")
            yield store

    def at_server(self) -> AbstractContextManager[TopicStore]:
        from topics.host.directory.owner import check_unowned
        from topics.kernel.errors import CannotOpen

        try:
            check_unowned(self.root)
        except FileNotFoundError:
            pass
        except CannotOpen as in_use:
            return self._its_server(in_use.detail).there()
        raise Failed(
            f"no server serves {self.root}, and only a server can tell: name one by --url URL, or start one:"
            f" topics serve --data {self.root}"
        )

    @contextmanager
    def _open(
        self,
        *,
        create: bool,
        read_only: bool = False,
        fires: bool = True,
        clock: Clock | None = None,
    ) -> Iterator[TopicStore]:
        import attrs

        import topics
        from topics.kernel.errors import Code, Unusable

        options = attrs.evolve(self.settings.options(), fire_schedules=fires)
        check_cold_dir(options, self.root)
        why_not = f"{self.root} is a backup: make a store of it with topics restore {self.root} DIR"
        owner: Mapping[str, object] = {}
        try:
            opened = topics.open(self.root, create=create, read_only=read_only, clock=clock, options=options)
        except topics.CannotOpen as refused:
            opened, owner = None, refused.detail
            if refused.reason is Unusable.UNWRITABLE and not create:  # it may be read all the same
                read_only, why_not = True, refused.message
                opened = topics.open(self.root, read_only=True, options=options)
            elif refused.reason is not Unusable.IN_USE:
                raise
        if opened is None:
            with self._its_server(owner).writing() as served:
                yield served
            return
        with opened as store:
            self._tell(store, "left out: " if read_only else "recovered: ")
            try:
                yield store
            except topics.Rejected as refused:
                if read_only and refused.code is Code.STORAGE_READ_ONLY:
                    raise Failed(f"this writes, and {why_not}") from refused
                raise meant(refused, store) from refused

    def _tell(self, store: Store, cut_word: str) -> None:
        """What opening found."""
        for cut in store.cuts:
            say(f"{cut} ({_UNTOLD})", cut_word, colour="yellow")
        for warning in store.warnings:
            say(f"{warning}; nothing is lost", "topics: ", colour="yellow")
        for damage in store.damages[:_DAMAGES_SHOWN_MAX]:
            say(f"{damage}", "DAMAGED: ", colour="red")
        if len(store.damages) > _DAMAGES_SHOWN_MAX:
            more = len(store.damages) - _DAMAGES_SHOWN_MAX
            say(f"and {more} more; topics fsck lists them all", "DAMAGED: ", colour="red")
        if any(damage.newer for damage in store.damages):
            say(
                f"{self.root} is read-only for this version: use the topics that wrote it",
                "NEWER: ",
                colour="red",
            )
        elif any(damage.in_log for damage in store.damages):
            what = f"{self.root} is read-only until it is repaired; what is intact can be read"
            say(f"{what}; see topics fsck {self.root}", "DAMAGED: ", colour="red")

    def _its_server(self, owner: Mapping[str, object]) -> ServerTarget:
        """The owner of the directory, if that is a server; `owner`: what the refusal to open it says of it.

        Raises:
            Failed: it is none, or does not listen yet.
        """
        pid, url = owner.get("owner_pid"), owner.get("owner_url")
        if url is None:
            who = "another process" if pid is None else f"process {pid}"
            raise Failed(
                f"{self.root} is in use by {who}, which does not serve it: wait until it ends, or have it served there "
                f"(topics serve --data {self.root}), and commands go through the server"
            )
        say(f"{self.root} is served by process {pid}; going through {url}", "topics: ", colour="cyan")
        return ServerTarget(self.settings, str(url))

    def _elsewhere(self) -> str:
        source = self.settings.values["data"].source
        how = (
            "name another with --data DIR or TOPICS_DATA_DIR" if source == "default" else f"{source} names it"
        )
        return f"{how}, or store something first: topics put TOPIC FILE"


def is_backup(root: Path) -> bool:
    """A backup is only read: whatever opened it for writing would make it differ from what `topics verify` expects."""
    from topics.codec.manifest import MANIFEST_FILE

    return (root / MANIFEST_FILE).exists()


def check_no_backup(root: Path) -> None:
    """Raises `Failed` if a backup is about to be written."""
    if is_backup(root):
        raise Failed(
            f"{root} is a backup, which is read and not written: make a store of it with topics restore {root} DIR"
        )


def check_cold_dir(options: StoreOptions, root: Path) -> None:
    """Raises `Rejected` if the cold directory cannot be one for `root`, before that is made or opened."""
    if options.cold_dir is not None:
        from topics.host.cold.place import check_place

        check_place(options.cold_dir, root)


class ServerTarget:
    """A server at a URL. It owns its directory, so nothing is made here and reading is as writing."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.settings = settings
        self.name = url

    def there(self, *, fires: bool = False) -> AbstractContextManager[TopicStore]:  # noqa: ARG002 -- a server's do
        return self._open()

    def writing(self) -> AbstractContextManager[TopicStore]:
        return self._open()

    def at_server(self) -> AbstractContextManager[TopicStore]:
        return self._open()

    @contextmanager
    def _open(self) -> Iterator[TopicStore]:
        import topics

        get = {key: value.value for key, value in self.settings.values.items()}
        limits = self.settings.limits()
        with topics.Client(
            self.name, api_key_file=get["api_key_file"], cafile=get["cafile"], limits=limits
        ) as client:
            try:
                yield client
            except topics.Rejected as refused:
                raise _said_by(refused, client) from refused


def _said_by(refused: Exception, store: TopicStore) -> Exception:
    """What a server refused for a reason of its own names the server, and what to do about it."""
    from topics.kernel.errors import Code, Rejected

    assert isinstance(refused, Rejected)
    hints = {
        Code.UNAUTHORIZED: "who runs it makes keys by topics key new",
        Code.FORBIDDEN: "who runs it may give another key",
        Code.MISDIRECTED_REQUEST: "name it by the address it is bound to, or list this name in its allowed_origins",
        Code.NOT_READY: "it was waited for; try again later",
        Code.SHUTTING_DOWN: "try again when it is up again",
        Code.STORAGE_READ_ONLY: "its log says why",
        Code.THROTTLED: "it was waited for; try again later",
        Code.NOT_FOUND: "the server may be older than this command",
    }
    if refused.code not in hints:
        return meant(refused, store)
    return Rejected(
        refused.code, f"{store.where}: {refused.message} ({hints[refused.code]})", **refused.detail
    )


def meant(refused: Exception, store: TopicStore) -> Exception:
    """For a topic, router or schedule that is not there: which one was perhaps meant, or what there is. For a consumer:
    how to make it. For a router that is in the way: how to end it.
    """
    from topics.kernel.errors import Code, Rejected, TopicsError

    assert isinstance(refused, Rejected)
    if refused.code is Code.CONSUMER_NOT_FOUND:
        make = f"topics consumer set {refused.detail.get('topic')} {refused.detail.get('consumer')}"
        message = refused.message.replace(": put it first", f"; {make} makes it")
        return Rejected(refused.code, message, **refused.detail)
    try:
        match refused.code:
            case Code.TOPIC_EXISTS_INCOMPATIBLE:
                return Rejected(refused.code, f"{refused.message}{_ending(refused, store)}", **refused.detail)
            case Code.TOPIC_NOT_FOUND:
                kind, command, names = "topic", "ls", [row.topic for row in store.list()]
            case Code.ROUTER_NOT_FOUND:
                kind, command, names = "router", "router ls", [row.router for row in store.routers()]
            case Code.SCHEDULE_NOT_FOUND:
                kind, command, names = "schedule", "schedule ls", [row.schedule for row in store.schedules()]
            case _:
                return refused
    except TopicsError:  # a key may not list them
        return refused
    hint = near(str(refused.detail.get(kind, "")), names)
    if not hint:
        hint = (
            f"; `topics {command}` lists what there is" if names else f"; {store.where} holds no {kind}s yet"
        )
    return Rejected(refused.code, f"{refused.message}{hint}", **refused.detail)


def _ending(refused: Rejected, store: TopicStore) -> str:
    """How to end the routers that are in the way; nothing if none is."""
    router, topic = refused.detail.get("router"), refused.detail.get("topic")
    match refused.detail.get("reason"):
        case "router_dest_fan_in" | "router_repoint" if router is not None:
            names = [str(router)]
        case "router_ephemeral":
            names = [one.router for one in store.routers() if topic in (one.source, one.dest)]
        case _:
            return ""
    ends = "them" if len(names) > 1 else "it"
    return f"; `{shlex.join(['topics', 'router', 'rm', *names])}` ends {ends}" if names else ""


def is_missing(store: TopicStore, topic: str) -> bool:
    """Whether there is no such topic. A key that may write need not be one that may look: then it counts as there."""
    from topics.kernel.errors import Code, Rejected

    try:
        return store.config(topic) is None
    except Rejected as refused:
        if refused.code is not Code.FORBIDDEN:
            raise
        return False
