"""`pressure`: how much too much it is for a server, and what it leaves off because of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line, print_table

if TYPE_CHECKING:
    from topics.calls.messages import Pressure

LEFT_OFF: Final = {
    "nothing": "nothing",
    "coalesce": "news of a topic waits for more of it",
    "widen": "news waits for more, and synced writes wait for each other",
    "hold": "news waits, synced writes wait, and watchers of topics below 0 are told nothing",
    "refuse": "all of that, and writes are refused while too many wait",
}


@click.command()
@json_option
@common_options
@pass_invocation
def pressure(invocation: Invocation, as_json: bool) -> None:
    """Show how much too much it is for a server, and what it leaves off.

    From 0, where all is told at once, to 1. No record is lost at any pressure. The server is the one that is named by
    --url, or that serves the data directory; its key, if it asks for one, needs `admin` and no prefixes.
    """
    import attrs

    from topics.calls import topics as calls

    with invocation.place.at_server() as store:
        found = store.do(calls.Pressure())
    if as_json:
        sys.stdout.buffer.write(json_line(attrs.asdict(found)))
        return
    print_table(("", ""), _rows(found))


def _rows(found: Pressure) -> list[tuple[str, str]]:
    waiting = ", ".join(f"{count} in {band}" for band, count in found.bands.items() if count)
    return [
        ("pressure", f"{found.pressure:.2f}"),
        ("left off", LEFT_OFF.get(found.step, found.step)),
        ("topics that wait to be told", waiting or "none"),
        ("how long they wait", f"{found.signals.scheduling_latency_ms:.1f} ms"),
        ("the server is busy", f"{found.signals.busy:.0%} of the time"),
        ("told nothing until it is less", counted(found.held_topics, "topic")),
        ("news waits for more", f"{found.coalesce_ms:.1f} ms"),
        ("synced writes wait for each other", f"{found.commit_ms:.1f} ms"),
    ]
