"""The keys of a server as they are now (http-api 2 and 11).

Theory. A `Key` is who is asking. It is one object for as long as it means the same: whoever holds it (a head that came
again, a connection, a session of a watch) asks it what it may and whether it was revoked, and nothing is looked up
twice. A reload keeps the object of a key whose scopes and prefixes are as they were; any other key that was there is
revoked, a changed one too (decision 72): then `revoked` is true for good, and whoever is bound to it is told.

With auth off there is one key that everybody has, which may do everything and has no caps, so that nobody asks whether
auth is on. Digests alone are kept. A key is compared with all of them, each in constant time, so that the time that an
answer takes says nothing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Sequence
from hmac import compare_digest
from typing import Final

import attrs

from topics.kernel.errors import Code, Rejected
from topics.server.auth.lines import ANY_NAME, KeyLine
from topics.server.auth.scopes import ALL_SCOPES, Scopes

STREAMS_MAX: Final = 1000
REQUESTS_MAX: Final = 1000
SESSIONS_MAX: Final = 1000
REVOKED_GRACE_S: Final = 0.25  # for answers under way; all is over within a second, on a busy machine, too


@attrs.frozen(kw_only=True)
class KeyCaps:
    """Bounds of each key; 0 for none. `streams`: streams of events and WebSockets; `requests`: those under way;
    `sessions`: watches that have a stream or may get one.
    """

    streams: int = STREAMS_MAX
    requests: int = REQUESTS_MAX
    sessions: int = SESSIONS_MAX


class Key:
    """Who is asking. `label`: the key's name, or else its id, as `topics key ls` has them; "" without keys. `revoked`:
    he may nothing any more, whatever he was let in with.
    """

    __slots__ = (
        "_ends",
        "_requests_max",
        "_sessions_max",
        "_streams_max",
        "label",
        "prefixes",
        "requests",
        "revoked",
        "scopes",
        "sessions",
        "streams",
        "used",
    )

    def __init__(self, scopes: Scopes, prefixes: tuple[str, ...], caps: KeyCaps) -> None:
        self.label = ""
        self.scopes = scopes
        self.prefixes = prefixes
        self.revoked = False
        self.requests = 0  # under way
        self.streams = 0
        self.sessions = 0
        self.used: float | None = None  # when its last request began, by time.perf_counter
        self._requests_max = caps.requests or sys.maxsize
        self._streams_max = caps.streams or sys.maxsize
        self._sessions_max = caps.sessions or sys.maxsize
        self._ends: dict[Callable[[], None], None] = {}

    # What it may.

    def check_scopes(self, needs: Scopes, what: str) -> None:
        """Raises `Rejected(forbidden)`. `what`: for whom they are needed."""
        if not needs <= self.scopes:
            missing = "+".join(sorted(needs - self.scopes))
            raise Rejected(
                Code.FORBIDDEN,
                f"key: {what} needs the scope {missing}, which it has not{self._which}",
                scope=missing,
            )

    @property
    def _which(self) -> str:
        return f" (key {self.label!r})" if self.label else ""

    def sees(self, name: str) -> bool:
        """Whether the name is within its prefixes."""
        return name.startswith(self.prefixes)

    def check_name(self, name: str, *, field: str = "topic") -> None:
        """Raises `Rejected(forbidden)` for a name outside its prefixes, whether or not anything has it."""
        if not name.startswith(self.prefixes):
            raise Rejected(
                Code.FORBIDDEN,
                f"{field}: {name[:64]!r} does not begin with a prefix of this key{self._which}",
                field=field,
            )

    def check_unlimited(self, what: str) -> None:
        """Raises `Rejected(forbidden)` if it has prefixes."""
        if self.prefixes != ANY_NAME:
            raise Rejected(
                Code.FORBIDDEN,
                f"key: {what} is about the whole server, and this key has prefixes{self._which}",
            )

    def ranges(self, prefix: str) -> list[str]:
        """The prefixes, ascending, none within another, that the names it sees have which begin with `prefix`."""
        found: list[str] = []
        for own in sorted(self.prefixes):
            one = own if own.startswith(prefix) else prefix if prefix.startswith(own) else None
            if one is not None and not one.startswith(tuple(found)):
                found.append(one)
        return found

    # What it has under way.

    def begin_request(self, now_s: float) -> None:
        """Take one off `requests` when it has ended. Raises `Rejected(throttled)`."""
        if self.requests >= self._requests_max:
            raise _too_many("requests", self._requests_max)
        self.requests += 1
        self.used = now_s

    def begin_stream(self) -> None:
        """A stream of events, or a WebSocket. Pair with `end_stream`. Raises `Rejected(throttled)`."""
        if self.streams >= self._streams_max:
            raise _too_many("streams", self._streams_max)
        self.streams += 1

    def end_stream(self) -> None:
        self.streams -= 1
        assert self.streams >= 0

    def begin_session(self) -> None:
        """A watch that has a stream or may get one. Pair with `end_session`. Raises `Rejected(throttled)`."""
        if self.sessions >= self._sessions_max:
            raise _too_many("watch_sessions", self._sessions_max)
        self.sessions += 1

    def end_session(self) -> None:
        self.sessions -= 1
        assert self.sessions >= 0

    # Its end.

    def bind(self, end: Callable[[], None]) -> None:
        """Call this when it is revoked; now, if it is. Pair with `unbind`."""
        if self.revoked:
            end()
        else:
            self._ends[end] = None

    def unbind(self, end: Callable[[], None]) -> None:
        """Whatever was bound to it is over, or was told."""
        self._ends.pop(end, None)

    def revoke(self) -> None:
        self.revoked = True
        while self._ends:
            self._ends.popitem()[0]()


def _too_many(what: str, most: int) -> Rejected:
    return Rejected(
        Code.THROTTLED,
        f"key: {most} {what} of this key are under way, the limit of each; end some, or use another key",
        limit=f"{what}_per_key",
        max=most,
    )


class Keys:
    """`lines`: None for auth off. `anybody`: the key of everybody then; `stranger`: of who has none and needs none."""

    def __init__(self, lines: Iterable[KeyLine] | None = None, caps: KeyCaps | None = None) -> None:
        none = KeyCaps(streams=0, requests=0, sessions=0)
        self.is_on = lines is not None
        self.anybody: Final = Key(ALL_SCOPES, ANY_NAME, none)
        self.stranger: Final = Key(frozenset(), (), none)
        self._caps = caps or KeyCaps()
        self._known: dict[bytes, tuple[KeyLine, Key]] = {}
        self.replace(tuple(lines or ()))

    def __len__(self) -> int:
        return len(self._known)

    def find(self, token: bytes) -> Key | None:
        """The key, if it is one. Looks at all of them, whichever it is."""
        digest = hashlib.sha256(token).digest()
        found = None
        for known, (_, key) in self._known.items():
            if compare_digest(known, digest):
                found = key
        return found

    def listed(self) -> list[tuple[KeyLine, Key]]:
        """All of them, in the order of their lines."""
        return list(self._known.values())

    def replace(self, lines: Sequence[KeyLine]) -> int:
        """These from now on; how many were revoked. Not for auth that is off."""
        before = self._known
        self._known = {}
        for line in lines:
            known = before.get(line.digest)
            if known is not None and known[0].grants == line.grants:
                del before[line.digest]
                key = known[1]
            else:
                key = Key(line.scopes, line.prefixes, self._caps)
            key.label = line.name or line.id
            self._known[line.digest] = line, key
        for _, key in before.values():
            key.revoke()
        return len(before)
