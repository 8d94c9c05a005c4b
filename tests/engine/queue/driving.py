"""A driver of the engine with a queue `q`, and a short word for each thing that a worker does."""

from tests.engine.driving import Driver
from topics.codec.log.control import Control
from topics.codec.log.leases import LeaseEvent
from topics.engine.commands import Ack, Claim, Nack, Pause
from topics.engine.verify import digest
from topics.log.jobs.transitions import JobState


class Queue(Driver):
    """A driver with a queue `q`."""

    def __init__(self, **fields):
        super().__init__()
        self.put("q", type="queue", **fields)

    def jobs(self, *datas, **columns):
        return self.append(*datas, topic="q", **columns)

    def claiming(self, count=1, *, node=b"w", **fields):
        return Claim(topic="q", node=node, count_max=count, **fields)

    def claim(self, count=1, **fields):
        return self.do(self.claiming(count, **fields)).jobs

    def seqs(self, count=1, **fields):
        return [job.seq for job in self.claim(count, **fields)]

    def acking(self, *seqs, node=b"w", leases=None):
        return Ack(topic="q", node=node, seqs=seqs, leases=leases)

    def ack(self, *seqs, **fields):
        return self.do(self.acking(*seqs, **fields))

    def nacking(self, *seqs, node=b"w", **fields):
        return Nack(topic="q", node=node, seqs=seqs, **fields)

    def nack(self, *seqs, **fields):
        return self.do(self.nacking(*seqs, **fields))

    def pausing(self, paused):
        return Pause(topic="q", paused=paused)

    def peek(self, limit, state=JobState.READY):
        return self.engine.peek("q", state, limit)

    def passes(self, ms):
        """Time goes by."""
        self.clock.advance(ms)
        self.engine.tick()
        self.run()

    def counts(self):
        queue = self.state("q").queue
        return queue.ready, queue.in_flight, queue.delayed

    def events(self):
        return [
            item.payload
            for item in self.items()
            if isinstance(item, Control) and isinstance(item.payload, LeaseEvent)
        ]

    def agrees(self):
        """I-09: the bytes alone give the same state."""
        assert digest(self.replay()) == digest(self.engine.catalog)
