"""One who watches topics through all lives of a server: slow now and then, cut off, going back, on streams and sockets.

What he asks is drawn once; what he was told is one history. A stream that breaks goes on by its last event's id, or by
an older one, and then he is told once more what lay behind that; in another life of the server, and on a socket, he
begins another watch from where he is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import trio

from topics.engine.replies import TopicState
from topics.kernel.config import Durability
from topics.log.reads.match import Match, Operator
from topics.simulation.clients.client import FrontDoor
from topics.simulation.clients.http_messages import SimulatedRequest, fields_of
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.socket_speaker import SocketSpeaker
from topics.simulation.watches.event_speaker import EventSpeaker
from topics.simulation.watches.watch_history import Place, WatchHistory
from topics.simulation.watches.wire_watches import PagesOf, WireWatches
from topics.testing.streams import MemoryEdge

_SOCKETS: Final = 0.2
_REWINDS: Final = 0.4
_NEW: Final = 0.1  # another watch, though the stream could go on
_DAWDLES: Final = (0, 0, 0, 0, 0, 0.001, 0.02, 0.3)
_STUCK_S: Final = 40.0  # longer than a server waits for a peer that does not read
_STUCK: Final = 0.002
_LAST_TRIES: Final = 20
_PAUSES: Final = (0, 0.001, 0.02, 0.2)
_MATCHES: Final = (None, None, None, Match(Operator.EQ, b"red"), Match(Operator.GLOB, b"gr"))


class SimulatedWatcher:
    """`history`: of what he was told."""

    def __init__(self, world: FrontDoor, wire: WireWatches) -> None:
        self._world = world
        self._random = rng = world.random
        names = world.workload.names
        self.names = rng.sample(names, rng.randint(1, len(names)))
        nodes = rng.choice(((), (), (b"here",)))
        match = rng.choice(_MATCHES)
        self.is_strict = rng.random() < 0.3
        self._asked: dict[str, Any] = {
            "limit": rng.choice((1, 5, 256)),
            "max_batch_bytes": rng.choice((1, 600, 1 << 18)),
            "heartbeat_ms": rng.choice((1000, 15_000)),
            "consistency": "strong" if self.is_strict else "eventual",
            "node": [node.decode() for node in nodes],
            "match": None if match is None else match.wire(),
        }
        self.history = WatchHistory(PagesOf(wire, frozenset(nodes), match), is_strict=self.is_strict)
        self._path: str | None = None  # of the stream that can go on
        self._trail: list[tuple[str, dict[str, Place]]] = []  # its ids so far, and where he was behind each
        self._behind: set[str] = set()  # topics of the watch, whose end he has not heard of
        self._is_last = False

    async def run(self) -> None:
        """Through one life of the server, to its end or until this is cancelled."""
        self._path = None
        tries = 0
        while not (self._is_last and not self._behind) and (edge := self._world.connect()) is not None:
            tries += 1
            if self._is_last and tries > _LAST_TRIES:
                raise PromiseBroken(f"a watcher does not come to the end of {sorted(self._behind)}")
            try:
                await self._watch(edge)
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                self._world.counts["watches broken off"] += 1
            finally:
                edge.close()
            await trio.sleep(self._random.choice(_PAUSES))

    async def run_to_heads(self) -> None:
        """Through the last life, in which nothing is written, until he has heard of the end of each topic."""
        self._is_last, self._behind = True, set(self.names)
        await self.run()

    def check_at(self, states: Iterable[TopicState]) -> None:
        """He has come to these. Up to where an ephemeral topic was read, a strong watch does not say."""
        for state in states:
            is_said = not self.is_strict or state.config.durability is not Durability.EPHEMERAL
            place = self.history.places.get(state.topic)
            if state.topic in self.names and is_said and place != (state.head_seq, state.epoch):
                raise PromiseBroken(f"{state!r:.200}, and its watcher has come to {place}")

    async def _watch(self, edge: MemoryEdge) -> None:
        if self._random.random() < _SOCKETS:
            await self._watch_socket(SocketSpeaker(edge, self._random))
        else:
            await self._watch_stream(EventSpeaker(edge, self._random))

    # Over HTTP.

    async def _watch_stream(self, speaker: EventSpeaker) -> None:
        if self._path is None or not self._trail or self._random.random() < _NEW:
            if not await self._begin(speaker):
                return
        last_id = self._last_id()
        assert self._path is not None
        refused = await speaker.open(self._path, last_id)
        if refused is not None:
            if refused.code not in ("not_found", "shutting_down"):
                raise PromiseBroken(f"a stream was refused: {refused.text[:300]!r}")
            self._path = None  # all its topics were deleted
            return
        self._world.counts["watches: streams"] += 1
        left = self._visit_length()
        while left and (event := await speaker.event()) is not None:
            if event.name == "error":
                self._failed(event.fields)
            elif event.name:
                self._told(event.name, event.fields)
            if event.event_id:
                self._trail.append((event.event_id, dict(self.history.places)))
            if self._is_last and not self._behind:
                return
            left -= 1
            await self._dawdle()

    async def _begin(self, speaker: EventSpeaker) -> bool:
        self._path, self._trail = None, []
        body = json.dumps(self._asked | {"topics": self._starts()}).encode()
        request = SimulatedRequest(method=b"POST", path=b"/v0/watch?lenient=true", body=body)
        await speaker.send(request.encode(self._random))
        response = await speaker.answer()
        if response is None or not self._is_begun(response.fields, response.code, response.text):
            return False
        self._path = response.fields["stream_url"]
        return not response.closes

    def _last_id(self) -> str | None:
        """Where he says that he is: where he is, or he goes back."""
        if not self._trail:
            return None
        back = self._random.randrange(len(self._trail)) if self._random.random() < _REWINDS else -1
        last_id, places = self._trail[back]
        if back >= 0:
            del self._trail[back + 1 :]
            self.history.places.update(places)
            self._world.counts["watches: went back"] += 1
        return last_id

    # Over a WebSocket.

    async def _watch_socket(self, speaker: SocketSpeaker) -> None:
        self._path = None
        if not await speaker.open():
            return
        asked = {"op": "subscribe", "request_id": 1, "lenient": True, "topics": self._starts(), **self._asked}
        await speaker.say([json.dumps(asked).encode()])
        self._world.counts["watches: sockets"] += 1
        left = self._visit_length()
        while left and (text := await speaker.hear()) is not None:
            fields = fields_of(text)
            name = fields.pop("op").replace("_", "-")
            if fields.get("request_id") is not None:
                if not self._is_begun(fields, fields.get("code", ""), text):
                    return
            elif name == "error":
                self._failed(fields)
            else:
                self._told(name, fields)
            if self._is_last and not self._behind:
                return
            left -= 1
            await self._dawdle()

    # Both.

    def _starts(self) -> dict[str, dict[str, int]]:
        return {name: {} for name in self.names} | self.history.starts()

    def _is_begun(self, fields: Mapping[str, Any], code: str, text: bytes) -> bool:
        if "topics" not in fields:
            if code not in ("topic_not_found", "shutting_down", "storage_read_only"):
                raise PromiseBroken(f"a watch was refused: {text[:300]!r}")
            if code == "topic_not_found":
                self._behind = set()
            return False
        self.history.begun(fields["topics"])
        self._behind = set(fields["topics"])
        return True

    def _told(self, name: str, fields: Mapping[str, Any]) -> None:
        self.history.told(name, fields)
        if name in ("caught-up", "topic-deleted"):
            self._behind.discard(fields["topic"])

    def _failed(self, fields: Mapping[str, Any]) -> None:
        """A topic that cannot be read, or the stream ends: he comes again."""
        self._world.counts[f"watches: {fields.get('reason', fields.get('code'))}"] += 1
        if self._is_last:
            raise PromiseBroken(f"a watch failed where nothing does: {fields}")

    def _visit_length(self) -> int:
        return -1 if self._is_last else self._random.choice((1, 3, 8, 20, 1000))

    async def _dawdle(self) -> None:
        if not self._is_last:
            is_stuck = self._random.random() < _STUCK
            await trio.sleep(_STUCK_S if is_stuck else self._random.choice(_DAWDLES))
