"""One shard's batch on its way: the stages a driver goes through, one call at a time.

Between any two stages everything else may happen: that is where a driver with threads lets go of its lock.
"""

from __future__ import annotations

from enum import Enum

from topics.engine.batch import WalBatch
from topics.engine.engine import Engine
from topics.host.walfile import PlannedWrite
from topics.host.writer import ShardWriter
from topics.simulation.ledger import Ledger


class Stage(Enum):
    """How far a shard's batch is."""

    IDLE = "idle"
    PLACED = "placed"
    WRITTEN = "written"
    TOLD = "told"
    SYNCED = "synced"


class Pen:
    """One shard's writer and the batch under it."""

    def __init__(self, writer: ShardWriter) -> None:
        self.writer = writer
        self.stage = Stage.IDLE
        self._batch: WalBatch | None = None
        self._plan: PlannedWrite | None = None

    def advance(self, engine: Engine, ledger: Ledger) -> OSError | None:
        """Go one stage further, or begin with the next batch. An error has failed the shard."""
        if self.stage is Stage.IDLE:
            self._take(engine, ledger)
            return None
        batch, plan, writer = self._batch, self._plan, self.writer
        assert batch is not None
        assert plan is not None
        error = None
        match self.stage:
            case Stage.PLACED:
                error = writer.write(plan)
                self.stage = Stage.WRITTEN
                if error is None:
                    ledger.written(writer.shard)
            case Stage.WRITTEN:
                self.stage = Stage.TOLD if batch.sync else Stage.IDLE
                writer.after_write(batch, plan)
            case Stage.TOLD:
                error = writer.sync(plan)
                self.stage = Stage.SYNCED
            case Stage.SYNCED:
                self.stage = Stage.IDLE
                writer.after_sync(batch, plan)
        if error is not None:
            self.stage = Stage.IDLE
            writer.fail(batch, error)
        return error

    def _take(self, engine: Engine, ledger: Ledger) -> None:
        batch = None if self.writer.failed is not None else engine.take_batch(self.writer.shard)
        if batch is None:
            return
        self._batch, self._plan, self.stage = batch, self.writer.place(batch), Stage.PLACED
        ledger.placed(batch, self._plan.at)
