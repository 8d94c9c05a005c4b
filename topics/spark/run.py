"""One run of the sink, and until when the topics it writes to know what it has written (spark 3; decision 28).

A post that is repeated is known by its key, for the topic's `idempotency_window_ms` and no longer. Spark tells a task
neither when another try of it began nor, where it runs a whole stage again, that there was one. What is known for sure
is when the run began: before it nobody has posted anything of it. So a post is made only while a topic that was posted
to when the run began would still know it. Later than that it fails, whether there was another try or not.

A batch begins when the driver plans its write, which is after the shuffles in front of it; a micro-batch of a stream
when it is planned for the first time, as the note in its checkpoint says. The driver's clock and those of the executors
are taken to agree to `CLOCKS_MS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from topics.client.client import Client
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Rejected, TopicsError

CLOCKS_MS: Final = 1000
_MEND: Final = (
    "Give the topic an idempotency_window_ms that is longer than a run takes, before the next one begins. For this one "
    "that comes too late: see which of its rows the topic has, and write the others under a writeId of their own"
)


class KeysForgotten(TopicsError):
    """What an earlier try of a post has written may be there, and nobody knows any more."""


@attrs.frozen(kw_only=True)
class SinkRun:
    """`name`: of its keys. `began_ms`: by the driver's clock, before anybody posted anything of it. `window_ms`: how
    long the topic knew keys then; None: nobody asked, as where a column names the topics.
    """

    name: str
    began_ms: int
    window_ms: int | None


class Memory:
    """How long topics know the keys of a run, each asked once a task."""

    def __init__(self, run: SinkRun, client: Client, now_ms: Callable[[], int]) -> None:
        self._run = run
        self._client = client
        self._now_ms = now_ms
        self._windows: dict[str, int] = {}

    def refuse_late(self, topic: str) -> None:
        """Raises `KeysForgotten` if a post to the topic could be one that was made before and is forgotten."""
        told = self._late(topic)
        if told is not None:
            raise KeysForgotten(
                f"{told} What an earlier try of these rows has written would be there twice, so nothing was written "
                f"now. {_MEND}",
                topic=topic,
            )

    def refuse_late_answer(self, topic: str) -> None:
        """The same after a post whose key the topic did not know: it took too long to be sure."""
        told = self._late(topic)
        if told is not None:
            raise KeysForgotten(
                f"{told} A post was on its way meanwhile, and it has written its rows: they are there twice if an "
                f"earlier try had written them. {_MEND}",
                topic=topic,
            )

    def _late(self, topic: str) -> str | None:
        """What is to be told if the run began too long ago."""
        window_ms, age_ms = self._window_ms(topic), self._now_ms() - self._run.began_ms
        if age_ms < -CLOCKS_MS:
            return (
                f"topic {topic!r}: by the clock of this executor the run begins in {-age_ms} ms; the clocks of driver "
                f"and executors must agree to {CLOCKS_MS} ms."
            )
        if age_ms + CLOCKS_MS <= window_ms:
            return None
        return (
            f"topic {topic!r} knows what was written under a key for {window_ms} ms (idempotency_window_ms), and this "
            f"run began {age_ms} ms ago."
        )

    def _window_ms(self, topic: str) -> int:
        held = self._windows.get(topic)
        if held is None:
            held = window_of(self._client, topic)
            if self._run.window_ms is not None:
                held = min(held, self._run.window_ms)  # a longer one counts for what is written from then on
            self._windows[topic] = held
        return held


def window_of(client: Client, topic: str) -> int:
    """How long a topic knows keys; of one that is not there yet, what it will have unless somebody says otherwise.

    Raises:
        Rejected: the key may not ask. The message says so.
    """
    try:
        config = client.config(topic)
    except Rejected as refused:
        if refused.code is not Code.FORBIDDEN:
            raise
        why = "the sink asks for its idempotency_window_ms: the token needs the scope read besides write"
        raise Rejected(Code.FORBIDDEN, f"topic {topic!r}: {refused.message}; {why}") from refused
    return (TopicConfig() if config is None else config).idempotency_window_ms
