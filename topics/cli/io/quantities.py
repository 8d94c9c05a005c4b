"""Sizes, durations and moments, as people write and read them. Inside, all is bytes and milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from topics.host.system import clock

DURATIONS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
SIZES: Final = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_DIGITS_MAX: Final = 40
_YEAR_DIGITS: Final = 4
DURATION_FORM: Final = "a number with ms, s, m, h, d or w, as in 5m"
SIZE_FORM: Final = "a number of bytes, or one with KB, MB, GB, KiB, MiB or GiB"
MOMENT_FORM: Final = (
    "milliseconds since 1970, or a time as in 2026-11-21T14:30 (UTC unless it names its zone)"
)


def parse_duration_ms(text: str) -> int:
    """`5m`, and `0`, which needs no unit. Raises ValueError, saying the form."""
    return 0 if text.strip() == "0" else _amount(text, DURATIONS_MS, DURATION_FORM)


def parse_size(text: str) -> int:
    """Raises ValueError, saying the form."""
    return _amount(text, SIZES, SIZE_FORM)


def parse_moment(text: str) -> int:
    """Milliseconds since the epoch. Raises ValueError, saying the form."""
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        if len(text) == _YEAR_DIGITS:  # nobody means the first ten seconds of 1970
            raise ValueError(f"{text!r} is not {MOMENT_FORM}; for the year: {text}-01-01")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {MOMENT_FORM}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)


def _amount(text: str, units: dict[str, int], form: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    unit = units.get(found[2].lower()) if found is not None else None
    if found is None or unit is None:
        raise ValueError(f"{text!r} is not {form}")
    if len(found[1]) > _DIGITS_MAX:
        raise ValueError(f"{text[:_DIGITS_MAX]}… is too large a number")
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def duration(ms: int) -> str:
    """`100ms`, `1d`: in the largest unit that has it whole, as it may be typed."""
    unit = max(
        (unit for unit, of_ms in DURATIONS_MS.items() if ms % of_ms == 0), key=DURATIONS_MS.__getitem__
    )
    return f"{ms // DURATIONS_MS[unit]}{unit}" if ms else "0"


def size(count: int) -> str:
    """`512 B`, `1.2 MB`."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"
    return f"{amount / 1000:.1f} TB"


def counted(count: int, noun: str) -> str:
    """`1 record`, `1,707 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def seqs(first: int, last: int) -> str:
    """`seq 7`, `seqs 1–7`."""
    return f"seq {first}" if first == last else f"seqs {first}\u2013{last}"


def moment(ts: int | None) -> str:
    """UTC, to the millisecond; `never` for None."""
    return "never" if ts is None else clock.moment(ts)


def rate(count: int, seconds: float, noun: str) -> str:
    return f"{count / seconds:,.0f} {noun}s/s" if seconds > 0 else ""
