"""Kinds of parameters, and what each of them may be completed to. As values they are text, checked where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from topics.cli.completion.lookup import names

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore

Find = Callable[["TopicStore", str, click.Context], Iterable[str]]


class Named(click.ParamType[str]):
    """The name of something that is there. `find`: those that begin so."""

    name = "text"

    def __init__(self, find: Find) -> None:
        self._find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        given = ctx.params.get(param.name or "")
        taken = set(given) if isinstance(given, tuple) else set()
        found = names(ctx, lambda store: self._find(store, incomplete, ctx))
        return [CompletionItem(name) for name in found if name.startswith(incomplete) and name not in taken]


class PathKind(click.ParamType[str]):
    """A path, which the shell completes."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        param: click.Parameter,  # noqa: ARG002 -- click's signature
        incomplete: str,
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(incomplete, type=self._kind)]


class Pair(click.ParamType[str]):
    """`NAME=VALUE`: first the name, then the value where its values have names."""

    name = "text"

    def __init__(self, values: Callable[[], dict[str, tuple[str, ...]]]) -> None:
        self._values = values

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        param: click.Parameter,  # noqa: ARG002 -- click's signature
        incomplete: str,
    ) -> list[CompletionItem[str]]:
        name, equals, _ = incomplete.partition("=")
        known = self._values()
        pairs = (
            [f"{name}={value}" for value in known.get(name, ())] if equals else [f"{one}=" for one in known]
        )
        return [CompletionItem(pair) for pair in pairs if pair.startswith(incomplete)]


def _topics(store: TopicStore, begin: str, _: click.Context) -> Iterable[str]:
    return (row.topic for row in store.list(begin))


def _queues(store: TopicStore, begin: str, _: click.Context) -> Iterable[str]:
    return (row.topic for row in store.list(begin) if row.type == "queue")


def _consumers(store: TopicStore, _: str, ctx: click.Context) -> Iterable[str]:
    if "topic" in ctx.params:
        return (state.consumer for state in store.topic(ctx.params["topic"]).consumers())
    # Of an option that has no value yet click has not come to the arguments, and leaves them in `args`.
    topics = ctx.params.get("topics") or ctx.args or [row.topic for row in store.list()]
    return sorted({state.consumer for topic in topics for state in store.topic(topic).consumers()})


def _routers(store: TopicStore, begin: str, _: click.Context) -> Iterable[str]:
    return (router.router for router in store.routers(begin))


def _schedules(store: TopicStore, begin: str, _: click.Context) -> Iterable[str]:
    return (schedule.schedule for schedule in store.schedules(begin))


def _fields() -> dict[str, tuple[str, ...]]:
    """Fields of a topic's config, each with the names of its values."""
    from enum import Enum

    from topics.kernel.config import FIELDS, TopicConfig

    defaults = TopicConfig()

    def named(default: Any) -> tuple[str, ...]:
        match default:
            case Enum():
                return tuple(str(one.value) for one in type(default))
            case bool():
                return ("true", "false")
        return ()

    return {name: named(getattr(defaults, name, None)) for name in FIELDS}


def _settings() -> dict[str, tuple[str, ...]]:
    """Settings that a flag may give, each with the names of its values."""
    from topics.cli.config.setting import SettingKind
    from topics.cli.config.settings import TABLE

    found = {}
    for key, setting in sorted(TABLE.items()):
        if setting.kind is not SettingKind.KEYS:
            found[key] = ("true", "false") if setting.kind is SettingKind.FLAG else setting.choices
    return found


TOPIC: Final = Named(_topics)
QUEUE: Final = Named(_queues)
CONSUMER: Final = Named(_consumers)
ROUTER: Final = Named(_routers)
SCHEDULE: Final = Named(_schedules)
FILE: Final = PathKind("file")
DIRECTORY: Final = PathKind("dir")
FIELD: Final = Pair(_fields)
SETTING: Final = Pair(_settings)
