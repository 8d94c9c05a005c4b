"""A measured figure, the bounds it is held to, and the setting all figures of one call share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

FLOOR_CPU_US = 45.0  # of the floor server for a write of one record, on a machine of scale 1


@dataclass(frozen=True)
class Setting:
    """`scratch`: where data directories go. `runs`: turns of a comparison. `quick`: a smoke."""

    scratch: Path
    runs: int
    quick: bool

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A new directory, gone afterwards."""
        with TemporaryDirectory(dir=self.scratch, prefix="turn-") as name:
            yield Path(name)


@dataclass(frozen=True)
class Figure:
    """`samples` are the turns whose median `value` is. With a must, more is better unless `less` is true.

    `void`: why the value does not count, if it does not; a void figure has not met its must. `cpu`: its bounds are for
    a machine of scale 1, where the floor server takes `FLOOR_CPU_US` for a single write (performance 3).
    """

    name: str
    value: float
    unit: str
    must: float | None = None
    aim: float | None = None
    less: bool = False
    beside: str = ""
    samples: Sequence[float] = field(default=())
    void: str = ""
    cpu: bool = False

    def scaled(self, scale: float) -> Figure:
        """Judged by what a machine of that scale may take."""
        if not self.cpu or self.must is None or self.aim is None:
            return self
        by = scale if self.less else 1 / scale
        beside = f"{self.beside}; bounds {self.must:g} and {self.aim:g} at scale 1"
        return replace(self, must=self.must * by, aim=self.aim * by, beside=beside)

    @property
    def verdict(self) -> str:
        """`ok`, `ok, below aim`, `MISS` or `VOID`; empty if the figure has no must."""
        if self.must is None:
            return ""
        if self.void:
            return "VOID"
        if not self._meets(self.must):
            return "MISS"
        return "ok" if self.aim is None or self._meets(self.aim) else "ok, below aim"

    def fields(self) -> dict[str, object]:
        return asdict(self) | {"verdict": self.verdict}

    def _meets(self, bound: float) -> bool:
        return self.value <= bound if self.less else self.value >= bound


def median_figure(
    name: str, samples: Sequence[float], unit: str, *, must: float | None = None, aim: float | None = None,
    less: bool = False, beside: str = "", cpu: bool = False,
) -> Figure:  # fmt: skip
    """The figure of several turns."""
    return Figure(
        name,
        statistics.median(samples),
        unit,
        must=must,
        aim=aim,
        less=less,
        beside=beside,
        samples=list(samples),
        cpu=cpu,
    )


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def cpu_of(work: Callable[[], object], *, turns: int) -> float:
    """Median seconds of CPU of the calling thread for one call."""
    samples = []
    for _ in range(turns):
        begun = time.thread_time()
        work()
        samples.append(time.thread_time() - begun)
    return statistics.median(samples)
