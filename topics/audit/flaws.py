"""The flaws that a scan finds in one file: a bounded list, and how many there are."""

from __future__ import annotations

from topics.audit.rows import FLAWS_MAX, Flaw, Severity


class Flaws:
    """The flaws of one file: the first FLAWS_MAX, and how many there are."""

    __slots__ = ("count", "listed")

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Flaw] = []

    def add(
        self,
        check: str,
        seq: int | None,
        offset: int | None,
        detail: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        self.count += 1
        if len(self.listed) < FLAWS_MAX:
            self.listed.append(Flaw(check, seq, offset, detail, severity))
