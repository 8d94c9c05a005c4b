"""The names that are there, from a server or from the files of a directory.

A directory is read as its files lie there: no lock is taken or asked for, so nobody who opens it at that moment is in
the way, and nothing is written. One that a server owns is asked for at that server. What fails or takes too long is no
answer, and never an error: whoever types sees nothing instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from topics.calls.blocking import TopicStore
    from topics.cli.config.settings import Settings

LOOK_S: Final = 1.0
Ask = Callable[["TopicStore"], Iterable[str]]


def names(ctx: click.Context, ask: Ask) -> list[str]:
    """What `ask` finds in the place that the flags so far, the environment and topics.toml name; at most for `LOOK_S`
    seconds, in which nothing has to be imported any more.
    """
    found: list[str] = []
    with suppress(Exception):
        opened = _opened(ctx.find_root().obj.settings)
        looking = threading.Thread(target=_look, args=(opened, ask, found), daemon=True)
        looking.start()
        looking.join(LOOK_S)
    return list(found)


def _look(opened: Callable[[], AbstractContextManager[TopicStore]], ask: Ask, found: list[str]) -> None:
    with suppress(Exception), opened() as store:
        found.extend(sorted(ask(store)))


def _opened(settings: Settings) -> Callable[[], AbstractContextManager[TopicStore]]:
    """How to open the place, with everything imported that this takes."""
    from topics.cli.target.place import ServerTarget, choose
    from topics.host.directory.owner import read_owner

    place = choose(settings)
    if not isinstance(place, ServerTarget):
        owner = read_owner(settings.data)
        if owner is None or owner.url is None or not _is_running(owner.pid):
            return _of_files(settings)
        place = ServerTarget(settings, owner.url)
    from topics.client import client  # noqa: F401 -- so that it is there

    return place.there


def _of_files(settings: Settings) -> Callable[[], AbstractContextManager[TopicStore]]:
    import attrs

    from topics.embed.store import Store
    from topics.host.directory.owner import same_boot_at
    from topics.host.system.clock import SystemClock
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.store.viewing import view_store

    root = settings.data
    options = attrs.evolve(settings.options(), cold_dir=None)  # names are in the log and in snapshots

    def opened() -> Store:
        disk = ReadOnlyDisk(root)
        view = view_store(disk, SystemClock(), where=str(root), same_boot=same_boot_at(root), options=options)
        return Store(view, disk, where=str(root))

    return opened


def _is_running(pid: int) -> bool:
    """Whether there is such a process: where the owner has ended, somebody else may listen at its URL."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
