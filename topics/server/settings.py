"""What a server may be told, checked (operations 3; the limits are those of http-api 1 and 11).

Values only: where they come from (flags, environment, topics.toml) is the command line's table, which has a row for
each field. What two fields may not be together is refused here, in words that name them. Light to import: no task, no
socket, no log.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final

import attrs

from topics.kernel.errors import invalid
from topics.kernel.limits import INLINE_BYTES_MAX, KIB, MIB
from topics.server.auth.keys import REQUESTS_MAX, SESSIONS_MAX, STREAMS_MAX, KeyCaps
from topics.server.auth.lines import KeyLine

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PORT_DEFAULT: Final = 4000
# An origin, as a browser sends it, or a name of this server for `Host`.
_ORIGIN: Final = re.compile(r"(https?://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)
HOST_FORM: Final = "an address or a host name"
ORIGIN_FORM: Final = "origins such as https://example.org, or host names, separated by commas"


@attrs.frozen(kw_only=True)
class ServerSettings:
    """Times end in `_ms`, sizes in `_bytes`. See docs/operations.md for what each does."""

    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    certfile: Path | None = None
    keyfile: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    allow_insecure_no_auth: bool = False
    api_keys: tuple[KeyLine, ...] = ()
    api_keys_file: Path | None = None
    probe_auth: bool = False
    auto_create: bool = True
    drain_ms: int = 10_000
    head_timeout_ms: int = 10_000
    handshake_timeout_ms: int = 10_000
    idle_timeout_ms: int = 75_000
    body_bytes_per_s: int = 1 * KIB
    backup_bytes_per_s: int = 64 * KIB
    max_head_bytes: int = 32 * KIB
    max_head_fields: int = 100
    max_held_bytes: int = 256 * MIB
    max_unsent_bytes: int = 256 * MIB
    max_connections: int = 10_000
    max_http2_streams: int = 256
    max_http2_requests: int = 10_000
    max_streams_per_key: int = STREAMS_MAX
    max_requests_per_key: int = REQUESTS_MAX
    max_watch_sessions_per_key: int = SESSIONS_MAX
    max_streams: int = 10_000
    max_watch_sessions: int = 10_000
    max_metric_topics: int = 1000
    inline_write_bytes: int = INLINE_BYTES_MAX
    log_level: str = "info"
    access_log: bool = False
    slow_request_ms: int = 1000
    traces: bool = False
    switch_interval_us: int = 300

    def __attrs_post_init__(self) -> None:
        if (self.certfile is None) != (self.keyfile is None):
            given, missing = ("certfile", "keyfile") if self.keyfile is None else ("keyfile", "certfile")
            raise invalid(missing, f"must be given too, because {given} is: TLS needs both")
        if self.api_keys and self.api_keys_file is not None:
            raise invalid(
                "api_keys_file", "the keys come from it, or from TOPICS_API_KEYS: leave out one of the two"
            )
        if not (self.is_loopback or self.asks_for_keys or self.allow_insecure_no_auth):
            raise invalid(
                "host",
                f"{self.host!r} can be reached from other machines, and there are no keys, so anybody there could"
                " read, write and delete: bind 127.0.0.1, give keys (topics key new), or set"
                " TOPICS_ALLOW_INSECURE_NO_AUTH=1",
            )

    @property
    def is_secure(self) -> bool:
        return self.certfile is not None

    @property
    def asks_for_keys(self) -> bool:
        return bool(self.api_keys) or self.api_keys_file is not None

    @property
    def key_caps(self) -> KeyCaps:
        return KeyCaps(
            streams=self.max_streams_per_key,
            requests=self.max_requests_per_key,
            sessions=self.max_watch_sessions_per_key,
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def origins(self) -> frozenset[bytes]:
        """Those of `allowed_origins` that are origins, as browsers send them: lower case, without the usual port."""
        listed = (one.lower() for one in self.allowed_origins if "://" in one)
        return frozenset(_as_sent(one).encode() for one in listed)

    @property
    def host_names(self) -> frozenset[bytes]:
        """What `Host` may say beside loopback names: the bind address, and what is listed, without ports."""
        listed = (one.partition("://")[2] or one for one in self.allowed_origins)
        bound = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return frozenset(re.sub(r":[0-9]+$", "", name).lower().encode() for name in (*listed, bound) if name)

    def url(self, port: int) -> str:
        """Where it can be reached from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 -- compared, not bound
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{'https' if self.is_secure else 'http'}://{host}:{port}"


def _as_sent(origin: str) -> str:
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


def parse_origins(text: str) -> tuple[str, ...]:
    """Comma-separated. Raises ValueError, saying the form."""
    found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for one in found:
        if not _ORIGIN.fullmatch(one):
            raise ValueError(f"{one!r} is not one of {ORIGIN_FORM}")
    return found
