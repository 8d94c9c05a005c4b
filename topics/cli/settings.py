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
from typing import TYPE_CHECKING, Any, Final

import attrs

from topics.cli.failure import USAGE, Failed, near
from topics.cli.quantities import parse_size
from topics.kernel.limits import (
    BATCH_FRAMES_MAX,
    DECOMPRESSED_MAX,
    KIB,
    MIB,
    U16_MAX,
    U32_MAX,
    WAL_SHARDS_MAX,
    WINDOW_MS_MAX,
    Limits,
)

if TYPE_CHECKING:
    from topics.host.opening import StoreOptions

FILE: Final = "topics.toml"
FILE_VARIABLE: Final = "TOPICS_SETTINGS"
DATA_DEFAULT: Final = "topics-data"
SYNC_INTERVAL_MS: Final = 1000
GIB: Final = 1024 * MIB

# Our prefix, but no settings: what ci/env reads, and what an orchestrator sets for a service of our name.
_NOT_OURS: Final = re.compile(
    r"TOPICS_(VENV|SETTINGS|SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_(TCP|UDP|SCTP).*)"
)
_DIGITS: Final = re.compile(r"[0-9]{1,40}")
_LINK: Final = re.compile(r"(tcp|udp|sctp)://.*")

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
    "page_bytes_default": (1, GIB),
    "page_bytes": (1, GIB),
    "topics": (0, U32_MAX),
    "tags_per_topic": (0, U32_MAX),
    "wal_file_first": (64 * KIB, GIB),
    "wal_file_max": (64 * KIB, GIB),
    "wal_reserve": (0, GIB),
}


@attrs.frozen(kw_only=True)
class Setting:
    """A row of the table. A path if `high` is None, else a whole number in [low, high]."""

    key: str
    variable: str
    default: Any
    low: int = 0
    high: int | None = None
    limit: str | None = None

    @property
    def allowed(self) -> str:
        if self.high is None:
            return "a directory"
        return f"a whole number from {self.low} to {self.high}"


@attrs.frozen
class Value:
    """A value and where it came from."""

    value: Any
    source: str


def _limit_setting(field: str, default: int) -> Setting:
    low, high = _LIMIT_BOUNDS[field]
    key = field if field.startswith("wal_") else f"max_{field}"
    return Setting(
        key=key, variable=f"TOPICS_{key.upper()}", default=default, low=low, high=high, limit=field
    )


TABLE: Final[Mapping[str, Setting]] = {
    setting.key: setting
    for setting in (
        Setting(key="data", variable="TOPICS_DATA_DIR", default=DATA_DEFAULT),
        Setting(key="wal_shards", variable="TOPICS_WAL_SHARDS", default=None, low=1, high=WAL_SHARDS_MAX),
        Setting(
            key="sync_interval_ms", variable="TOPICS_SYNC_INTERVAL_MS", default=SYNC_INTERVAL_MS,
            low=1, high=WINDOW_MS_MAX,
        ),
        Setting(
            key="min_free_bytes", variable="TOPICS_MIN_FREE_BYTES", default=100 * MIB, low=0, high=2**63 - 1,
        ),
        *(_limit_setting(field.name, field.default or 0) for field in attrs.fields(Limits)),
    )
}  # fmt: skip
_BY_VARIABLE: Final = {setting.variable: setting for setting in TABLE.values()}


@attrs.frozen
class Settings:
    """Every setting with its value and source."""

    values: Mapping[str, Value]

    @property
    def data(self) -> Path:
        return Path(self.values["data"].value)

    def options(self) -> StoreOptions:
        """How the store runs."""
        from topics.host.opening import StoreOptions

        get = {key: value.value for key, value in self.values.items()}
        limits = {setting.limit: get[setting.key] for setting in TABLE.values() if setting.limit is not None}
        return StoreOptions(
            shards=get["wal_shards"],
            sync_interval_ms=get["sync_interval_ms"],
            min_free_bytes=get["min_free_bytes"],
            limits=Limits(**limits),
        )


def load(
    flags: Mapping[str, str], environment: Mapping[str, str] = os.environ, *, file: str | None = None
) -> Settings:
    """Resolve every setting. `flags`: by key, as typed. `file`: what `--settings` named.

    Raises:
        Failed: an unknown key, a bad value, an unreadable file.
    """
    values = {key: Value(setting.default, "default") for key, setting in TABLE.items()}
    values |= _from_file(
        file or environment.get(FILE_VARIABLE) or None, named_by="--settings" if file else FILE_VARIABLE
    )
    values |= _from_environment(environment)
    for key, text in flags.items():
        source = "--data" if key == "data" else f"--set {key}"
        values[key] = Value(_from_text(known(key, source="--set"), text, source=source), source)
    _check_pairs(values)
    return Settings(values)


def known(key: str, *, source: str) -> Setting:
    """The row of a key. Raises Failed with what was perhaps meant."""
    setting = TABLE.get(key)
    if setting is None:
        raise _bad(f"{source}: there is no setting {key!r}; {_perhaps(key, TABLE)}")
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
        checked = _checked(setting, value, source=f"{path}: {key}")
        if setting.high is None:
            checked = str(path.parent / checked)
        values[key] = Value(checked, str(path))
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for variable, text in environment.items():
        if not variable.startswith("TOPICS_") or _NOT_OURS.fullmatch(variable):
            continue
        if variable == "TOPICS_PORT" and _LINK.fullmatch(text):
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is None:
            raise _bad(f"{variable}: there is no such setting; unset it; {_perhaps(variable, _BY_VARIABLE)}")
        values[setting.key] = Value(_from_text(setting, text, source=variable), variable)
    return values


def _from_text(setting: Setting, text: str, *, source: str) -> Any:
    if setting.high is None:
        return _checked(setting, text, source=source)
    try:
        value = parse_size(text) if setting.key.endswith("_bytes") else _whole(text)
    except ValueError:
        raise _bad(f"{source}: {text!r} is not allowed; give {setting.allowed}") from None
    return _checked(setting, value, source=source)


def _whole(text: str) -> int:
    """A whole number in ASCII digits, and nothing else that Python would take."""
    if not _DIGITS.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def _checked(setting: Setting, value: object, *, source: str) -> Any:
    if setting.high is None:
        fits = isinstance(value, str) and bool(value) and "\0" not in value
    elif isinstance(value, bool) or not isinstance(value, int):
        fits = False
    else:
        fits = setting.low <= value <= setting.high
    if not fits:
        raise _bad(f"{source}: {value!r:.80} is not allowed; give {setting.allowed}")
    return value


def _check_pairs(values: Mapping[str, Value]) -> None:
    for lower, higher in (("max_page_bytes_default", "max_page_bytes"), ("wal_file_first", "wal_file_max")):
        if values[lower].value > values[higher].value:
            raise _bad(
                f"{lower} ({values[lower].value}, {values[lower].source}) is above {higher}"
                f" ({values[higher].value}, {values[higher].source}): lower the first or raise the second"
            )


def _perhaps(name: str, names: Mapping[str, Setting]) -> str:
    return near(name, names).removeprefix("; ") or f"known are {', '.join(names)}"


def _bad(message: str) -> Failed:
    return Failed(message, code=USAGE)
