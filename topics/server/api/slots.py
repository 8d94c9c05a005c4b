"""Things of which there may be so many at a time, each taken and given back."""

from __future__ import annotations

from topics.kernel.errors import Code, Rejected


class ConcurrencyLimit:
    """`most`: 0 for any number. `what`: they are, for the message; `variable`: the setting that says how many."""

    def __init__(self, name: str, what: str, most: int, *, variable: str) -> None:
        self.name = name
        self.most = most
        self.taken = 0
        self._what = what
        self._variable = variable

    def take(self) -> None:
        """One more. Raises `Rejected(throttled)`; nothing was taken."""
        if 0 < self.most <= self.taken:
            raise Rejected(
                Code.THROTTLED,
                f"{self.name}: there are {self.taken} {self._what}, the limit; close some, or raise {self._variable}",
                limit=self.name,
                max=self.most,
            )
        self.taken += 1

    def give(self) -> None:
        self.taken -= 1
        assert self.taken >= 0
