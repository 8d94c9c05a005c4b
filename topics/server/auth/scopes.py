"""What a row of the tables says that it needs, and which names it speaks of (http-api 2). Pure.

A row has `scope`, one of

    "probe"         anybody, unless TOPICS_PROBE_AUTH asks for a key
    "any"           any valid key
    "read" …        a key with this scope, or with all of several: "read+write"

and `names`, which says what becomes of a key's prefixes there.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

PROBE: Final = "probe"
ANY_KEY: Final = "any"


class Scope(StrEnum):
    """What a key may do. None implies another."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    ADMIN = "admin"


Scopes = frozenset[Scope]
ALL_SCOPES: Final = frozenset(Scope)


class Names(Enum):
    """Which names a row speaks of, besides those in its `body_names`.

    TOPIC: those of its path, of a message its `topic`; they are checked before anything else is looked at. SEEN: what
    it tells is left to what the key may see, and its handler leaves out the rest. SERVER: the server as a whole, so
    it takes a key without prefixes. NONE: no name, or in its body alone.
    """

    TOPIC = "topic"
    SEEN = "seen"
    SERVER = "server"
    NONE = "none"


def needed(scope: str) -> Scopes:
    """The scopes that a row's `scope` asks for. Raises ValueError for what is none."""
    return frozenset() if scope in (PROBE, ANY_KEY) else frozenset(Scope(one) for one in scope.split("+"))
