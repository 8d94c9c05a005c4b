"""The error table: the one place where a code gets its HTTP status (http-api 1).

An error body is `{"error": {"code", "message", "detail"?}}`. Statuses that say "later" carry `Retry-After`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.kernel.errors import Code, Corrupt, Fatal, Rejected, TopicsError
from topics.server.api.message import Answer

STATUS: Final[Mapping[Code, int]] = {
    Code.INVALID_REQUEST: 400,
    Code.BATCH_TOO_LARGE: 400,
    Code.RECORD_TOO_LARGE: 400,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.TOPIC_NOT_FOUND: 404,
    Code.CONSUMER_NOT_FOUND: 404,
    Code.ROUTER_NOT_FOUND: 404,
    Code.SCHEDULE_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.NOT_ACCEPTABLE: 406,
    Code.REQUEST_TIMEOUT: 408,
    Code.TOPIC_EXISTS_INCOMPATIBLE: 409,
    Code.TOPIC_NOT_EMPTY: 409,
    Code.ROUTER_CYCLE: 409,
    Code.NOT_A_QUEUE: 409,
    Code.SEQ_MISMATCH: 409,
    Code.WRONG_TYPE: 409,
    Code.PAYLOAD_TOO_LARGE: 413,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.EXPECTATION_FAILED: 417,
    Code.MISDIRECTED_REQUEST: 421,
    Code.TOPIC_FULL: 422,
    Code.UPGRADE_REQUIRED: 426,
    Code.THROTTLED: 429,
    Code.HEADERS_TOO_LARGE: 431,
    Code.INTERNAL: 500,
    Code.NOT_IMPLEMENTED: 501,
    Code.NOT_READY: 503,
    Code.SHUTTING_DOWN: 503,
    Code.STORAGE_READ_ONLY: 503,
    Code.DISK_LOW: 507,
}

_RETRY_AFTER_S: Final[Mapping[Code, int]] = {
    Code.THROTTLED: 1,
    Code.NOT_READY: 1,
    Code.SHUTTING_DOWN: 5,
    Code.STORAGE_READ_ONLY: 30,
}
_CHALLENGE: Final = b'Bearer realm="topics"'
_INVALID: Final = b', error="invalid_token"'
_encode: Final = msgspec.json.Encoder().encode


def error_answer(error: TopicsError, *, performance: bytes = b"", closes: bool = False) -> Answer:
    """The answer to a refusal or failure. `performance`: that member with its leading comma, or nothing."""
    code = shown_code(error)
    body = b'{"error":%b%b}' % (error_fields(error), performance)
    return Answer(STATUS[code], body, headers=error_headers(code, error.detail), closes=closes)


def shown_code(error: TopicsError) -> Code:
    """The code that a client is told."""
    assert isinstance(error, (Rejected, Corrupt, Fatal)), error
    return Code.INTERNAL if isinstance(error, Corrupt) else error.code


def error_fields(error: TopicsError) -> bytes:
    """What a client is told of a refusal or failure, as a JSON object."""
    fields: dict[str, object] = {"code": shown_code(error).value, "message": error.message}
    if error.detail:
        fields["detail"] = dict(error.detail)
    return _encode(fields)


def error_headers(code: Code, detail: Mapping[str, object]) -> tuple[tuple[bytes, bytes], ...]:
    """`Allow`, `Upgrade`, `WWW-Authenticate` and `Retry-After` where the status asks for them."""
    headers: list[tuple[bytes, bytes]] = []
    if code is Code.UPGRADE_REQUIRED:
        headers += [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    if code is Code.UNAUTHORIZED:  # RFC 6750, 3
        headers.append((b"www-authenticate", _CHALLENGE + (_INVALID if "invalid" in detail else b"")))
    if code is Code.METHOD_NOT_ALLOWED:
        headers.append((b"allow", str(detail["allow"]).encode()))
    if code in _RETRY_AFTER_S:
        headers.append((b"retry-after", b"%d" % _RETRY_AFTER_S[code]))
    return tuple(headers)
