"""A calendar whose instants anybody can say: for models, which need an oracle that is obviously right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from topics.kernel.errors import invalid


class RepeatingCalendar:
    """`*/N`: every N ms since 1970, and a zone `+M` makes each M ms later; `never`: none."""

    def instants(self, cron: str, timezone: str, after_ms: int) -> Iterator[int]:
        shift_ms = 0 if timezone == "UTC" else int(timezone.removeprefix("+"))
        if cron == "never":
            return iter(())
        if not cron.startswith("*/"):
            raise invalid("cron", f"{cron!r:.80} is no cron expression")
        every_ms = int(cron.removeprefix("*/"))
        return count(((after_ms - shift_ms) // every_ms + 1) * every_ms + shift_ms, every_ms)
