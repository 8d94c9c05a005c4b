"""Times of day as people mean them: cron expressions in time zones (`kernel.ports.Calendar`; decision 83).

cronsim decides as Debian's cron does. An expression that names its hours and minutes means local times: one that a
clock set forward skips comes at the next that there is, one that a clock set back repeats comes once. With a `*` in
front of minute or hour it means a rhythm, which goes on through both. A word of crontab(5), as `@daily`, is short for
one of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import attrs
from cronsim import CronSim, CronSimError

from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import CRON_CHARS_MAX, TIMEZONE_CHARS_MAX, TIMEZONES_CACHED_MAX

# The fields, by what cronsim calls a bad one.
_FIELDS: Final = {
    "Bad minute": "minute {!r:.40} is not 0 to 59",
    "Bad hour": "hour {!r:.40} is not 0 to 23",
    "Bad day-of-month": "day of month {!r:.40} is no day of that month: 1 to 31, or L for the last",
    "Bad month": "month {!r:.40} is not 1 to 12, or JAN to DEC",
    "Bad day-of-week": "day of week {!r:.40} is not 0 to 7, or SUN to SAT",
}
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MEANT_MAX: Final = 3  # zones in a message
_OF_THE_MACHINE: Final = "localtime"  # a file beside the zones, another one on each machine
_YEAR_MAX_MS: Final = 253_000_000_000_000  # in the year 9987: what is later has no date


@attrs.frozen
class HostCalendar:
    """cronsim, and the time zones of this machine, or else those that come with tzdata."""

    def instants(self, cron: str, timezone: str, after_ms: int) -> Iterator[int]:
        zone = _zone(timezone)
        fields = _spelled_out(cron)
        if len(cron) > CRON_CHARS_MAX or len(fields.split()) != len(_FIELDS):
            why = "five fields are needed: minute, hour, day of month, month, day of week"
            raise _no_cron(cron, f"{why}; it has {len(fields.split())}")
        if after_ms > _YEAR_MAX_MS:
            return
        try:
            found = CronSim(fields, datetime.fromtimestamp(after_ms // 1000, zone))
        except (CronSimError, ValueError) as error:
            raise _no_cron(cron, _bad_field(cron, str(error))) from None
        last_ms = after_ms
        with suppress(OverflowError):  # behind the last year that there is
            for one in found:
                instant_ms = int(one.timestamp()) * 1000
                # Local times that are skipped come together, and what is repeated is told in its first turn only.
                if instant_ms > last_ms:
                    yield instant_ms
                    last_ms = instant_ms


def _spelled_out(cron: str) -> str:
    """The five fields that a word is short for; what is no word as it is."""
    if not cron.lstrip().startswith("@"):
        return cron
    fields = _WORDS.get(cron.strip())
    if fields is not None:
        return fields
    if cron.strip() == "@reboot":
        raise _no_cron(cron, "a schedule goes by the clock, and nothing of it fires because something starts")
    raise _no_cron(cron, f"of words there are {', '.join(_WORDS)}")


def _bad_field(cron: str, said: str) -> str:
    """What cronsim said, with what stands in that field and what may."""
    for (name, form), given in zip(_FIELDS.items(), cron.split(), strict=True):
        if said == name:
            falls = "; a range goes from the lower to the higher" if "-" in given else ""
            return form.format(given) + falls
    return said


def _no_cron(cron: str, why: str) -> Rejected:
    return invalid("cron", f"{cron!r:.80} is no cron expression: {why}")


@lru_cache(maxsize=TIMEZONES_CACHED_MAX)
def _zone(timezone: str) -> tzinfo:
    if timezone == "UTC":
        return UTC
    if len(timezone) > TIMEZONE_CHARS_MAX or timezone not in _zones():
        known = _zones_meant(timezone)
        give = (
            f"did you mean {' or '.join(known)}?" if known else "give one of the IANA list, as Europe/Berlin"
        )
        raise invalid("timezone", f"{timezone!r:.80} is no time zone: {give}")
    return ZoneInfo(timezone)


def _zones_meant(timezone: str) -> Sequence[str]:
    """Those that are written otherwise: `berlin` is Europe/Berlin. None of Etc, where GMT+2 is two hours behind."""
    asked = timezone.casefold().replace(" ", "_")
    names = {name: name.casefold() for name in _zones() if not name.startswith("Etc/")}
    found = [name for name, folded in names.items() if asked in (folded, folded.rpartition("/")[2])]
    return sorted(found)[:_MEANT_MAX]


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - {_OF_THE_MACHINE}
