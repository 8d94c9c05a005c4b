"""What one call of `topics` was given: flags that stand anywhere, settings, and from them the place it works on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from topics.cli.completion.types import DIRECTORY, FILE, SETTING
from topics.cli.core.failure import asked_ms

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from topics.calls.blocking import TopicStore
    from topics.cli.config.settings import Settings
    from topics.cli.target.place import Target

_OPTIONS: Final = {
    "data": "--data", "cold_dir": "--cold-dir", "url": "--url", "cafile": "--cafile", "api_key_file": "--api-key-file",
}  # fmt: skip
_OF_SERVERS: Final = ("url", "cafile", "api_key_file")
_OF_DIRECTORIES: Final = ("data", "cold_dir")
_TYPED: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class Invocation:
    """Flags that every command takes, before its name or after it."""

    def __init__(self) -> None:
        self.debug = False
        self.flags: dict[str, str] = {}
        self.options: dict[str, str] = dict(_OPTIONS)  # which of them have a flag of their own
        self.file: str | None = None
        self._context: click.Context | None = None  # the command's

    def begin(self, context: click.Context) -> None:
        """This command is carried out now."""
        self._context = context

    @cached_property
    def settings(self) -> Settings:
        return self.reread()

    def reread(self) -> Settings:
        """The settings as they are now: a server that runs reads them again."""
        from topics.cli.config.settings import load

        return load(self.flags, file=self.file, options=self.options)

    @cached_property
    def place(self) -> Target:
        """The directory or the server that is named."""
        from topics.cli.target.place import choose

        return choose(self.settings)

    def typed(self, field: str) -> str:
        """How the user wrote a field of an error: `DEST`, `--to-time`, `TOPICS_COLD_DIR`, `topics.toml: cold_dir`; the
        field's own name, if he did not give it.
        """
        settings: Settings | None = vars(self).get("settings")
        value = None if settings is None else settings.values.get(field)
        if value is not None and value.source != "default":
            return value.source if value.is_named else f"{value.source}: {field}"
        context = self._context
        for option in () if context is None else context.command.params:
            assert context is not None
            if field in _names(option) and context.get_parameter_source(option.name or "") in _TYPED:
                if isinstance(option, click.Option):
                    return option.opts[-1]
                return (option.metavar or option.opts[0].upper()).strip("[]|-…")
        return field

    def there(self, *, fires: bool = False) -> AbstractContextManager[TopicStore]:
        """The store, which must be there. `fires`: its schedules do meanwhile."""
        return self.place.there(fires=fires)

    def writing(self) -> AbstractContextManager[TopicStore]:
        """The store, made if it is not there."""
        return self.place.writing()


def common_options(command: F) -> F:
    """`--data`, `--cold-dir`, `--url`, `--set` …: of the group and of each command, so that they may stand anywhere."""
    for option in (
        click.option(
            "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_debug, help="Show tracebacks.",
        ),
        click.option(
            "--settings", type=FILE, metavar="FILE", expose_value=False, callback=_file,
            help="Instead of ./topics.toml.",
        ),
        click.option(
            "--set", "set_", type=SETTING, metavar="KEY=VALUE", multiple=True, expose_value=False, callback=_set,
            help="Any setting; see: topics config show.",
        ),
        click.option(
            "--cafile", type=FILE, metavar="FILE", expose_value=False, callback=_own, help="PEM certificates to trust.",
        ),
        click.option(
            "--api-key-file", type=FILE, metavar="FILE", expose_value=False, callback=_own,
            help="The key the server asks for, unless TOPICS_API_KEY holds it.",
        ),
        click.option("--url", metavar="URL", expose_value=False, callback=_own, help="The server."),
        click.option(
            "--cold-dir", metavar="DIR", expose_value=False, callback=_own,
            help="Where older segments go: a directory, or a URL as in s3://bucket/folder.",
        ),
        click.option(
            "--data", type=DIRECTORY, metavar="DIR", expose_value=False, callback=_own, help="The data directory."
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def file_options(command: F) -> F:
    """`--idempotency-key` and `--from-line`: of what stores a file, which may be told to do it again, or to go on."""
    for option in (
        click.option("--from-line", type=click.IntRange(1), default=1, help="Begin at this line, or row."),
        click.option("--idempotency-key", metavar="KEY", help="The same file with the same key is stored once."),
    ):  # fmt: skip
        command = option(command)
    return command


def local_options(command: F) -> F:
    """`common_options` of a command that works on a directory alone: how to reach a server is not in its help."""
    return _without(_OF_SERVERS, command)


def remote_options(command: F) -> F:
    """`common_options` of a command that works on no directory of the user's."""
    return _without(_OF_DIRECTORIES, command)


def _without(hidden: Collection[str], command: F) -> F:
    command = common_options(command)
    for option in getattr(command, "__click_params__", ()):
        option.hidden = option.hidden or option.name in hidden
    return command


def _debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        _of(ctx).debug = True


def _file(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        _of(ctx).file = given


def _own(ctx: click.Context, option: click.Parameter, given: str | None) -> None:
    """A setting with a flag of its own."""
    assert option.name in _OPTIONS
    if given is not None:
        _of(ctx).flags[option.name] = given


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


def pass_invocation(command: Callable[Concatenate[Invocation, P], R]) -> Callable[P, R]:
    """Hand the invocation to a command."""

    @wraps(command)
    def begun(*arguments: P.args, **options: P.kwargs) -> R:
        context = click.get_current_context()
        invocation = _of(context)
        invocation.begin(context)
        return command(invocation, *arguments, **options)

    return begun


def milliseconds(low: int = 0, high: int | None = None) -> Callable[..., int | None]:
    """Callback of an option that takes a time."""

    def asked(_: click.Context, option: click.Parameter, given: str | None) -> int | None:
        return None if given is None else asked_ms(option.opts[-1], given, low, high)

    return asked


def _names(option: click.Parameter) -> set[str]:
    """What a field that this option gives may be called in an error."""
    return {option.name or "", *(name.lstrip("-") for name in option.opts)}


json_option = click.option("--json", "as_json", is_flag=True, help="For machines: JSON, one value a line.")


def format_option(formats: Sequence[str], help_text: str) -> Callable[[F], F]:
    """`--format csv`, and `--csv` for it where that means nothing else."""

    def decorated(command: F) -> F:
        for form in formats:
            if form != "json":
                command = click.option(f"--{form}", "form", flag_value=form, hidden=True)(command)
        return click.option("--format", "form", type=click.Choice(formats), help=help_text)(command)

    return decorated
