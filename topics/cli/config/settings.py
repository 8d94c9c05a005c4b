"""The settings: one table, four sources. Flags > `TOPICS_*` environment > `topics.toml` > defaults (operations 3).

A key nobody knows, a `TOPICS_*` name nobody knows, and a value out of its set refuse to start, naming the key and what
is allowed. `topics.toml` is read from the working directory, or is the file that `--settings` or TOPICS_SETTINGS
names; a relative `data` in it is relative to the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from topics.cli.config.setting import Setting, SettingKind, of_topic
from topics.cli.core.failure import USAGE, Failed, near
from topics.kernel.limits import (
    BATCH_BYTES_MAX,
    BATCH_FRAMES_MAX,
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_WAL_BYTES,
    DECOMPRESSED_MAX,
    KIB,
    MIB,
    PASS_JOBS_MAX,
    TAIL_CACHE_BYTES,
    U16_MAX,
    U32_MAX,
    U64_MAX,
    WAL_SHARDS_MAX,
    WINDOW_MS_MAX,
    Limits,
)
from topics.server.auth.lines import Malformed
from topics.server.settings import LOG_LEVELS, ServerSettings

if TYPE_CHECKING:
    from topics.store.opened import StoreOptions

FILE: Final = "topics.toml"
FILE_VARIABLE: Final = "TOPICS_SETTINGS"
DATA_DEFAULT: Final = "topics-data"
SYNC_INTERVAL_MS: Final = 1000
GIB: Final = 1024 * MIB
HOUR_MS: Final = 3_600_000

# Our prefix, but no settings: what ci/env reads, a client's key (a secret, never shown), and what an orchestrator sets
# for a service of our name, and what a command of `topics work` is told.
_NOT_OURS: Final = re.compile(
    r"TOPICS_(VENV|SETTINGS|API_KEY|JOB_.*|SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_(TCP|UDP|SCTP).*)"
)
_LINK: Final = re.compile(r"(tcp|udp|sctp)://.*")
# A client's, and unset if empty, as compose files write it. A server's are refused then: without its keys or its
# certificate it would let others in, and without its directory begin another one.
_EMPTY_IS_UNSET: Final = frozenset({"TOPICS_URL", "TOPICS_CAFILE", "TOPICS_API_KEY_FILE"})

# The bounds of the limits; those of tag, node and their kind are what a frame can hold.
_LIMIT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "records_per_write": (1, BATCH_FRAMES_MAX),
    "record_bytes": (1, DECOMPRESSED_MAX),
    "body_bytes": (1, GIB),
    "meta_bytes": (0, DECOMPRESSED_MAX),
    "meta_keys": (0, U16_MAX),
    "tag_bytes": (1, U16_MAX),
    "node_bytes": (1, U16_MAX),
    "key_bytes": (1, U16_MAX),
    "dedup_id_bytes": (1, U16_MAX),
    "content_type_bytes": (1, U16_MAX),
    "idempotency_key_chars": (1, U16_MAX // 4),
    "read_limit": (1, BATCH_FRAMES_MAX),
    "claim_limit": (1, PASS_JOBS_MAX),
    "page_bytes_default": (1, GIB),
    "page_bytes": (1, GIB),
    "watch_topics": (1, U16_MAX),
    "topics": (0, U32_MAX),
    "schedules": (0, U32_MAX),
    "routers": (0, U32_MAX),
    "tags_per_topic": (0, U32_MAX),
    "total_bytes": (0, U64_MAX),
    "wal_file_first": (64 * KIB, GIB),
    "wal_file_max": (64 * KIB, GIB),
    "wal_reserve": (0, GIB),
}


@attrs.frozen
class Value:
    """A value and where it came from."""

    value: Any
    source: str

    @property
    def is_named(self) -> bool:
        """True if its source is its own: a flag or a variable, and no file of many."""
        return self.source.startswith(("--", "TOPICS_"))


def _limit_setting(field: str, default: int) -> Setting:
    low, high = _LIMIT_BOUNDS[field]
    key = field if field.startswith("wal_") else f"max_{field}"
    return Setting(
        key=key, variable=f"TOPICS_{key.upper()}", default=default, low=low, high=high, limit=field
    )


def _server_setting(field: str, kind: SettingKind = SettingKind.NUMBER, **how: Any) -> Setting:
    default = getattr(attrs.fields(ServerSettings), field).default
    return Setting(
        key=field, variable=f"TOPICS_{field.upper()}", default=default, kind=kind, server=field, **how
    )


# What `topics serve` is told beside its directory and its limits.
_SERVER_ROWS: Final = (
    _server_setting("host", SettingKind.HOST),
    _server_setting("port", high=U16_MAX),
    _server_setting("certfile", SettingKind.FILE),
    _server_setting("keyfile", SettingKind.FILE),
    _server_setting("allowed_origins", SettingKind.ORIGINS),
    _server_setting("allow_insecure_no_auth", SettingKind.FLAG),
    _server_setting("api_keys", SettingKind.KEYS),
    _server_setting("api_keys_file", SettingKind.FILE),
    _server_setting("probe_auth", SettingKind.FLAG),
    _server_setting("auto_create", SettingKind.FLAG),
    _server_setting("drain_ms", high=HOUR_MS),
    _server_setting("head_timeout_ms", low=1, high=HOUR_MS),
    _server_setting("handshake_timeout_ms", low=1, high=HOUR_MS),
    _server_setting("idle_timeout_ms", low=1, high=HOUR_MS),
    _server_setting("body_bytes_per_s", low=1, high=GIB),
    _server_setting("backup_bytes_per_s", low=1, high=GIB),
    _server_setting("max_head_bytes", low=KIB, high=64 * KIB),
    _server_setting("max_head_fields", low=1, high=1000),
    _server_setting("max_held_bytes", low=MIB, high=2**63 - 1),
    _server_setting("max_unsent_bytes", low=MIB, high=2**63 - 1),
    _server_setting("max_connections", low=1, high=1_000_000),
    _server_setting("max_http2_streams", low=1, high=10_000),
    _server_setting("max_http2_requests", low=1, high=1_000_000),
    _server_setting("max_streams_per_key", low=0, high=1_000_000),
    _server_setting("max_requests_per_key", low=0, high=1_000_000),
    _server_setting("max_watch_sessions_per_key", low=0, high=1_000_000),
    _server_setting("max_streams", low=0, high=1_000_000),
    _server_setting("max_watch_sessions", low=0, high=1_000_000),
    _server_setting("max_metric_topics", low=0, high=1_000_000),
    _server_setting("inline_write_bytes", low=0, high=BATCH_BYTES_MAX),
    _server_setting("log_level", SettingKind.CHOICE, choices=LOG_LEVELS),
    _server_setting("access_log", SettingKind.FLAG),
    _server_setting("slow_request_ms", low=0, high=HOUR_MS),
    _server_setting("traces", SettingKind.FLAG),
    _server_setting("switch_interval_us", low=1, high=1_000_000),
)

TABLE: Final[Mapping[str, Setting]] = {
    setting.key: setting
    for setting in (
        Setting(key="data", variable="TOPICS_DATA_DIR", default=DATA_DEFAULT, kind=SettingKind.DIRECTORY),
        Setting(
            key="wal_shards", variable="TOPICS_WAL_SHARDS", default=None, low=1, high=WAL_SHARDS_MAX,
            unset="as in the directory",
        ),
        Setting(
            key="sync_interval_ms", variable="TOPICS_SYNC_INTERVAL_MS", default=SYNC_INTERVAL_MS,
            low=1, high=WINDOW_MS_MAX,
        ),
        Setting(
            key="min_free_bytes", variable="TOPICS_MIN_FREE_BYTES", default=100 * MIB, low=0, high=2**63 - 1,
        ),
        Setting(
            key="segment_max_events", variable="TOPICS_SEGMENT_MAX_EVENTS", default=10_000, low=1, high=10_000_000,
        ),
        Setting(
            key="segment_max_bytes", variable="TOPICS_SEGMENT_MAX_BYTES", default=64 * MIB, low=1, high=1024 * MIB,
        ),
        Setting(
            key="segment_max_age_ms", variable="TOPICS_SEGMENT_MAX_AGE_MS", default=HOUR_MS, low=0, high=WINDOW_MS_MAX,
        ),
        Setting(
            key="checkpoint_wal_bytes", variable="TOPICS_CHECKPOINT_WAL_BYTES", default=CHECKPOINT_WAL_BYTES,
            low=MIB, high=2**63 - 1,
        ),
        Setting(
            key="checkpoint_interval_ms", variable="TOPICS_CHECKPOINT_INTERVAL_MS", default=CHECKPOINT_INTERVAL_MS,
            low=0, high=WINDOW_MS_MAX,
        ),
        Setting(
            key="tail_cache_bytes", variable="TOPICS_TAIL_CACHE_BYTES", default=TAIL_CACHE_BYTES,
            low=0, high=2**40,
        ),
        Setting(key="wal_archive", variable="TOPICS_WAL_ARCHIVE", default=False, kind=SettingKind.FLAG),
        Setting(
            key="wal_archive_bytes", variable="TOPICS_WAL_ARCHIVE_BYTES", default=0, low=0, high=2**63 - 1,
        ),
        Setting(
            key="wal_archive_age_ms", variable="TOPICS_WAL_ARCHIVE_AGE_MS", default=0, low=0, high=2**63 - 1,
        ),
        Setting(
            key="cold_dir", variable="TOPICS_COLD_DIR", default=None, kind=SettingKind.PLACE,
            unset="off",
        ),
        Setting(
            key="hot_retain_segments", variable="TOPICS_HOT_RETAIN_SEGMENTS", default=4, low=0, high=U32_MAX,
        ),
        Setting(
            key="hot_retain_bytes", variable="TOPICS_HOT_RETAIN_BYTES", default=0, low=0, high=2**63 - 1,
        ),
        Setting(key="url", variable="TOPICS_URL", default=None, kind=SettingKind.URL),
        Setting(key="cafile", variable="TOPICS_CAFILE", default=None, kind=SettingKind.FILE),
        Setting(key="api_key_file", variable="TOPICS_API_KEY_FILE", default=None, kind=SettingKind.FILE),
        *(_limit_setting(field.name, field.default or 0) for field in attrs.fields(Limits)),
        *_SERVER_ROWS,
    )
}  # fmt: skip
_BY_VARIABLE: Final = {setting.variable: setting for setting in TABLE.values()}
_LIMITS: Final = {setting.key: setting.limit for setting in TABLE.values() if setting.limit is not None}
_OF_CLIENTS: Final = frozenset({"url", "cafile", "api_key_file"})


@attrs.frozen
class Settings:
    """Every setting with its value and source."""

    values: Mapping[str, Value]

    @property
    def data(self) -> Path:
        return Path(self.values["data"].value)

    def limits(self) -> Limits:
        limits = {limit: self.values[key].value for key, limit in _LIMITS.items()}
        return Limits(**limits)

    def options(self) -> StoreOptions:
        """How the store runs."""
        from topics.engine.checkpoint import SegmentRules
        from topics.host.cold.segment_stores import HotRules
        from topics.host.wal.archive import ArchiveRules
        from topics.store.opened import StoreOptions

        get = {key: value.value for key, value in self.values.items()}
        return StoreOptions(
            shards=get["wal_shards"],
            sync_interval_ms=get["sync_interval_ms"],
            min_free_bytes=get["min_free_bytes"],
            limits=self.limits(),
            segments=SegmentRules(
                records_max=get["segment_max_events"],
                bytes_max=get["segment_max_bytes"],
                age_ms=get["segment_max_age_ms"],
            ),
            checkpoint_wal_bytes=get["checkpoint_wal_bytes"],
            checkpoint_interval_ms=get["checkpoint_interval_ms"],
            tail_cache_bytes=get["tail_cache_bytes"],
            archive=(
                ArchiveRules(bytes_max=get["wal_archive_bytes"], age_ms=get["wal_archive_age_ms"])
                if get["wal_archive"]
                else None
            ),
            cold_dir=get["cold_dir"],
            hot=HotRules(retain_segments=get["hot_retain_segments"], retain_bytes=get["hot_retain_bytes"]),
        )

    def changed_since(self, before: Settings) -> list[str]:
        """The keys of what a server is told whose values differ."""
        return [
            key
            for key, value in self.values.items()
            if key not in _OF_CLIENTS and value.value != before.values[key].value
        ]

    def server(self) -> ServerSettings:
        """How a server runs, but for its directory's options.

        Raises:
            Failed: two settings that may not be together.
        """
        from topics.kernel.errors import Rejected

        get = {row.server: self.values[row.key].value for row in TABLE.values() if row.server is not None}
        for name in ("certfile", "keyfile", "api_keys_file"):
            get[name] = Path(get[name]) if get[name] is not None else None
        try:
            return ServerSettings(data=self.data, **get)
        except Rejected as refused:
            raise _bad(refused.message) from None


def by_default() -> Settings:
    """As they are if nobody sets one."""
    return Settings({key: Value(setting.default, "default") for key, setting in TABLE.items()})


def load(
    flags: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
    *,
    file: str | None = None,
    options: Mapping[str, str] = MappingProxyType({"data": "--data"}),
) -> Settings:
    """Resolve every setting. `flags`: by key, as typed. `file`: what `--settings` named.

    `options`: by key, the flags that were not given by `--set`.

    Raises:
        Failed: an unknown key, a bad value, an unreadable file.
    """
    values = dict(by_default().values)
    values |= _from_file(
        file or environment.get(FILE_VARIABLE) or None, named_by="--settings" if file else FILE_VARIABLE
    )
    values |= _from_environment(environment)
    for key, text in flags.items():
        source = options.get(key, f"--set {key}")
        values[key] = Value(_from_text(known(key, source="--set"), text, source=source), source)
    _check_pairs(values)
    return Settings(values)


def known(key: str, *, source: str) -> Setting:
    """The row of a key. Raises Failed with what was perhaps meant."""
    setting = TABLE.get(key)
    if setting is not None and setting.kind is SettingKind.KEYS:
        raise _bad(
            f"{source}: {key}: keys come from {setting.variable}, or from a file that api_keys_file names"
        )
    if setting is None:
        raise _bad(f"{source}: there is no setting {key!r}; {of_topic(key) or _perhaps(key, TABLE)}")
    return setting


def _from_file(named: str | None, *, named_by: str) -> dict[str, Value]:
    path = Path(named or FILE)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if named is None:
            return {}
        raise _bad(f"{named_by}: {path} does not exist") from None
    except OSError as error:
        raise _bad(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise _bad(f"{path} is nested too deep") from None
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise _bad(f"{path} is not TOML: {error}") from None
    values = {}
    for key, value in given.items():
        setting = known(key, source=str(path))
        try:
            values[key] = Value(setting.from_toml(value, path.parent), str(path))
        except ValueError:
            raise _bad(
                f"{path}: {key}: {setting.quoted(value)} is not allowed; give {setting.wanted(value)}"
            ) from None
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for variable, text in environment.items():
        if not variable.startswith("TOPICS_") or _NOT_OURS.fullmatch(variable):
            continue
        if variable == "TOPICS_PORT" and _LINK.fullmatch(text):
            continue
        if not text and variable in _EMPTY_IS_UNSET:
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is None:
            raise _bad(f"{variable}: there is no such setting; unset it; {_perhaps(variable, _BY_VARIABLE)}")
        values[setting.key] = Value(_from_text(setting, text, source=variable), variable)
    return values


def _from_text(setting: Setting, text: str, *, source: str) -> Any:
    try:
        return setting.from_text(text)
    except Malformed as malformed:
        raise _bad(f"{source}: {malformed}") from None
    except ValueError:
        raise _bad(f"{source}: {setting.quoted(text)} is not allowed; give {setting.wanted(text)}") from None


def _check_pairs(values: Mapping[str, Value]) -> None:
    for lower, higher in (("max_page_bytes_default", "max_page_bytes"), ("wal_file_first", "wal_file_max")):
        if values[lower].value > values[higher].value:
            raise _bad(
                f"{lower} ({values[lower].value}, {values[lower].source}) is above {higher}"
                f" ({values[higher].value}, {values[higher].source}): lower the first or raise the second"
            )


def _perhaps(name: str, names: Mapping[str, Setting]) -> str:
    return f"{near(name, names).removeprefix('; ')} topics config show --defaults lists all".lstrip()


def _bad(message: str) -> Failed:
    return Failed(message, code=USAGE)
