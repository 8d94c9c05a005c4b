"""`router`: what comes into one topic is copied into another; put, looked at, ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import attrs
import click
import msgspec

from topics.cli.completion.types import ROUTER, TOPIC
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.terminal import json_line, print_table

if TYPE_CHECKING:
    from topics.calls.definitions.routers import Router


@click.group(cls=Group, no_args_is_help=False)
def router() -> None:
    """Copy what comes into one topic into another.

    \b
      topics router put quakes-us --source quakes --dest quakes.us --filter 'us*'
      topics router ls --source quakes
      topics router show quakes-us
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are


@router.command()
@click.argument("name", type=ROUTER)
@click.option(
    "--source",
    type=TOPIC,
    metavar="TOPIC",
    required=True,
    help="Where records come from; made if it is not there.",
)
@click.option(
    "--dest",
    type=TOPIC,
    metavar="TOPIC",
    required=True,
    help="Where their copies go; made if it is not there.",
)
@click.option(
    "--filter", "glob", metavar="TAG", help="Only records with this tag; with a * at its end, that begin so."
)
@click.option("--drop-node", is_flag=True, help="Copies have no node.")
@click.option("--drop-tag", is_flag=True, help="Copies have no tag.")
@click.option("--existing", is_flag=True, help="Fail if the dest is not there.")
@click.option("--allow-cycle", is_flag=True, help="Records may come round, up to 8 times.")
@click.option("--exactly-once", is_flag=True, help="Each copy's meta has a key by which readers know it.")
@json_option
@common_options
@pass_invocation
def put(
    invocation: Invocation, /, name: str, source: str, dest: str, glob: str | None, drop_node: bool, drop_tag: bool,
    existing: bool, allow_cycle: bool, exactly_once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make a router, or change it.

    What comes into the source behind this is copied into the dest, which has one source.
    """
    if glob is not None and glob.startswith("["):
        raise Failed(
            f"--filter: is a tag, as in us, or how tags begin, as in 'us*'; {glob!r:.80} begins as the JSON of a match,"
            " which is not taken here",
            code=USAGE,
        )
    operator = "Glob" if glob is not None and "*" in glob else "Eq"
    with invocation.writing() as store:
        made = store.put_router(
            name, source, dest, filter=None if glob is None else ["tag", operator, glob],
            preserve_node=not drop_node, preserve_tag=not drop_tag, create_dest=not existing,
            allow_cycle=allow_cycle, guarantee="exactly_once" if exactly_once else "at_least_once",
        )  # fmt: skip
    _print_one(made, as_json=as_json)
    if made.cursor and not made.forwarded_total and not as_json:
        say(
            f"{source} has records up to seq {made.cursor} already: they are not copied, what comes behind is",
            "topics: ",
        )


@router.command()
@click.option("--prefix", default="", help="Only routers whose name begins so.")
@click.option("--source", type=TOPIC, metavar="TOPIC", help="Only those from this topic.")
@click.option("--dest", type=TOPIC, metavar="TOPIC", help="Only those into this topic.")
@json_option
@common_options
@pass_invocation
def ls(invocation: Invocation, prefix: str, source: str | None, dest: str | None, as_json: bool) -> None:
    """List the routers, by name."""
    with invocation.there() as store:
        found = store.routers(prefix, source=source, dest=dest)
    if as_json:
        for one in found:
            _print_one(one, as_json=True)
        return
    if not found:
        click.echo(f"no such routers in {invocation.place.name}" if prefix or source or dest else
                   f"no routers in {invocation.place.name}")  # fmt: skip
        return
    print_table(
        ("router", "source", "dest", "filter", "forwarded", "lag"),
        [
            (one.router, one.source, one.dest, _filter(one), f"{one.forwarded_total:,}", f"{one.lag:,}")
            for one in found
        ],
    )


@router.command()
@click.argument("name", type=ROUTER)
@json_option
@common_options
@pass_invocation
def show(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show a router, and how far it has come."""
    with invocation.there() as store:
        _print_one(store.router(name), as_json=as_json)


@router.command()
@click.argument("names", type=ROUTER, nargs=-1, required=True, metavar="NAME…")
@json_option
@common_options
@pass_invocation
def rm(invocation: Invocation, names: tuple[str, ...], as_json: bool) -> None:
    """End routers: behind that nothing of them is copied. What they have copied stays."""
    with invocation.there() as store:
        for name in [store.router(name).router for name in dict.fromkeys(names)]:  # all, or none goes
            deleted = store.delete_router(name)
            if as_json:
                sys.stdout.buffer.write(json_line({"router": name, "deleted": deleted}))
            else:
                click.echo(f"{name}: ended")


def _print_one(found: Router, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(json_line(attrs.asdict(found, recurse=False)))
        return
    kept = [what for what, is_kept in (("node", found.preserve_node), ("tag", found.preserve_tag)) if is_kept]
    print_table(
        ("", ""),
        [
            ("router", found.router),
            ("source", found.source),
            ("dest", found.dest),
            ("filter", _filter(found)),
            ("keeps", " and ".join(kept) or "neither node nor tag"),
            ("guarantee", found.guarantee),
            ("cycles", "allowed" if found.allow_cycle else "refused"),
            ("cursor", f"{found.cursor:,}"),
            ("lag", f"{found.lag:,}"),
            ("forwarded", f"{found.forwarded_total:,}"),
        ],
    )


def _filter(found: Router) -> str:
    return "-" if found.filter is None else msgspec.json.encode(found.filter).decode()
