"""One shard's batch on its way: the stages a driver goes through, one call at a time.

Between any two stages everything else may happen: that is where a driver with threads lets go of its lock.
"""

from __future__ import annotations

from enum import Enum

from topics.engine.batch import WalBatch
from topics.engine.engine import Engine
from topics.host.checkpoint.steps import Blocking, Step, Steps, Tell
from topics.host.wal.walfile import PlannedWrite
from topics.simulation.ledger import Ledger
from topics.store.writer import ShardWriter


class BatchStage(Enum):
    """How far a shard's batch is."""

    IDLE = "idle"
    PLACED = "placed"
    WRITTEN = "written"
    TOLD = "told"
    SYNCED = "synced"


class WatchedWriter(ShardWriter):
    """A shard's writer whose batches are told to the ledger."""

    def __init__(self, writer: ShardWriter, ledger: Ledger) -> None:
        self.__dict__ = writer.__dict__
        self._ledger = ledger

    def place(self, batch: WalBatch, *, begins_file: bool = False) -> PlannedWrite:
        plan = super().place(batch, begins_file=begins_file)
        self._ledger.placed(batch, plan.at)
        return plan

    def write(self, plan: PlannedWrite) -> None:
        super().write(plan)
        self._ledger.written(self.shard)


class ShardStepper:
    """One shard's writer and the batch under it."""

    def __init__(self, writer: ShardWriter) -> None:
        self.writer = writer
        self.stage = BatchStage.IDLE
        self._steps: Steps | None = None
        self._step: Blocking | None = None

    def advance(self, engine: Engine) -> OSError | None:
        """Go one stage further, or begin with the next batch. An error has failed the shard."""
        match self.stage:
            case BatchStage.IDLE:
                batch = None if self.writer.failed is not None else engine.take_batch(self.writer.shard)
                if batch is not None:
                    self._steps = self.writer.writing(batch, apart=True)
                    self._go_on(BatchStage.PLACED)
            case BatchStage.PLACED:
                return self._call(BatchStage.WRITTEN)
            case BatchStage.WRITTEN:
                self._go_on(BatchStage.TOLD)
            case BatchStage.TOLD:
                return self._call(BatchStage.SYNCED)
            case BatchStage.SYNCED:
                self._go_on(BatchStage.IDLE)
        return None

    def _call(self, after: BatchStage) -> OSError | None:
        assert self._step is not None
        try:
            self._step.call()
        except OSError as error:
            self._go_on(BatchStage.IDLE, error)
            return error
        self.stage = after
        return None

    def _go_on(self, before_call: BatchStage, failed: OSError | None = None) -> None:
        """To the next call of the batch, or to its end."""
        assert self._steps is not None
        step: Step | None = next(self._steps) if failed is None else self._steps.throw(failed)
        while isinstance(step, Tell):
            step = next(self._steps, None)
        assert isinstance(step, Blocking | None)
        self._step, self.stage = step, BatchStage.IDLE if step is None else before_call
