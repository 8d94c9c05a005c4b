"""A group of commands that says what was perhaps meant, where a word is none of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, cast

import click

from topics.cli.core.failure import near

_MOST: Final = 3
# Words of one meaning, by which others call what we do.
_ALIKE: Final = (
    frozenset("new create add make put set register".split()),
    frozenset("ls list all".split()),
    frozenset("rm delete del remove drop destroy revoke end".split()),
    frozenset("show get describe info status state inspect".split()),
    frozenset("tail watch follow subscribe consume stream".split()),
    frozenset("put write append publish produce push send add".split()),
    frozenset("get read fetch cat show".split()),
    frozenset("configure set alter update edit".split()),
    frozenset("serve start run server up".split()),
    frozenset("work worker workers".split()),
    frozenset("fsck check validate".split()),
)


class Group(click.Group):
    """`topics GROUP COMMAND`, and the whole `topics COMMAND`. `help COMMAND` is `COMMAND --help`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        known = self.list_commands(ctx)
        if args[0] == "help" and not ctx.resilient_parsing:
            # No option and no `--` may stand before ours: it would be a value, or an argument of what `work` runs.
            words = list(takewhile(lambda word: not word.startswith("-"), args[1:]))
            if not words:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*words, "--help"]
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            word, rest = args[0], ""
            if ctx.parent is not None:  # of a group there are few: all are named
                whole = cast("click.Group", ctx.parent.command).list_commands(ctx.parent)
                hint = f"; did you mean topics {word}?" if word in whole else ""
                word, rest = (
                    f"{ctx.info_name} {word}",
                    f"{hint or ';'} {ctx.info_name} has {', '.join(known)}",
                )
            held = self._holders(ctx, word) if ctx.parent is None else []
            said = f"there is no command {word!r}{meant(args[0], known, held) or rest}"
            raise click.UsageError(said, ctx=ctx)
        return super().resolve_command(ctx, args)

    def _holders(self, ctx: click.Context, word: str) -> list[str]:
        """The commands of groups that are called so: `queue redrive` for `redrive`."""
        of_each = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        groups = [(name, one) for name, one in of_each if isinstance(one, click.Group)]
        return [f"{name} {word}" for name, group in groups if word in group.list_commands(ctx)]


def meant(word: str, known: Sequence[str], held: Sequence[str] = ()) -> str:
    """`; did you mean …?`: what is called so elsewhere, as those of `held` are, or is spelt nearly so. Or nothing."""
    alike = {other for words in _ALIKE if word in words for other in words}
    found = [*(name for name in known if name in alike), *held][:_MOST]
    return f"; did you mean {' or '.join(found)}?" if found else near(word, known)
