"""The bucket of tokens of a rate limit: a function of the log, so a restart gives no burst (queues 1)."""

from __future__ import annotations

from topics.kernel.config import RateLimit


class Bucket:
    """`tokens` as of `tokens_ms`, in parts of `limit.per_ms` a job. It begins full, whatever the limit is."""

    __slots__ = ("tokens", "tokens_ms")

    def __init__(self, tokens: int = 0, tokens_ms: int = 0) -> None:
        self.tokens, self.tokens_ms = tokens, tokens_ms

    def at(self, now_ms: int, limit: RateLimit) -> int:
        """How full it is."""
        return min(self.tokens + (now_ms - self.tokens_ms) * limit.count, limit.count * limit.per_ms)

    def spend(self, jobs: int, ts: int, limit: RateLimit) -> None:
        """One a job that is handed out."""
        self.tokens, self.tokens_ms = self.at(ts, limit) - jobs * limit.per_ms, ts
