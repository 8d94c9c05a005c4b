"""What an operator is told whose cold tier is in doubt: what is the matter, what goes on, and what to do (decision 26).

In none of these cases is anything lost. Records are read, where the place is not surely another store's, and nothing is
put there or removed until the operator says who goes on.
"""

from __future__ import annotations

from typing import Final

from topics.host.cold.segment_stores import OWNER_FILE

OWN_NOTE: Final = "COLD"
ADOPT: Final = "topics adopt-cold"
CHOICE: Final = (
    f"Only one copy may: if this is the one that goes on, stop it, run `{ADOPT}`, start it again; else run it without "
    "cold_dir, or make a backup of it with --with-cold, and restore that"
)


def told_copy(where: str) -> str:
    """To a copy of a directory."""
    return (
        f"this directory was copied or moved (its LOCK is another file, or gone), or restored from a backup, so the "
        f"cold segments in {where} are read, and nothing is put there or removed. {CHOICE}"
    )


def told_taken(where: str) -> str:
    """To a copy while another one changes the tier."""
    return (
        f"another copy of this directory has gone on with the cold segments in {where}: they are read, and "
        f"nothing is put there or removed. {CHOICE}"
    )


def told_no_note(where: str, *, damaged: bool = False) -> str:
    """To a directory without a note that can be read."""
    what = (
        f"{OWN_NOTE} of this directory is damaged"
        if damaged
        else f"this directory has no {OWN_NOTE}: it was removed, or an older backup was restored"
    )
    return f"{what}. So the cold segments in {where} are read, and nothing is put there or removed. {CHOICE}"


def told_owner(where: str, *, damaged: bool) -> str:
    """To whoever named a place without a note that can be read."""
    what = "is damaged" if damaged else "is not there"
    return (
        f"{OWNER_FILE} in {where} {what}. So the segments there are read, and nothing is put there or removed: if it "
        f"is the place, stop the store, run `{ADOPT}`, start it again"
    )


def told_foreign(where: str) -> str:
    """To whoever named the place of another store."""
    return (
        f"{where} is another store's ({OWNER_FILE} there and {OWN_NOTE} in the directory differ): "
        "name the cold directory of this one with --cold-dir or TOPICS_COLD_DIR"
    )


def told_occupied(where: str) -> str:
    """To a store that was given the place of another one."""
    return f"{where} holds the cold segments of another store; give each store a cold directory of its own"


def told_elsewhere(where: str, expected: int) -> str:
    """To a store whose segments are not in the place that it was given."""
    what = (
        f"{expected} segments of this store are in a cold tier"
        if expected > 1
        else "a segment of this store is in a cold tier"
    )
    return (
        f"{what}, and {where} has no {OWNER_FILE}: it is not mounted, or not the place: see to it, start again. If it "
        f"is the place and {OWNER_FILE} was removed, stop the store and run `{ADOPT}`"
    )
