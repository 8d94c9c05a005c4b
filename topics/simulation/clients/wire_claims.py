"""What clients were told over the wire, held against what the engine had promised before it was sent.

The ledger checks a promise at the instant it is made; this module checks that the answer which crossed the wire is such
a promise, whole and unchanged: no 200 without an acknowledgement, no record that no page held, no account that does not
add up, and nothing of a write that was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topics.codec.log.frame import FrameView
from topics.engine.commands import Append, DeleteRecords
from topics.engine.replies import Appended, Reply
from topics.kernel.errors import Code
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.simulation.clients.http_messages import SimulatedRequest, SimulatedResponse, matches_tag, payloads
from topics.simulation.ledger import Ledger
from topics.simulation.oracle import PromiseBroken

_OUTCOME_UNKNOWN: Final = (Code.INTERNAL.value, Code.STORAGE_READ_ONLY.value)
_ANY_TIME: Final = frozenset((500, 503))  # a disk that fails, a drain


class WireClaims:
    """Of one server's life; `begin` starts the next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[bytes, list[Appended]] = {}
        self._planned: dict[tuple[str, int, int], bytes] = {}

    def begin(self) -> None:
        self._told.clear()
        self._planned.clear()

    # What the engine has promised.

    def told(self, command: Append, reply: Reply) -> None:
        assert isinstance(reply, Appended)
        self._told.setdefault(command.records.data[0], []).append(reply)

    def planned(self, plan: DiffPlan, views: Sequence[FrameView]) -> None:
        for view in views:
            self._planned[plan.topic, plan.epoch, view.seq] = view.data

    # What came over the wire.

    def answered(self, request: SimulatedRequest, response: SimulatedResponse) -> None:
        """One answer to one request that was sent whole."""
        if response.status not in request.good | _ANY_TIME:
            raise PromiseBroken(f"{request.method!r} {request.path!r} was answered {response.text[:300]!r}")
        if response.status < 300 and "error" in response.fields:
            raise PromiseBroken(f"an error in a good answer: {response.text[:300]!r}")
        if response.status >= 300:
            self._refused(request, response)
        elif isinstance(request.command, Append):
            self._written(request.command, response)
        elif isinstance(request.command, DeleteRecords):
            if not 0 <= response.fields["earliest_seq"] <= response.fields["head_seq"] + 1:
                raise PromiseBroken(f"seqs out of order: {response.text[:300]!r}")
        elif request.query is not None:
            self._page(request.query, response)
        elif (counts := response.fields.get("queue")) is not None:
            if sum(counts[name] for name in ("ready", "in_flight", "delayed")) != response.fields["count"]:
                raise PromiseBroken(f"the jobs do not add up: {response.text[:400]!r}")

    def _refused(self, request: SimulatedRequest, response: SimulatedResponse) -> None:
        """Nothing of it may ever be read, unless the code says that nobody knows what became of it."""
        if not response.code or not response.fields["error"]["message"]:
            raise PromiseBroken(f"a refusal without code or message: {response.text[:300]!r}")
        command = request.command
        if isinstance(command, Append) and response.code not in _OUTCOME_UNKNOWN:
            if command.idempotency_key is None:
                self._ledger.refused.update(command.records.data)

    def _written(self, command: Append, response: SimulatedResponse) -> None:
        fields = response.fields
        for reply in self._told.get(command.records.data[0], ()):
            if (list(reply.seqs), reply.first_seq, reply.last_seq, reply.created, reply.deduped) == (
                fields["seqs"], fields["first_seq"], fields["last_seq"], fields["created"], fields["deduped"]
            ):  # fmt: skip
                return
        raise PromiseBroken(
            f"the wire says what the engine has not acknowledged: {command!r:.200} {response.text!r:.300}"
        )

    def _page(self, query: DiffQuery, response: SimulatedResponse) -> None:
        fields = response.fields
        records, account = payloads(response), fields["account"]
        start, after = fields["from_seq"], fields["next_from_seq"]
        tombstone = fields["tombstone"]
        again = tombstone is not None and tombstone["reason"] == "recreated"
        if sum(account.values()) != after - (0 if again else start) or account["delivered"] != len(records):
            raise PromiseBroken(f"the account does not add up: {response.text[:400]!r}")
        head_seq = fields["head_seq"]
        if fields["caught_up"] != (after == head_seq) or fields["lag"] != head_seq - after:
            raise PromiseBroken(f"caught_up and lag disagree with the seqs: {response.text[:400]!r}")
        before = tombstone["gap_to"] if tombstone is not None and not again else 0 if again else start
        tags = [record.get("$tag", "") for record in fields["records"]]
        for (seq, data), tag in zip(records, tags, strict=True):
            if not before < seq <= after:
                raise PromiseBroken(f"seq {seq} behind {before} in a page up to {after}")
            if self._planned.get((query.topic, fields["epoch"], seq)) != data:
                raise PromiseBroken(f"seq {seq} of {query.topic} came as {data!r}, and no page held that")
            if not matches_tag(query.match, tag):
                raise PromiseBroken(f"seq {seq} with tag {tag!r} passed the filter {query.match}")
            before = seq
