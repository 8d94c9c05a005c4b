"""What one call of `topics` was given, and the store it opens.

A read makes nothing: where there is no directory, or nothing in it yet, it says so. What recovery had to cut, and
damages it found, are told on stderr before anything else is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topics.cli.failure import Failed, near, say

if TYPE_CHECKING:
    from pathlib import Path

    from topics.cli.settings import Settings
    from topics.embed.store import Store

F = TypeVar("F", bound=Callable[..., Any])

# A crash in mid-write leaves such a tail; so does damage to the last mark of a sync, and then it had been synced.
_UNTOLD = "no whole mark of a sync is left behind it, so whether it had been synced cannot be told"


class Invocation:
    """Flags that every command takes, before its name or after it."""

    def __init__(self) -> None:
        self.debug = False
        self.flags: dict[str, str] = {}
        self.options: dict[str, str] = {"data": "--data"}  # which of them have a flag of their own
        self.file: str | None = None

    @cached_property
    def settings(self) -> Settings:
        from topics.cli.settings import load

        return load(self.flags, file=self.file, options=self.options)

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """The store as it is; nothing is made."""
        root = self.settings.data
        if not root.exists():
            raise Failed(f"{root} does not exist, so nothing is stored there; {self._elsewhere()}")
        if root.is_dir() and not (root / "FORMAT").exists() and not any(root.iterdir()):
            raise Failed(f"{root} is empty, nothing is stored there; {self._elsewhere()}")
        with self._open(root, create=False) as store:
            yield store

    @contextmanager
    def writing(self) -> Iterator[Store]:
        """The store, made if it is not there."""
        root = self.settings.data
        is_new = not root.exists()
        with self._open(root, create=True) as store:
            if is_new:
                say(f"made the data directory {root}", "topics: ", colour="cyan")
            yield store

    @contextmanager
    def _open(self, root: Path, *, create: bool) -> Iterator[Store]:
        import topics

        with topics.open(root, create=create, options=self.settings.options()) as store:
            for cut in store.cuts:
                say(f"{cut} ({_UNTOLD})", "recovered: ", colour="yellow")
            for damage in store.damages:
                say(f"{damage}", "DAMAGED: ", colour="red")
            if store.read_only:
                say(
                    f"{root} is read-only until it is repaired; what is intact can be read",
                    "DAMAGED: ",
                    colour="red",
                )
            try:
                yield store
            except topics.Rejected as refused:
                raise _meant(refused, store) from refused

    def _elsewhere(self) -> str:
        source = self.settings.values["data"].source
        how = (
            "name another with --data DIR or TOPICS_DATA_DIR" if source == "default" else f"{source} names it"
        )
        return f"{how}, or store something first: topics put TOPIC FILE"


def _meant(refused: Exception, store: Store) -> Exception:
    """For a topic that is not there: which one was perhaps meant, or what there is."""
    from topics.kernel.errors import Code, Rejected

    assert isinstance(refused, Rejected)
    if refused.code is not Code.TOPIC_NOT_FOUND:
        return refused
    names = [state.topic for state in store.list()]
    hint = near(str(refused.detail.get("topic", "")), names)
    if not hint:
        hint = "; `topics ls` lists what there is" if names else f"; {store.where} holds no topics yet"
    return Rejected(refused.code, f"{refused.message}{hint}", **refused.detail)


def common_options(command: F) -> F:
    """`--data`, `--set`, `--settings`, `--debug`: of the group and of each command, so that they may stand anywhere."""
    for option in (
        click.option(
            "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_debug, help="Show tracebacks.",
        ),
        click.option(
            "--settings", metavar="FILE", expose_value=False, callback=_file, help="Instead of ./topics.toml.",
        ),
        click.option(
            "--set", "set_", metavar="KEY=VALUE", multiple=True, expose_value=False, callback=_set,
            help="Any setting; see: topics config show.",
        ),
        click.option("--data", metavar="DIR", expose_value=False, callback=_data, help="The data directory."),
    ):  # fmt: skip
        command = option(command)
    return command


def _debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        _of(ctx).debug = True


def _file(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        _of(ctx).file = given


def _data(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        _of(ctx).flags["data"] = given


def _set(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, not {pair!r}", ctx=ctx)
        _of(ctx).flags[key.strip()] = text.strip()


def _of(ctx: click.Context) -> Invocation:
    invocation = ctx.find_root().obj
    assert isinstance(invocation, Invocation)
    return invocation


pass_invocation = click.make_pass_decorator(Invocation)
json_option = click.option("--json", "as_json", is_flag=True, help="For machines: JSON, one value a line.")
