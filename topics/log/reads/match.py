"""The match language of deletes and read filters (semantics 5): `["tag","Eq","x"]`, `["tag","Glob","x*"]`, `"x"`.

Untagged records never match. It is spelled the same over HTTP, in Python and on the command line; the latter two refuse
a bare tag with a `*`, which is too easily meant for a Glob.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

import attrs
import msgspec

from topics.kernel.checks import text_bytes
from topics.kernel.errors import invalid
from topics.log.tags import TagIndex

T = TypeVar("T")


class Operator(StrEnum):
    EQ = "Eq"
    GLOB = "Glob"


@attrs.frozen
class Match:
    """`value` is the tag itself, or the prefix before the `*` of a Glob (`b""` = every tagged record)."""

    operator: Operator
    value: bytes

    def accepts(self, tag: bytes) -> bool:
        if not tag:
            return False
        return tag == self.value if self.operator is Operator.EQ else tag.startswith(self.value)

    def numbers(self, tags: TagIndex) -> list[int]:
        """Numbers of the tags alive that match."""
        if self.operator is Operator.GLOB:
            return tags.labels.numbers_with_prefix(self.value)
        number = tags.labels.number(self.value)
        return [number] if number else []

    def wire(self) -> list[str]:
        """The tuple as clients write it."""
        text = self.value.decode()
        return ["tag", self.operator.value, text + "*" if self.operator is Operator.GLOB else text]


def unambiguous(given: T, *, field: str = "match") -> T:
    """A match as Python and the command line take it: as on the wire, but that a bare tag has no `*`.

    On the wire it is a tag like any other. Who writes one by hand may mean either, and one way deletes more.

    Raises:
        Rejected: invalid_request, with both ways to write it.
    """
    if isinstance(given, str) and "*" in given:
        prefix = given[: given.index("*")]
        every = f"every tag that begins with {prefix!r:.80}" if prefix else "every tag"
        raise invalid(
            field,
            f'{given!r:.80} may mean this tag or all that begin so: write ["tag", "Glob", {_quoted(prefix + "*")}] for'
            f' {every}, ["tag", "Eq", {_quoted(given)}] for this very tag',
        )
    return given


def _quoted(text: str) -> str:
    """As JSON, for a message."""
    return msgspec.json.encode(text[:80].encode(errors="replace").decode()).decode()


def parse_match(given: object, *, tag_bytes_max: int, field: str = "match") -> Match:
    """A match from JSON values.

    Raises:
        Rejected: invalid_request for a bad tuple or a Glob without exactly one `*`, at its end.
    """
    if isinstance(given, str):
        return Match(Operator.EQ, text_bytes(field, given, bytes_max=tag_bytes_max))
    if not isinstance(given, Sequence) or isinstance(given, bytes) or len(given) != 3 or given[0] != "tag":
        raise invalid(field, 'must be a tag, or ["tag", "Eq", TAG], or ["tag", "Glob", PREFIX + "*"]')
    if given[1] == Operator.EQ.value:
        return Match(Operator.EQ, text_bytes(field, given[2], bytes_max=tag_bytes_max))
    if given[1] != Operator.GLOB.value:
        raise invalid(field, f'the operator is "Eq" or "Glob", not {given[1]!r:.40}')
    pattern = text_bytes(field, given[2], bytes_max=tag_bytes_max + 1)
    if pattern.count(b"*") != 1 or not pattern.endswith(b"*"):
        raise invalid(field, f"a Glob has exactly one `*`, at its end, not {given[2]!r:.80}")
    return Match(Operator.GLOB, pattern[:-1])
