"""What can go wrong, and whose it is.

`Rejected` is the caller's (or a limit): nothing was written. `Corrupt` means bytes at rest are wrong. `Fatal` means a
write or sync failed, so the outcome is unknown until the next recovery. `CannotOpen` is a directory that cannot be
used as a store. A programmer's error is an `assert`. Expected ends (a torn tail, "not ready") are values, not errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum


class Code(StrEnum):
    """Stable error codes (http-api 1). The HTTP status of each is one table in the server."""

    INVALID_REQUEST = "invalid_request"
    BATCH_TOO_LARGE = "batch_too_large"
    RECORD_TOO_LARGE = "record_too_large"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    TOPIC_NOT_FOUND = "topic_not_found"
    CONSUMER_NOT_FOUND = "consumer_not_found"
    ROUTER_NOT_FOUND = "router_not_found"
    SCHEDULE_NOT_FOUND = "schedule_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    REQUEST_TIMEOUT = "request_timeout"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    EXPECTATION_FAILED = "expectation_failed"
    MISDIRECTED_REQUEST = "misdirected_request"
    NOT_IMPLEMENTED = "not_implemented"
    UPGRADE_REQUIRED = "upgrade_required"
    TOPIC_EXISTS_INCOMPATIBLE = "topic_exists_incompatible"
    TOPIC_NOT_EMPTY = "topic_not_empty"
    ROUTER_CYCLE = "router_cycle"
    NOT_A_QUEUE = "not_a_queue"
    SEQ_MISMATCH = "seq_mismatch"
    WRONG_TYPE = "wrong_type"
    TOPIC_FULL = "topic_full"
    THROTTLED = "throttled"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    STORAGE_READ_ONLY = "storage_read_only"
    DISK_LOW = "disk_low"
    INTERNAL = "internal"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"  # of Python's put; on the wire it is `same_body: false`

    def __str__(self) -> str:
        return self.value


class TopicsError(Exception):
    """Root of every error this package raises on purpose. `str()` is one line that says what to do."""

    code: Code = Code.INTERNAL

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.detail: Mapping[str, object] = detail

    def __reduce__(self) -> tuple[Callable[..., Exception], tuple[object, ...], dict[str, object]]:
        """To another process and back with all fields: an exception's own way calls its class with one argument."""
        return _without_init, (type(self), *self.args), vars(self)


def _without_init(kind: type[TopicsError], *args: object) -> TopicsError:
    """An error as `pickle` and `copy` make it: its fields come behind."""
    return kind.__new__(kind, *args)


class Rejected(TopicsError):
    """The caller's fault or a limit. Nothing was written, no seq was assigned (semantics 2.9)."""

    def __init__(self, code: Code, message: str, **detail: object) -> None:
        super().__init__(message, **detail)
        self.code = code


class WrongState(Rejected):
    """The call makes sense, but not on this object as it is: no key to sign with, gc on a fork. Nothing changed."""

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(Code.INVALID_REQUEST, message, **detail)


class Corrupt(TopicsError):
    """Bytes at rest fail their checksum or contradict the log. Names the file, the topic and the seqs."""


class Fatal(TopicsError):
    """A write or sync failed: the shard is read-only until restart and the outcome is unknown (storage 3)."""

    code = Code.STORAGE_READ_ONLY


class Unusable(Enum):
    """Why a directory cannot be opened."""

    FOREIGN = "foreign"
    UNWRITABLE = "unwritable"
    NEWER_FORMAT = "newer_format"
    IN_USE = "in_use"
    NOT_A_DIRECTORY = "not_a_directory"
    MISSING = "missing"
    NO_SPACE = "no_space"


class CannotOpen(TopicsError):
    """The directory cannot be used as a store; `reason` says why, the message says what to do."""

    def __init__(self, reason: Unusable, message: str, **detail: object) -> None:
        super().__init__(message, **detail)
        self.reason = reason


def not_a_queue(topic: str) -> Rejected:
    """What a log answers to whoever asks for its jobs."""
    return Rejected(Code.NOT_A_QUEUE, f"topic {topic!r} is a log; only a queue has jobs", topic=topic)


def invalid(field: str, message: str, **detail: object) -> Rejected:
    """A 400 that names its field."""
    return Rejected(Code.INVALID_REQUEST, f"{field}: {message}", field=field, **detail)
