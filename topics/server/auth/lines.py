"""A key as it is written, in a line of the key file or in TOPICS_API_KEYS (http-api 2, decision 72). Pure.

    KEY                          all scopes, all names
    KEY:SCOPES                   read+write, rw, r+d …
    KEY:SCOPES:PREFIXES          orders.|audit.
    KEY::PREFIXES
    sha256:HEX                   a key by its digest, with scopes and prefixes as above

In the file a name may stand behind a line (`… # dashboards`), and a line may be empty or a comment. What is wrong is
told by its place and its kind, never by what was written there: that may be a key, or a part of one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from topics.kernel.limits import API_KEY_CHARS_MAX, API_KEYS_MAX
from topics.server.auth.scopes import ALL_SCOPES, Scope, Scopes

ANY_NAME: Final = ("",)  # every name begins so
NAME_CHARS_MAX: Final = 128
_DIGEST: Final = "sha256"
_KEY: Final = re.compile(r"(?!#)[!-+\--9;-~]+")  # visible ASCII without comma and colon
_HEX: Final = re.compile(r"[0-9A-Fa-f]{64}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_LINE: Final = re.compile(r"(\S+)(?:\s+#\s*(.*))?")
_SHORT: Final = {
    **{scope.value: frozenset({scope}) for scope in Scope},
    **{scope.value[0]: frozenset({scope}) for scope in Scope},
    "rw": frozenset({Scope.READ, Scope.WRITE}),
}


class Malformed(ValueError):
    """A key that is written wrongly: at which place, and how. No part of it is in the message."""


@attrs.frozen(kw_only=True)
class KeyLine:
    """A key without the key. `prefixes`: `ANY_NAME` if it has none. `name`: by which people tell it from others."""

    digest: bytes
    scopes: Scopes = ALL_SCOPES
    prefixes: tuple[str, ...] = ANY_NAME
    name: str = ""

    @property
    def id(self) -> str:
        """Enough of the digest to say which one is meant."""
        return self.digest.hex()[:12]

    @property
    def grants(self) -> tuple[Scopes, frozenset[str]]:
        """What it may, however it is spelled."""
        return self.scopes, frozenset(self.prefixes)

    def fields(self) -> dict[str, Any]:
        """What may be said of it, as JSON values. `prefixes`: none for any name."""
        return {
            "id": self.id,
            "name": self.name,
            "scopes": [scope.value for scope in Scope if scope in self.scopes],
            "prefixes": [] if self.prefixes == ANY_NAME else list(self.prefixes),
        }

    def __str__(self) -> str:
        """As a line of the file: by its digest."""
        scopes = "" if self.scopes == ALL_SCOPES else "+".join(one for one in Scope if one in self.scopes)
        prefixes = "|".join(self.prefixes)
        parts = [
            _DIGEST,
            self.digest.hex(),
            *([scopes] if scopes or prefixes else []),
            *filter(None, [prefixes]),
        ]
        return ":".join(parts) + (f" # {self.name}" if self.name else "")


def digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def parse_keys(text: str) -> tuple[KeyLine, ...]:
    """Those of TOPICS_API_KEYS, separated by commas.

    Raises:
        Malformed: which of them, and how; or there is none.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise Malformed("holds no key: unset it, if nobody is to be asked for one")
    return _distinct((f"key {i}", parse_key(part, where=f"key {i}")) for i, part in enumerate(parts, 1))


def parse_lines(text: str) -> tuple[KeyLine, ...]:
    """Those of a key file; none is fine here.

    Raises:
        Malformed: which line, and how.
    """
    return _distinct(
        (f"line {i}", parse_line(line, where=f"line {i}"))
        for i, line in enumerate(text.split("\n"), 1)
        if not is_comment(line)
    )


def is_comment(line: str) -> bool:
    """Whether a line of the file holds no key."""
    stripped = line.strip()
    return not stripped or stripped.startswith("#")


def parse_line(line: str, *, where: str) -> KeyLine:
    """A line of the file that is no comment. Raises `Malformed`."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise Malformed(f"{where}: white space: a key has none, and a name stands behind ` # `")
    name = (found[2] or "").strip()
    check_name(name, where=where)
    return attrs.evolve(parse_key(found[1], where=where), name=name)


def check_name(name: str, *, where: str) -> None:
    """A key's name. Raises `Malformed`."""
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise Malformed(f"{where}: its name is printable text, {NAME_CHARS_MAX} characters at most")


def parse_key(text: str, *, where: str) -> KeyLine:
    """One key in one of its forms. Raises `Malformed`."""
    key, _, grants = text.partition(":")
    if key == _DIGEST:
        key, _, grants = grants.partition(":")
        if _HEX.fullmatch(key) is None:
            raise Malformed(f"{where}: behind {_DIGEST}: come 64 hex digits")
        digest = bytes.fromhex(key)
    else:
        _check_key(key, where)
        digest = digest_of(key)
    scopes, _, prefixes = grants.partition(":")
    return KeyLine(
        digest=digest,
        scopes=parse_scopes(scopes, where=f"{where}: the scopes, behind the key and a colon")
        if scopes
        else ALL_SCOPES,
        prefixes=parse_prefixes(prefixes, where=f"{where}: the prefixes, behind the scopes and a colon")
        if prefixes
        else ANY_NAME,
    )


def _check_key(key: str, where: str) -> None:
    if not key:
        raise Malformed(f"{where}: the key is missing")
    if len(key) > API_KEY_CHARS_MAX:
        raise Malformed(f"{where}: the key has more than {API_KEY_CHARS_MAX} characters")
    if _KEY.fullmatch(key) is None:
        raise Malformed(
            f"{where}: the key: visible ASCII characters, none of them a comma or a colon, and the first is no #"
        )


def parse_scopes(text: str, *, where: str) -> Scopes:
    """What stands for scopes in a key. Raises `Malformed`."""
    parts = text.split("+")
    if not all(part in _SHORT for part in parts):
        what = "read, write, delete, admin (r, w, d, a, rw), joined by +"
        raise Malformed(f"{where}: {what}")
    return frozenset[Scope]().union(*(_SHORT[part] for part in parts))


def parse_prefixes(text: str, *, where: str) -> tuple[str, ...]:
    """What stands for prefixes in a key. Raises `Malformed`."""
    parts = text.split("|")
    if not all(_PREFIX.fullmatch(part) for part in parts):
        what = "beginnings of names, joined by |, none of them empty"
        raise Malformed(f"{where}: {what}")
    return tuple(dict.fromkeys(parts))


def _distinct(found: Iterable[tuple[str, KeyLine]]) -> tuple[KeyLine, ...]:
    places: dict[bytes, str] = {}
    lines: list[KeyLine] = []
    for where, line in found:
        if line.digest in places:
            raise Malformed(f"{where}: the same key as in {places[line.digest]}")
        places[line.digest] = where
        lines.append(line)
        if len(lines) > API_KEYS_MAX:
            raise Malformed(f"{where}: more than {API_KEYS_MAX} keys")
    return tuple(lines)
