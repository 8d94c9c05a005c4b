"""Watches by their ids: they outlive the streams that serve them (http-api 9).

A session knows the topics of a watch and how far it has come in each. It has one stream at most: a second one
supersedes the first. Without a stream it ends after a while; with one it never does.

Where a stream begins: at what an earlier one has surely sent, unless the client says (`Last-Event-ID`) what has come;
that may be less, or more if the earlier one was cut off, but never more than was made. Above so many topics an id does
not say it all: then the session keeps, event by event, where each topic stood before.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from topics.embed.aio.watcher import Watched
from topics.embed.aio.wheel import Wheel
from topics.kernel.errors import Code, Rejected
from topics.kernel.ports import Entropy
from topics.server.api.slots import ConcurrencyLimit
from topics.server.api.watching.frames import checkpoint_id, id_of, id_of_one, parse_id
from topics.server.auth.keys import Key
from topics.server.runtime.log import log

SESSION_TTL_MS: Final = 300_000
PLAIN_ID_TOPICS_MAX: Final = 64
TRAIL_MAX: Final = 16_384  # events that a client may have missed and say so
_WID_BYTES: Final = 18  # of randomness: 144 bits


class Superseded(Protocol):
    """A stream, as its session knows it."""

    def supersede(self) -> None:
        """Another one serves the session: leave it."""
        ...


@attrs.frozen
class _Before:
    """Event `number` moved the topic on from here."""

    number: int
    topic: str
    cursor: int
    epoch: int


_NO_TRAIL: Final[deque[_Before]] = deque(
    maxlen=TRAIL_MAX
)  # shared, and stays empty: of watches whose ids say it all


class WatchSession:
    """A watch. `key`: whose it is. `epochs`: of its topics, as they were when it began. `epoch`: of the only one."""

    __slots__ = (
        "_begun", "_sessions", "_trail", "_trail_from", "epoch", "epochs", "gone", "heartbeat_s", "is_over", "key",
        "number", "stream", "subscriptions", "tick", "wid",
    )  # fmt: skip

    def __init__(
        self,
        sessions: WatchSessions,
        wid: str,
        key: Key,
        subscriptions: Mapping[str, Watched],
        epochs: Mapping[str, int],
        heartbeat_s: float,
    ) -> None:
        self._sessions = sessions
        self.wid = wid
        self.key = key
        self.subscriptions = dict(subscriptions)
        self.gone: dict[str, Watched] = {}  # those whose end was told, unless a client says that it was not
        self.epochs = epochs
        self.epoch = next(iter(epochs.values())) if len(epochs) == 1 else None
        self.heartbeat_s = heartbeat_s
        self.stream: Superseded | None = None
        self.is_over = False
        self.tick: int | None = None  # of the wheel
        self.number = 0  # of the last event
        self._trail = _NO_TRAIL
        self._trail_from = 0  # the event behind which the trail begins,
        self._begun: dict[str, tuple[int, int]] = {}  # and where the topics stood there

    # Streams.

    def attach(self, stream: Superseded, last_id: bytes) -> None:
        """From here on this stream serves it, from where it is known to have come."""
        assert not self.is_over
        if self.stream is not None:
            self.stream.supersede()
        assert self.stream is None
        self.stream = stream
        self._sessions.wheel.drop(self)
        places = self._places(last_id)
        for topic in self.gone.keys() & places.keys():
            self.subscriptions[topic] = self.gone.pop(topic)
        for subscription in self.subscriptions.values():
            subscription.begin(*places.get(subscription.topic, subscription.sure))
        if len(self.epochs) > PLAIN_ID_TOPICS_MAX:
            self._trail = deque(maxlen=TRAIL_MAX)
            self._trail_from = self.number
            self._begun = {topic: one.sure for topic, one in self.subscriptions.items()}

    def told_gone(self, subscription: Watched) -> None:
        """Its client was told that there is nothing more of it."""
        self.gone[subscription.topic] = self.subscriptions.pop(subscription.topic)

    def detach(self) -> None:
        """Its stream has ended."""
        self.stream = None
        if not self.is_over:
            self._sessions.wheel.set(self, trio.current_time() + self._sessions.ttl_s)

    def due(self) -> None:
        """Nobody came in time."""
        log.debug("watch.expired", topics=len(self.subscriptions))
        self.end()

    def end(self) -> None:
        """Nobody will find it any more."""
        if not self.is_over:
            self.is_over = True
            self._sessions.wheel.drop(self)
            self._sessions.forget(self)

    # Ids.

    def event_id(self, subscription: Watched, cursor: int, epoch: int, *, before: tuple[int, int]) -> bytes:
        """Of an event behind which this topic stands there. `before`: where it stood."""
        self.number += 1
        if len(self.epochs) > PLAIN_ID_TOPICS_MAX:
            self._trail.append(_Before(self.number, subscription.topic, *before))
            return checkpoint_id(self.number)
        if len(self.subscriptions) == 1 and not subscription.is_gone:
            return id_of_one(subscription.topic, self._shown(subscription.topic, cursor, epoch))
        places = self._live_places()
        if not subscription.is_gone:
            places[subscription.topic] = self._shown(subscription.topic, cursor, epoch)
        return id_of(places)

    def id(self) -> bytes:
        """Of where everything stands now."""
        if len(self.epochs) > PLAIN_ID_TOPICS_MAX:
            return checkpoint_id(self.number)
        return id_of(self._live_places())

    def _live_places(self) -> dict[str, int | tuple[int, int]]:
        return {
            topic: self._shown(topic, one.cursor, one.epoch)
            for topic, one in self.subscriptions.items()
            if not one.is_gone
        }

    def _shown(self, topic: str, cursor: int, epoch: int) -> int | tuple[int, int]:
        return cursor if epoch == self.epochs[topic] else (cursor, epoch)

    def _places(self, last_id: bytes) -> dict[str, tuple[int, int]]:
        """Where each topic stands by what a client says has arrived; none if it says nothing that can be."""
        said = parse_id(last_id)
        if said is None:
            return {}
        if isinstance(said, int):
            return self._places_at(said)
        found: dict[str, tuple[int, int]] = {}
        for topic, place in said.items():
            subscription = self.subscriptions.get(topic) or self.gone.get(topic)
            if subscription is None:
                continue
            cursor, epoch = place if isinstance(place, tuple) else (place, self.epochs[topic])
            if epoch == subscription.epoch:
                found[topic] = min(cursor, subscription.cursor), epoch
            elif epoch < subscription.epoch:
                found[topic] = cursor, epoch
        return found

    def _places_at(self, number: int) -> dict[str, tuple[int, int]]:
        if not self._trail_from <= number <= self.number:
            return {}
        if (
            self._trail and number < self._trail[0].number - 1
        ):  # more was missed than is known: all of it again
            return self._begun
        found = {topic: (one.cursor, one.epoch) for topic, one in self.subscriptions.items()}
        for before in reversed(self._trail):
            if before.number <= number:
                break
            found[before.topic] = before.cursor, before.epoch
        return found


class WatchSessions:
    """All of a server. `most`: at a time, 0 for any number."""

    def __init__(
        self, entropy: Entropy, wheel: Wheel, slots: ConcurrencyLimit, *, ttl_ms: int = SESSION_TTL_MS
    ) -> None:
        self.wheel = wheel
        self.ttl_s = ttl_ms / 1000
        self._entropy = entropy
        self._slots = slots
        self._by_wid: dict[str, WatchSession] = {}

    def begin(self, key: Key, subscriptions: Sequence[Watched], *, heartbeat_s: float) -> WatchSession:
        """A new one, which waits for its stream, and ends when its key is revoked. Raises `Rejected(throttled)`."""
        key.begin_session()
        try:
            self._slots.take()
        except Rejected:
            key.end_session()
            raise
        wid = "wid_" + urlsafe_b64encode(self._entropy.token(_WID_BYTES)).decode()
        assert wid not in self._by_wid
        by_topic = {one.topic: one for one in subscriptions}
        epochs = {one.topic: one.epoch for one in subscriptions}
        session = self._by_wid[wid] = WatchSession(self, wid, key, by_topic, epochs, heartbeat_s)
        session.detach()
        key.bind(session.end)
        return session

    def find(self, wid: str, key: Key) -> WatchSession:
        """That of this key. Raises `Rejected(not_found)`: of another's nobody learns that it is there."""
        session = self._by_wid.get(wid)
        if session is None or session.key is not key:
            raise Rejected(
                Code.NOT_FOUND,
                "wid: there is no such watch; it ends with the server, 300 s after its last stream, and with the"
                " last of its topics: ask for a new one with POST /v0/watch, from the seqs that you have",
            )
        return session

    def forget(self, session: WatchSession) -> None:
        del self._by_wid[session.wid]
        session.key.unbind(session.end)
        session.key.end_session()
        self._slots.give()
