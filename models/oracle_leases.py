"""A queue of dict and list, written from queues §§1 to 4: who has which job until when, and who is next.

`fold` is told what the leases log says, in its order; what time makes of that is asked with an instant. Selection is a
search of all jobs, every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from topics.log.jobs.backoff import backoff_ms


@dataclass
class Job:
    """`lease`: the last one given, (token, node, deadline, backoff), until an event ends it. `due_at`: not before."""

    seq: int
    ts: int
    size: int
    key: bytes
    priority: int
    ready_at: int
    expires_at: int | None
    deliveries: int = 0
    lease: tuple | None = None
    reason: bytes = b""
    due_at: int = 0


@dataclass
class OracleQueue:
    """`credit`: what the starved have earned, in hundredths of a job; `turn`: how many cohorts were served."""

    config: object
    jobs: dict[int, Job] = field(default_factory=dict)
    head: int = 0
    paused: bool = False
    tokens: Fraction | None = None  # None: full
    tokens_ms: int = 0
    credit: int = 0
    turn: int = 0

    # The log.

    def append(self, ts, jobs):
        """`jobs`: (size, key, priority, delay_ms, ttl_ms)."""
        self.retire(ts)
        for size, key, priority, delay_ms, ttl_ms in jobs:
            self.head += 1
            expires_at = None if ttl_ms is None else ts + ttl_ms
            due_at = ts + delay_ms
            self.jobs[self.head] = Job(self.head, ts, size, key, priority, due_at, expires_at, due_at=due_at)
        self.evict()

    def claimed(self, ts, grants, nonce, first_lease):
        """`grants`: (node, deadline, seqs)."""
        token, count = first_lease, 0
        for node, deadline, seqs in grants:
            for seq in seqs:
                job = self.jobs.get(seq)
                if job is not None:
                    if job.lease is not None:
                        job.reason = b"expired"
                    job.deliveries += 1
                    rest = backoff_ms(self.config.retry_backoff, job.deliveries, seq)
                    job.lease = ((nonce, token), node, deadline, rest)
                token, count = token + 1, count + 1
        if self.config.rate_limit is not None:
            self.tokens, self.tokens_ms = self.tokens_at(ts) - count, ts

    def leased(self, seq, token):
        job = self.jobs.get(seq)
        return job if job is not None and job.lease is not None and job.lease[0] == token else None

    def extended(self, ts, deadline, seqs, tokens):
        for seq, token in zip(seqs, tokens, strict=True):
            if job := self.leased(seq, token):
                job.lease = (token, job.lease[1], deadline, job.lease[3])

    def released(self, ts, seqs, tokens, ready_at, reason):
        for seq, token, ready_ms in zip(seqs, tokens, ready_at, strict=True):
            if job := self.leased(seq, token):
                job.lease, job.ready_at, job.reason = None, ready_ms, reason

    def taken_back(self, ts, seqs, tokens, ready_at):
        """Nobody was ever given these."""
        for seq, token, ready_ms in zip(seqs, tokens, ready_at, strict=True):
            if job := self.leased(seq, token):
                job.lease, job.deliveries = None, job.deliveries - 1
                job.ready_at = ready_ms if job.deliveries else job.due_at

    def released_all(self, ts, reason):
        for job in self.jobs.values():
            if job.lease is not None and job.lease[2] >= ts:
                job.lease, job.ready_at, job.reason = None, ts, reason

    def acked(self, ts, seqs):
        self.gone(seqs)

    def gone(self, seqs):
        for seq in seqs:
            self.jobs.pop(seq, None)

    def purged(self, ts, upto):
        self.gone([seq for seq in self.jobs if seq <= upto and self.state(seq, ts) != "in_flight"])

    def deleted(self, ts, before_seq, upto):
        self.gone([seq for seq in self.jobs if seq < before_seq and seq <= upto])

    def lost(self, ts, last):
        """A restart took what nobody had synced, or all there was."""
        self.gone([seq for seq in self.jobs if self.config.durability == "ephemeral"])
        self.head = max(last, self.head)

    def expired(self, job, now):
        ttl = self.config.ttl_ms
        return (job.expires_at is not None and job.expires_at < now) or (ttl and job.ts + ttl < now)

    def retire(self, ts):
        self.gone([job.seq for job in self.jobs.values() if self.expired(job, ts)])

    def set_paused(self, ts, paused):
        self.paused = paused

    def configure(self, ts, config, head):
        """`head`: as the log is told of it behind a time as an ephemeral queue."""
        classes = {config.durability, self.config.durability}
        if config.rate_limit != self.config.rate_limit or ("ephemeral" in classes and len(classes) == 2):
            self.tokens = None
        self.config, self.credit, self.head = config, 0, max(head, self.head)
        self.retire(ts)
        self.evict()

    def evict(self):
        cap = self.config.cap_records
        self.gone(sorted(self.jobs)[: max(len(self.jobs) - cap, 0)] if cap else [])

    # As of an instant.

    def tokens_at(self, now):
        limit = self.config.rate_limit
        filled = Fraction((now - self.tokens_ms) * limit.count, limit.per_ms)
        return min(limit.count, limit.count if self.tokens is None else self.tokens + filled)

    def since(self, job):
        """From when on it is ready, if nothing else happens to it."""
        return job.ready_at if job.lease is None else job.lease[2] + max(job.lease[3], 1)

    def state(self, seq, now):
        job = self.jobs[seq]
        if job.lease is not None and now <= job.lease[2]:
            return "in_flight"
        return "delayed" if now < self.since(job) else "ready"

    def in_state(self, state, now):
        return [seq for seq in sorted(self.jobs) if self.state(seq, now) == state]

    def counts(self, now):
        return tuple(len(self.in_state(state, now)) for state in ("ready", "in_flight", "delayed"))

    # Who is next.

    def may_go(self, job, now, busy):
        """`busy`: seqs that are promised, or being settled."""
        cap = self.config.max_in_flight_per_key
        if job.seq in busy or self.state(job.seq, now) != "ready" or self.expired(job, now):
            return False
        if not cap or not job.key:
            return True
        others = {j.seq: self.state(j.seq, now) for j in self.jobs.values() if j.key == job.key}
        if sum(state == "in_flight" or seq in busy for seq, state in others.items()) >= cap:
            return False
        before = [seq for seq in others if seq < job.seq and seq not in busy]
        if any(others[seq] == "ready" for seq in before):
            return False
        return cap > 1 or not any(others[seq] == "delayed" and self.jobs[seq].deliveries for seq in before)

    def order(self, now, busy):
        """Without a share for the starved."""
        busy, found = set(busy), []
        while (seq := self.best(now, busy)) is not None:
            found.append(seq)
            busy.add(seq)
        return found

    def best(self, now, busy):
        ready = [j for j in self.jobs.values() if self.may_go(j, now, busy)]
        return min(((-j.priority, not j.deliveries, j.seq) for j in ready), default=(0, 0, None))[2]

    def take(self, now, busy):
        """The next job, or None: each earns the starved a share, and a whole one is theirs if there are any."""
        longest = now - self.config.starvation_ms
        starved = [
            (self.since(j), j.seq)
            for j in self.jobs.values()
            if self.since(j) < longest and self.may_go(j, now, busy)
        ]
        earned = self.credit + self.config.starvation_share
        if earned >= 100 and starved:
            self.credit = earned - 100
            return min(starved)[1]
        seq = self.best(now, busy)
        if seq is not None:
            self.credit = min(earned, 100)
        return seq
