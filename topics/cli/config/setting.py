"""One setting: what kind of value it takes, how that is written as text and in TOML, and what is said if it is not."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs

from topics.cli.io.quantities import parse_size
from topics.server.auth.lines import parse_keys
from topics.server.settings import HOST_FORM, ORIGIN_FORM, parse_origins

_SIZE: Final = re.compile(r"_bytes(_|$)|^wal_(file_|reserve$)")  # in a key: the number is one of bytes
_DIGITS: Final = re.compile(r"[0-9]{1,40}")
_HOST: Final = re.compile(r"[A-Za-z0-9._:%\[\]-]{1,255}", re.ASCII)
_URL: Final = re.compile(r"https?://[^\s@?#/]+(/[^\s@?#]*)?", re.ASCII)
_STORE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_SECRET: Final = re.compile(r"[@?#]")
_FLAGS: Final = {
    "1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip


class SettingKind(Enum):
    """What values look like."""

    NUMBER = "a whole number"
    DIRECTORY = "a directory"
    PLACE = "a directory, or a store's URL as in s3://bucket/folder"
    FILE = "a file"
    HOST = HOST_FORM
    FLAG = "true or false"
    CHOICE = "one of"
    ORIGINS = ORIGIN_FORM
    URL = "a server's URL, as in http://127.0.0.1:4000"
    KEYS = "keys, separated by commas"


@attrs.frozen(kw_only=True)
class Setting:
    """A row of the table. A number lies in [low, high]. `limit`, `server`: the field of `Limits`, `ServerSettings`."""

    key: str
    variable: str
    default: Any
    kind: SettingKind = SettingKind.NUMBER
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    limit: str | None = None
    server: str | None = None
    unset: str = "none"

    @property
    def is_size(self) -> bool:
        """Whether the number is one of bytes, and may be written as 64MiB."""
        return self.kind is SettingKind.NUMBER and _SIZE.search(self.key) is not None

    @property
    def allowed(self) -> str:
        match self.kind:
            case SettingKind.NUMBER:
                what = "a number of bytes, or one as in 64MiB," if self.is_size else "a whole number"
                return f"{what} from {self.low} to {self.high}"
            case SettingKind.CHOICE:
                return f"one of {', '.join(self.choices)}"
        return str(self.kind.value)

    def wanted(self, given: object) -> str:
        """What to give in place of a value that is refused."""
        if self.kind is SettingKind.URL and isinstance(given, str) and "://" not in given:
            with_scheme = f"http://{given}"
            if _URL.fullmatch(with_scheme):
                return f"it with its scheme: {with_scheme}, or https:// where the server has TLS"
        return self.allowed

    def from_text(self, text: str) -> Any:
        """As a flag or the environment has it. Raises ValueError."""
        match self.kind:
            case SettingKind.NUMBER:
                return self.checked(parse_size(text) if self.is_size else _whole(text))
            case SettingKind.FLAG:
                if text.strip().lower() not in _FLAGS:
                    raise ValueError(text)
                return _FLAGS[text.strip().lower()]
            case SettingKind.ORIGINS:
                return parse_origins(text)
            case SettingKind.KEYS:
                return parse_keys(text)
        return self.checked(text)

    def from_toml(self, value: object, folder: Path) -> Any:
        """As the file has it; a path in it is relative to it. Raises ValueError."""
        if self.kind is SettingKind.ORIGINS:
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise ValueError(value)
            return parse_origins(",".join(value))
        if self.is_size and isinstance(value, str):
            value = parse_size(value)
        checked = self.checked(value)
        is_path = self.kind in (SettingKind.DIRECTORY, SettingKind.FILE) or (
            self.kind is SettingKind.PLACE and _STORE.match(str(checked)) is None
        )
        return str(folder / checked) if is_path else checked

    def checked(self, value: object) -> Any:
        """The value, if it is one of ours. Raises ValueError."""
        match self.kind:
            case SettingKind.NUMBER:
                fits = type(value) is int and self.low <= value <= self.high
            case SettingKind.DIRECTORY | SettingKind.FILE | SettingKind.PLACE:
                fits = isinstance(value, str) and bool(value) and "\0" not in value
            case SettingKind.URL:
                fits = isinstance(value, str) and _URL.fullmatch(value) is not None
            case SettingKind.HOST:
                fits = isinstance(value, str) and _HOST.fullmatch(value) is not None
            case SettingKind.CHOICE:
                fits = value in self.choices
            case _:
                fits = isinstance(value, bool)
        if not fits:
            raise ValueError(value)
        return value

    def shown(self, value: object) -> str:
        """For people."""
        if value is None or value == ():
            return self.unset
        if self.kind is SettingKind.KEYS:
            return str(self.told(value))
        if isinstance(value, bool):
            return "true" if value else "false"
        return ", ".join(value) if isinstance(value, tuple) else str(self.told(value))

    def quoted(self, given: object) -> str:
        """A value that is refused, as a message may name it: not what may be a password in a URL."""
        if self.kind in (SettingKind.URL, SettingKind.PLACE) and _SECRET.search(str(given)):
            return "a URL with a user, a password, a query or a fragment"
        return f"{given!r:.80}"

    def told(self, value: Any) -> Any:
        """The value; of a store's URL neither user nor query nor fragment, which may hold a password; no key."""
        if self.kind is SettingKind.KEYS:
            return f"{len(value)} (not shown)"
        if self.kind is not SettingKind.PLACE or value is None or not _STORE.match(value):
            return value
        from topics.host.cold.fsspec_files import without_secrets

        return without_secrets(value)


def of_topic(key: str) -> str:
    """Where a key belongs that is a field of a topic's config; else nothing."""
    from topics.kernel.config import FIELDS

    if key not in FIELDS:
        return ""
    return f"it is of a topic's config: topics create TOPIC {key}=…, or topics configure TOPIC {key}=…"


def _whole(text: str) -> int:
    """A whole number in ASCII digits, and nothing else that Python would take."""
    if not _DIGITS.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)
