"""`adopt-cold`: of several copies of a data directory, this one goes on with the cold tier (decision 26)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from topics.cli.commands.directory.check import cold_place, root_of, why_unseen
from topics.cli.core.failure import Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.paths import PathName
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line


@click.command("adopt-cold")
@click.argument("directory", required=False, type=PathName())
@json_option
@common_options
@pass_invocation
def adopt_cold(invocation: Invocation, directory: Path | None, as_json: bool) -> None:
    """Let a copied or moved directory go on with its cold tier.

    A copy only reads the cold segments of its original. Where the original is gone, or is not to go on, this makes the
    copy their owner: it moves segments there, and removes what it does not need. Every other copy only reads from then
    on, and what it had moved there since they parted is removed. Nobody may have the directory open.

    Where COLD in the directory or OWNER in the cold tier is damaged or gone, it makes both notes anew if the segments
    there have the names and sizes that the directory knows. Those of another store are refused.

    \b
      topics adopt-cold ./data --cold-dir /mnt/cold
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.host.cold.adopting import adopt_tier
    from topics.host.system.entropy import SystemEntropy
    from topics.store.directory import ClaimedDirectory

    root = root_of(invocation, directory)
    store, _ = cold_place(invocation)
    if store is None:
        raise Failed(f"there is no cold tier to adopt: {why_unseen(invocation)}")
    try:
        held = ClaimedDirectory.claim(root, create=False)
        try:
            same_boot = not held.lock.machine_restarted
            wrong = adopt_tier(held.disk, store, SystemEntropy(), where=str(root), same_boot=same_boot)
            held.lock.remember_place()
        finally:
            held.release()
    finally:
        store.close()
    if as_json:
        adopted = {"store": str(root), "cold": store.where, "damaged_segments": wrong}
        sys.stdout.buffer.write(json_line(adopted))
    else:
        say(
            f"{root} goes on with the cold tier in {store.where}; other copies of it only read there",
            "topics: ",
        )
    if wrong:
        are, them = ("is", "it") if wrong == 1 else ("are", "them")
        say(f"{counted(wrong, 'cold segment')} {are} cut off or gone: topics fsck names {them}", "topics: ")
