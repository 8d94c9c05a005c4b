"""What a power loss leaves behind: the choices, apart from the bytes they are made about.

Theory. Each change since the last sync has an order number, one count for the whole disk. A crash draws, for each
unit of a file (page or sector), a *horizon*: the changes below it reached the disk, the others did not. So a unit
holds one of the versions it really had, never a mixture. Sizes and names are drawn apart from the data, because a
file system keeps them apart. Every choice comes from one seeded generator in a fixed sequence, so a crash repeats.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Final

import attrs

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512
ALL: Final = 1 << 62  # a horizon above every change, a size above every file


class Shape(Enum):
    """How a power loss treats what no sync covered. What was synced survives all of them."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"  # all changes up to one of them, that one cut at any byte
    RANDOM_PAGES = "random pages"  # each page, name and size kept or lost by itself
    TORN_SECTORS = "torn sectors"  # the same by sectors
    ZEROS = "zeros"  # names and sizes kept, no data: new places read as zeros


_BY_UNIT: Final = (Shape.RANDOM_PAGES, Shape.TORN_SECTORS)


@attrs.define
class FileFate:
    """The choices made for one file."""

    random: random.Random
    unit_size: int
    fixed_horizon: int | None  # None: drawn for each unit
    cuts_below: int  # truncations of a lower order survived
    growth_below: int  # growth of a lower order survived
    size_max: int  # the file did not grow beyond it
    ghosts: bool  # pages a failed sync gave up may have reached the disk
    odds: float
    orders: list[int]
    _drawn: dict[int, int] = attrs.field(factory=dict)

    def horizon(self, unit: int) -> int:
        """Changes below this order survived in this unit."""
        if self.fixed_horizon is not None:
            return self.fixed_horizon
        known = self._drawn.get(unit)
        if known is None:
            known = self._drawn[unit] = self._draw()
        return known

    def _draw(self) -> int:
        if self.random.random() < self.odds:
            return ALL
        return 0 if not self.orders or self.random.random() < 0.5 else self.random.choice(self.orders)


class Survival:
    """The choices of one power loss."""

    def __init__(self, shape: Shape, rng: random.Random, orders: list[int]) -> None:
        assert orders == sorted(orders)
        self.shape = shape
        self.torn_order = -1
        self.torn_share = 0.0
        self._random = rng
        self._orders = orders
        self._stop = {Shape.NOTHING: 0, Shape.ZEROS: 0}.get(shape, ALL)
        if shape is Shape.PREFIX:
            self._stop = rng.choice([*orders, ALL])
            self.torn_order = self._stop
            self.torn_share = rng.random()

    def stop(self, order: int, start: int, stop: int) -> int:
        """Where a write ends on the disk: at its end, but for the torn one."""
        if order != self.torn_order:
            return stop
        return start + int((stop - start) * self.torn_share)

    def keeps_name(self, order: int) -> bool:
        """Whether the change of a name survived."""
        if self.shape in _BY_UNIT:
            return self._random.random() < 0.5
        return self.shape is Shape.ZEROS or order < self._stop

    def fate(self, size_synced: int, size_now: int) -> FileFate:
        """Draw for one file."""
        rng = self._random
        by_unit = self.shape in _BY_UNIT
        zeros = self.shape is Shape.ZEROS
        largest = max(size_synced, size_now)
        return FileFate(
            random=rng,
            unit_size=SECTOR_SIZE if self.shape is Shape.TORN_SECTORS else PAGE_SIZE,
            fixed_horizon=None if by_unit else self._stop,
            cuts_below=rng.choice((0, ALL)) if by_unit else ALL if zeros else self._stop,
            growth_below=ALL if by_unit or zeros else self._stop,
            size_max=rng.choice((0, ALL, rng.randint(0, largest))) if by_unit else ALL,
            ghosts=by_unit and rng.random() < 0.5,
            odds=rng.choice((0.1, 0.5, 0.9)) if by_unit else 1.0,
            orders=self._orders,
        )
