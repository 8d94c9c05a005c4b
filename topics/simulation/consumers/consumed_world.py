"""World through the front door, with clients that read by durable consumers (`wire_consumers` is what they hold)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topics.engine.tickets import Ticket
from topics.simulation.clients.http_messages import SimulatedRequest, SimulatedResponse
from topics.simulation.consumers.consumer_wishes import ConsumerWishes
from topics.simulation.consumers.wire_consumers import ConsumerRequest, WireConsumers
from topics.simulation.machine import RunEnd
from topics.simulation.served import ServedWorld


class ConsumedWorld(ServedWorld):
    """One run; its options are those of `ServedWorld`."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, asking=ConsumerWishes, **options)
        assert isinstance(self.workload, ConsumerWishes)
        self.wire_consumers = self.workload.wire = WireConsumers(self.counts)

    def asked_for(self, ticket: Ticket, asked_ms: int, acked: Sequence[int]) -> None:
        self.wire_consumers.asked(ticket.command)
        super().asked_for(ticket, asked_ms, acked)

    def ended(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            self.wire_consumers.ended(ticket)
        super().ended(tickets)

    def heard(self, request: SimulatedRequest, response: SimulatedResponse) -> None:
        super().heard(request, response)
        if isinstance(request, ConsumerRequest) and not self._dead:
            config = self.engine.topic_config(request.name[0])
            self.wire_consumers.heard(request, response, None if config is None else config.durability)

    def _crash(self) -> None:
        before = self.counts[RunEnd.PROCESS.value]
        super()._crash()
        self.wire_consumers.crashed(is_process_only=self.counts[RunEnd.PROCESS.value] > before)
