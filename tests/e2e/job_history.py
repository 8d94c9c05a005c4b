"""What workers asked for and were told, held against what a queue promises; it knows none of the product's code."""

from __future__ import annotations

from collections import Counter, defaultdict

import attrs


@attrs.define(eq=False)
class Delivery:
    """A job in a worker's hands: surely from `answered_ms` on. `fate`: what ended that, as far as anybody was told."""

    node: str
    number: int
    key: str | None
    seq: int
    asked_ms: int
    answered_ms: int
    deadline: int
    deliveries: int
    settling_ms: int | None = None
    froze: bool = False
    fate: str = ""


class History:
    """Of one queue. `kills`: when its server was killed; `killed`: nodes of workers that were, and when."""

    def __init__(self, *, leases_durable):
        self.leases_durable = leases_durable
        self.deliveries: dict[str, Delivery] = {}  # by lease
        self.acked: dict[int, int] = {}  # seq -> when the worker knew
        self.acking: set[int] = set()  # numbers of jobs
        self.kills: list[int] = []
        self.killed: dict[str, int] = {}
        self.refusals: Counter[str] = Counter()
        self._hands: dict[str, dict[int, Delivery]] = defaultdict(
            dict
        )  # node -> seq -> what it was given last

    # What workers say.

    def told(self, node, event):
        kind, *rest = event
        getattr(self, f"_{kind}", self._nothing)(node, *rest)

    def _nothing(self, node, *rest):
        """Nobody learns of it."""

    def _refused(self, node, action, status, code):
        self.refusals[f"{action} {status} {code}"] += 1

    def _away(self, node, at_ms, message):
        self.refusals[message] += 1

    def _claimed(self, node, asked_ms, answered_ms, jobs):
        for data, key, seq, lease, deadline, deliveries in jobs:
            assert lease not in self.deliveries, f"{lease} was given twice"
            one = Delivery(node, data["n"], key, seq, asked_ms, answered_ms, deadline, deliveries)
            self.deliveries[lease] = self._hands[node][seq] = one

    def _extended(self, node, deadlines):
        for seq, deadline in deadlines.items():
            self._hands[node][int(seq)].deadline = deadline

    def _longer(self, node, deadlines):
        for lease, deadline in deadlines.items():
            if lease in self.deliveries:  # else its worker has not begun it yet, and tells it then
                self.deliveries[lease].deadline = deadline

    def _froze(self, node, leases):
        for lease in leases:
            self.deliveries[lease].froze = True

    def _lost(self, node, lease):
        self.deliveries[lease].fate = "lost"

    def _acking(self, node, asked_ms, leases):
        self._nacking(node, asked_ms, leases)
        self.acking.update(self.deliveries[lease].number for lease in leases)

    def _nacking(self, node, asked_ms, leases):
        for lease in leases:
            self.deliveries[lease].settling_ms = asked_ms

    def _acked(self, node, asked_ms, answered_ms, done, skipped):
        for one in self._settled(node, asked_ms, done, skipped, "acked"):
            assert one.seq not in self.acked, f"seq {one.seq} was acked twice"
            self.acked[one.seq] = answered_ms

    def _nacked(self, node, asked_ms, answered_ms, done, skipped):
        for _ in self._settled(node, asked_ms, done, skipped, "nacked"):
            pass

    def _settled(self, node, asked_ms, done, skipped, fate):
        for seq in skipped:
            self._hands[node][seq].fate = "skipped"
        for one in [self._hands[node][seq] for seq in done]:
            assert asked_ms <= one.deadline, f"{one} was {fate}, behind its lease"
            one.fate = fate
            yield one

    # What must hold.

    def check(self, numbers, failing, letters, max_deliveries):
        """`numbers`: of all jobs; `letters`: number -> deliveries of each dead letter. The queue is empty."""
        self._check_leases()
        self._check_acks()
        self._check_keys()
        assert len(letters) == len(dict(letters))
        dead = dict(letters)
        assert set(dead.values()) <= {max_deliveries}
        assert failing <= dead.keys(), "a job that always fails is not among the dead letters"
        acked = {one.number for one in self.deliveries.values() if one.fate == "acked"}
        assert not acked & dead.keys()
        assert dead.keys() | self.acking == numbers, "a job is lost"
        return dead.keys() - failing

    def _check_leases(self):
        """No two live leases of a job, nor, as the queue says, of a key."""
        groups = defaultdict(list)
        for one in self.deliveries.values():
            groups["seq", one.seq].append(one)
            if one.key is not None:
                groups["key", one.key].append(one)
        for held in groups.values():
            before = None
            for one in sorted(held, key=lambda one: one.answered_ms):
                until = self._held_until(one)
                if before is not None and one.answered_ms < min(until, self._held_until(before)):
                    raise AssertionError(f"two live leases: {before} and {one}")
                if before is None or until > self._held_until(before):
                    before = one

    def _held_until(self, one):
        """It has its lease at least until then."""
        ends = [one.deadline]
        if one.settling_ms is not None:
            ends.append(one.settling_ms)
        if one.node in self.killed:  # leases end with the connection that they were pushed on
            ends.append(self.killed[one.node])
        if not self.leases_durable:
            ends += [at for at in self.kills if at >= one.asked_ms]
        return min(ends)

    def _check_acks(self):
        """What was acked is never handed out again."""
        for one in self.deliveries.values():
            known_ms = self.acked.get(one.seq)
            assert known_ms is None or one.asked_ms <= known_ms, f"acked, and handed out again: {one}"

    def _check_keys(self):
        """The jobs of a key come one after another, in order."""
        last: dict[str, Delivery] = {}
        for one in sorted(self.deliveries.values(), key=lambda one: one.answered_ms):
            if one.key is None or one.answered_ms > self._held_until(one):
                continue
            assert one.key not in last or last[one.key].seq <= one.seq, f"{one} behind {last[one.key]}"
            last[one.key] = one

    def explain(self, failing):
        """Why jobs came more than once: counts by reason."""
        of_seq = defaultdict(dict)
        for one in self.deliveries.values():
            of_seq[one.seq][one.deliveries] = one
        why = Counter()
        for found in of_seq.values():
            for count, one in found.items():
                if count > 1:
                    why[self._why(found.get(count - 1), one, failing)] += 1
        return why

    def _why(self, before, one, failing):
        if before is None:
            return "its worker never saw it" if self.kills or self.killed else "unexplained"
        if before.fate == "nacked":
            return "nacked" if before.number in failing else "unexplained"
        if any(before.asked_ms <= at <= one.answered_ms for at in self.kills):
            return "the server was killed"
        if before.node in self.killed:
            return "its worker was killed"
        if before.froze:
            return "its worker was frozen"
        if before.fate in ("skipped", "lost") and before.deadline <= one.answered_ms:
            return "its worker was late"
        return "unexplained"
