"""A topic's configuration: a class of fields, from which defaults and the echo follow, and a parser each (semantics 3).

Parsing starts from the defaults every time; who merges takes the fields that were given from it. An unknown field or a
wrong type is refused; a number out of range is clamped and echoed clamped. The queue fields are accepted on every
topic and inert on a log (queues 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final

import attrs
import msgspec

from topics.kernel.checks import clamped, flag, json_kind, whole_number
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import (
    DEDUP_ENTRIES_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    MIB,
    TTL_MS_MAX,
    U32_MAX,
    U64_MAX,
    WINDOW_MS_MAX,
)

CAP_MAX: Final = 2**63 - 1
CONFIGS_KEPT: Final = 1024  # parsed, of those that a log or a snapshot has


class TopicType(StrEnum):
    LOG = "log"
    QUEUE = "queue"


class Durability(StrEnum):
    """What a write waits for (semantics 2.5, seed 2.3)."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class Discard(StrEnum):
    OLD = "old"
    REJECT = "reject"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


@attrs.frozen(kw_only=True)
class RetryBackoff:
    base_ms: int
    factor: float
    max_ms: int


@attrs.frozen(kw_only=True)
class RateLimit:
    """So many jobs handed out in so many milliseconds."""

    count: int
    per_ms: int


@attrs.frozen(kw_only=True)
class TopicConfig:
    """The full config of one topic, every value already checked and clamped."""

    type: TopicType = TopicType.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durability: Durability = Durability.DISK
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedup_window_ms: int = 120_000
    dedup_max_entries: int = 100_000
    dedupe_node: bool = True
    compression: Compression = Compression.NONE
    compression_min_bytes: int = 1024
    max_record_bytes: int = 1 * MIB
    replicated: bool = False
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    retry_backoff: RetryBackoff | None = None
    leases_durable: bool = False
    starvation_ms: int = 30_000
    starvation_share: int = 10
    max_in_flight: int = 0
    max_in_flight_per_key: int = 0
    rate_limit: RateLimit | None = None
    require_lease_id: bool = False

    @property
    def durable(self) -> bool:
        """The alias: true iff the class is `fsync`."""
        return self.durability is Durability.FSYNC

    def dead_letter_of(self, name: str) -> str | None:
        """Where a queue of this name sends its dead letters; None: nowhere. Earlier builds let it name itself."""
        return self.dead_letter if self.type is TopicType.QUEUE and self.dead_letter != name else None

    def deliveries_max_of(self, name: str) -> int:
        """After so many deliveries a job of a queue of this name is dead; 0: never, as without `dead_letter`."""
        most = self.max_deliveries
        return most if most and self.dead_letter_of(name) is not None else 0

    def echo(self) -> dict[str, Any]:
        """The config as JSON values, every field present, in the order of the table."""
        out: dict[str, Any] = {name: getattr(self, name) for name in _PARSERS}
        for name in _CHOICES:
            out[name] = str(out[name])  # not the member of an enum
        for name in _OBJECTS:
            if out[name] is not None:
                out[name] = attrs.asdict(out[name])
        return out


def parse_config(given: Mapping[str, Any], *, record_bytes_max: int = 1 * MIB) -> TopicConfig:
    """A config from JSON values.

    Raises:
        Rejected: invalid_request, naming the field: unknown, wrong type, or a value outside its set.
    """
    if not isinstance(given, Mapping):
        raise invalid("config", f"must be an object, not {json_kind(given)}")
    values: dict[str, Any] = {"max_record_bytes": record_bytes_max}
    for name, value in given.items():
        parse = _PARSERS.get(name)
        if parse is None:
            raise unknown_field(name)
        values[name] = parse(f"config.{name}", value)
    durable = values.pop("durable", None)
    if "durability" not in values and durable is not None:
        values["durability"] = Durability.FSYNC if durable else Durability.DISK
    values.setdefault("dedup_window_ms", values.get("idempotency_window_ms", 120_000))
    values["max_record_bytes"] = min(values["max_record_bytes"], record_bytes_max)
    return TopicConfig(**values)


def unknown_field(name: str) -> Rejected:
    if name == "config":
        return invalid(
            "config.config", "unknown field: the fields stand at the top, with no config around them"
        )
    return invalid(f"config.{name}", f"unknown field; known are {', '.join(FIELDS)}")


def given_fields(given: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a `TopicConfig` that a config as JSON values sets: an alias sets the field it stands for."""
    return frozenset("durability" if name == "durable" else name for name in given)


def stored_config(given: Mapping[str, Any]) -> TopicConfig:
    """The config that a log or a snapshot has. Most topics have one of a few, so it is parsed once and shared.

    Raises:
        Rejected: as `parse_config`.
    """
    return _stored_config(msgspec.json.encode(given))


@lru_cache(maxsize=CONFIGS_KEPT)
def _stored_config(encoded: bytes) -> TopicConfig:
    return parse_config(msgspec.json.decode(encoded), record_bytes_max=U64_MAX)


def _kind_and_value(value: object) -> str:
    """Of a value that is refused; which it was where that may be a slip: `a string ('1O0')`."""
    return f"{json_kind(value)} ({value!r:.40})" if isinstance(value, (str, float)) else json_kind(value)


def _number(low: int, high: int) -> Callable[[str, object], int]:
    assert 0 <= low < high

    def parse(field: str, value: object) -> int:
        if isinstance(value, (str, float)):
            raise invalid(field, f"must be a whole number, not {_kind_and_value(value)}")
        return clamped(field, value, low=low, high=high)

    return parse


def _flag(field: str, value: object) -> bool:
    if isinstance(value, (str, float)):
        raise invalid(field, f"must be true or false, not {_kind_and_value(value)}")
    return flag(field, value)


def _choice(options: type[Enum]) -> Callable[[str, object], Enum]:
    def parse(field: str, value: object) -> Enum:
        for option in options:
            if value == option.value and isinstance(value, str):
                return option
        allowed = ", ".join(repr(o.value) for o in options)
        raise invalid(field, f"must be one of {allowed}, not {value!r:.80}")

    return parse


def _priority(field: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(
            field, f"must be null or a whole number from -1000 to 1000, not {_kind_and_value(value)}"
        )
    return min(max(value, -1000), 1000)


def _topic_or_null(field: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(field, f"must be null or a topic name, not {_kind_and_value(value)}")
    return check_topic_name(value, field=field)


_BACKOFF_FORM: Final = '{"base_ms": 5000, "factor": 2, "max_ms": 60000}'
_RATE_FORM: Final = '{"count": 10, "per_ms": 1000}'


def _backoff(field: str, value: object) -> RetryBackoff | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"base_ms", "factor", "max_ms"}:
        raise invalid(
            field, f"must be null or an object of base_ms, factor and max_ms, as in {_BACKOFF_FORM}"
        )
    factor = value["factor"]
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or math.isnan(factor):
        raise invalid(f"{field}.factor", f"must be a number, not {factor!r:.80}")
    base_ms = min(whole_number(f"{field}.base_ms", value["base_ms"]), WINDOW_MS_MAX)
    max_ms = min(whole_number(f"{field}.max_ms", value["max_ms"]), WINDOW_MS_MAX)
    return RetryBackoff(base_ms=base_ms, factor=float(min(max(factor, 1), U32_MAX)), max_ms=max_ms)


def _rate_limit(field: str, value: object) -> RateLimit | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"count", "per_ms"}:
        raise invalid(field, f"must be null or an object of count and per_ms, as in {_RATE_FORM}")
    return RateLimit(
        count=clamped(f"{field}.count", value["count"], low=1, high=U32_MAX),
        per_ms=clamped(f"{field}.per_ms", value["per_ms"], low=1, high=WINDOW_MS_MAX),
    )


_PARSERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "type": _choice(TopicType),
    "ttl_ms": _number(0, TTL_MS_MAX),
    "cap_records": _number(0, CAP_MAX),
    "cap_bytes": _number(0, CAP_MAX),
    "discard": _choice(Discard),
    "durability": _choice(Durability),
    "durable": _flag,
    "priority": _priority,
    "auto_priority": _flag,
    "auto_create": _flag,
    "idempotency_window_ms": _number(0, WINDOW_MS_MAX),
    "dedup_window_ms": _number(0, WINDOW_MS_MAX),
    "dedup_max_entries": _number(0, DEDUP_ENTRIES_MAX),
    "dedupe_node": _flag,
    "compression": _choice(Compression),
    "compression_min_bytes": _number(0, CAP_MAX),
    "max_record_bytes": _number(1, CAP_MAX),
    "replicated": _flag,
    "lease_ms": _number(LEASE_MS_MIN, LEASE_MS_MAX),
    "claim_jitter_ms": _number(0, 5000),
    "max_deliveries": _number(0, U32_MAX),
    "dead_letter": _topic_or_null,
    "retry_backoff": _backoff,
    "leases_durable": _flag,
    "starvation_ms": _number(0, WINDOW_MS_MAX),
    "starvation_share": _number(1, 100),
    "max_in_flight": _number(0, U32_MAX),
    "max_in_flight_per_key": _number(0, U32_MAX),
    "rate_limit": _rate_limit,
    "require_lease_id": _flag,
}
FIELDS: Final = tuple(sorted(_PARSERS))
QUEUE_FIELDS: Final = frozenset(
    (
        "lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "retry_backoff", "leases_durable",
        "starvation_ms", "starvation_share", "max_in_flight", "max_in_flight_per_key", "rate_limit",
        "require_lease_id",
    )
)  # fmt: skip  # which a log takes as well, and does nothing with
_CHOICES: Final = ("type", "discard", "durability", "compression")
_OBJECTS: Final = ("retry_backoff", "rate_limit")
assert [name for name in _PARSERS if name != "durable"] == [field.name for field in attrs.fields(TopicConfig)]
