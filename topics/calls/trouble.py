"""What can go wrong over HTTP: no answer at all, an answer that is none of ours, and errors the server answered.

An error body becomes what the embedded store would raise: `Rejected` with its code and detail, `Corrupt` for a read
of damaged records. Only where a write was answered 500 or "storage_read_only" is it `Fatal`, because then the outcome
is unknown (semantics 2).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from topics.kernel.errors import Code, Corrupt, Fatal, Rejected, TopicsError

SHOWN_MAX: Final = 200
KEY_GIVEN: Final = "give it in TOPICS_API_KEY, or in a file that --api-key-file or api_key_file= names"


class Trouble(StrEnum):
    """Why there is no answer."""

    REFUSED = "refused"
    NAME = "name"
    TLS = "tls"
    TIMEOUT = "timeout"
    LOST = "lost"
    NOT_TOPICS = "not_topics"


class Unreachable(TopicsError):
    """No answer from the server. `reason` says why, the message names the URL and what to do.

    `sent` is false if the request never left; if it is true, whether the server carried it out is not known.
    """

    def __init__(self, reason: Trouble, url: str, message: str, *, sent: bool, **detail: object) -> None:
        super().__init__(f"{url}: {message}", url=url, **detail)
        self.reason = reason
        self.url = url
        self.sent = sent


WORDS: Final = {
    Trouble.REFUSED: "nobody listens there; start a server (topics serve), or check host and port",
    Trouble.NAME: "there is no host of that name; check the URL",
    Trouble.TIMEOUT: "no answer in time; check that the server is up, and the way to it",
    Trouble.LOST: "the connection was lost before the answer came",
}


def unanswered(error: TopicsError, url: str) -> TopicsError:
    """The end of a write that may have arrived once: what came later ("not now") says nothing about that attempt."""
    if not isinstance(error, Rejected):
        return error
    return Unreachable(Trouble.LOST, url, f"{WORDS[Trouble.LOST]}, and then: {error.message}", sent=True)


def not_topics(url: str, why: str) -> Unreachable:
    """An answer that no server of ours gives."""
    return Unreachable(
        Trouble.NOT_TOPICS, url, f"this is no topics server: {shortened(why)}; check the URL", sent=True
    )


_PASSES: Final = frozenset({Code.THROTTLED, Code.NOT_READY, Code.DISK_LOW, Code.REQUEST_TIMEOUT})
_RESTARTS: Final = frozenset({Code.SHUTTING_DOWN, Code.STORAGE_READ_ONLY})


def passes(error: TopicsError, *, is_remote: bool) -> bool:
    """Whether the same call may do later. A server is started again by somebody; a store in this process is not."""
    if isinstance(error, Unreachable):
        return error.reason not in (Trouble.TLS, Trouble.NOT_TOPICS)
    if not isinstance(error, Rejected):
        return False
    return error.code in _PASSES or (is_remote and error.code in _RESTARTS)


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] = {}


class _Body(msgspec.Struct):
    error: _Error


_decode: Final = msgspec.json.Decoder(_Body).decode


def answered(status: int, body: bytes, *, url: str, writes: bool) -> TopicsError:
    """The error of an answer that is none of 2xx."""
    if 300 <= status < 400:
        return not_topics(url, f"it redirects (status {status}), and redirects are not followed")
    try:
        error = _decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = body[:80].decode(errors="replace")
        return not_topics(url, f"it answered {status} with {said!r}")
    return error_of_answer(error.code, error.message, error.detail, status=status, writes=writes)


def error_of_answer(
    said: str, message: str, detail: dict[str, Any], *, status: int = 400, writes: bool = False
) -> TopicsError:
    """What a server's error is here. `status`: with which it came; a WebSocket has none."""
    code = _code(said, status)
    detail = detail if code == said else detail | {"server_code": said}
    if code is Code.UNAUTHORIZED:
        message = f"{message}; {KEY_GIVEN}"
    if writes and code in (Code.INTERNAL, Code.STORAGE_READ_ONLY):
        fatal = Fatal(message, **_free(detail))
        fatal.code = code
        return fatal
    if code is Code.INTERNAL and "files" in detail:
        return Corrupt(message, **_free(detail))
    return Rejected(code, message, **_free(detail))


def _code(text: str, status: int) -> Code:
    """The code; of one that only newer servers know, the nearest by its status."""
    try:
        return Code(text)
    except ValueError:
        pass
    if status == 401:
        return Code.UNAUTHORIZED
    if status == 403:
        return Code.FORBIDDEN
    if status == 404:
        return Code.NOT_FOUND
    return Code.INVALID_REQUEST if status < 500 else Code.INTERNAL


def _free(detail: dict[str, Any]) -> dict[str, Any]:
    """Without names that the exception's own arguments have."""
    return {name: value for name, value in detail.items() if name not in ("self", "code", "message")}


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else line[:SHOWN_MAX] + "…"
