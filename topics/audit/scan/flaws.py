"""The flaws that a scan finds in one file: of each check a bounded list, and how many there are."""

from __future__ import annotations

from topics.audit.scan.rows import FLAWS_MAX, Flaw, Severity


class Flaws:
    """The flaws of one file. `listed`: the first FLAWS_MAX of each check, so that none hides those of another."""

    __slots__ = ("_counts", "_worst", "listed")

    def __init__(self) -> None:
        self.listed: list[Flaw] = []
        self._counts: dict[str, int] = {}
        self._worst: dict[str, Severity] = {}  # of those that are not listed

    def add(
        self,
        check: str,
        seq: int | None,
        offset: int | None,
        detail: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        count = self._counts[check] = self._counts.get(check, 0) + 1
        if count <= FLAWS_MAX:
            self.listed.append(Flaw(check, seq, offset, detail, severity))
        elif self._worst.get(check) is not Severity.ERROR:
            self._worst[check] = severity

    def summed_up(self) -> tuple[Flaw, ...]:
        """Those that are listed, and one for each check that has more."""
        more = [
            Flaw(check, None, None, f"{self._counts[check] - FLAWS_MAX} more of this file", severity)
            for check, severity in self._worst.items()
        ]
        return (*self.listed, *more)
