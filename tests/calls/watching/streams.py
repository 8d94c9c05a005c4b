"""A server's history as frames of http-api 9, over connections that are cut after so many bytes. It counts as given
what it has sent, arrived or not: whoever comes again without an id has missed it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from topics.calls.patience import Pace, Patience
from topics.calls.retry import HttpAnswer, Line, Send, Sleep
from topics.calls.trouble import Trouble, Unreachable
from topics.calls.watching.course import Course
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rules import WatchRules
from topics.calls.watching.session import Receive, RemoteWatch
from topics.kernel.errors import TopicsError
from topics.kernel.limits import Limits

URL = "http://topics.example"


@attrs.frozen
class Frame:
    """An event of a topic, behind which it stands at `to`."""

    topic: str
    name: str
    to: int
    fields: dict[str, Any]


def records(topic: str, *seqs: int) -> Frame:
    sent = [{"$seq": seq, "$ts": 1, "data": f"{topic}{seq}"} for seq in seqs]
    return Frame(
        topic,
        "record",
        seqs[-1],
        {"records": sent, "from_seq": seqs[0] - 1, "to_seq": seqs[-1], "head_seq": 99},
    )


def tombstone(topic: str, first: int, last: int, **more: Any) -> Frame:
    fields = {"reason": "cap", "gap_from": first, "gap_to": last, "earliest_seq": last + 1, "head_seq": 99}
    return Frame(topic, "tombstone", last, fields | more)


@attrs.define
class History:
    """`cuts`: after how many bytes each connection breaks; the others do not. `forgets`: sessions that are gone."""

    frames: Sequence[Frame]
    cuts: Sequence[int] = ()
    forgets: frozenset[int] = frozenset()
    opened: int = 0
    posts: list[dict[str, Any]] = attrs.field(factory=list)
    ids: list[str] = attrs.field(factory=list)
    sessions: dict[str, dict[str, int]] = attrs.field(factory=dict)
    commits: list[int] = attrs.field(factory=list)
    stream: Iterator[bytes] = attrs.field(factory=lambda: iter(()))

    def answer(self, step: Any) -> Any:
        match step:
            case Send(request) if request.path.endswith("/commit"):
                self.commits.append(json.loads(request.body or b"")["seq"])
                return self.committed()
            case Send(request) if request.method == "POST":
                return self._begin(json.loads(request.body or b""))
            case Send(request):
                return self._open(request.path.rpartition("/")[2], request.headers.get("last-event-id", ""))
            case Receive():
                return next(self.stream, b"")
        assert isinstance(step, Sleep)
        assert 0 < step.seconds <= 1
        return None

    def committed(self) -> HttpAnswer:
        """What is answered to the last commit."""
        stands = {"from_seq": self.commits[-1], "lag": 0, "epoch": 1, "updated_ts": 1, "moved": True}
        return HttpAnswer(200, json.dumps({"topic": "a", "consumer": "c", **stands}).encode())

    def _begin(self, asked: dict[str, Any]) -> HttpAnswer:
        self.posts.append(asked)
        wid = f"wid_{len(self.posts)}"
        places = {name: start.get("from_seq", 0) for name, start in asked["topics"].items()}
        self.sessions[wid] = dict(places)
        there = {
            name: {"from_seq": seq, "head_seq": 99, "earliest_seq": 1, "epoch": 1}
            for name, seq in places.items()
        }
        return HttpAnswer(200, json.dumps({"wid": wid, "stream_url": "", "topics": there}).encode())

    def _open(self, wid: str, last_id: str) -> HttpAnswer:
        self.opened += 1
        self.ids.append(last_id)
        if self.opened in self.forgets:
            return HttpAnswer(404, b'{"error":{"code":"not_found","message":"no such watch"}}')
        places = self.sessions[wid]
        if last_id:
            places |= json.loads(urlsafe_b64decode(last_id + "=="))
        sent = b"".join(self._frames(places))
        if self.opened <= len(self.cuts):
            sent = sent[: self.cuts[self.opened - 1]]
        self.stream = iter([sent[i : i + 7] for i in range(0, len(sent), 7)])
        return HttpAnswer(200, b"")

    def _frames(self, places: dict[str, int]) -> Iterator[bytes]:
        yield b"retry: 2000\n\n"
        for frame in self.frames:
            place = places.get(frame.topic, 99)
            if frame.to > place or (frame.name == "caught-up" and frame.to == place):
                places[frame.topic] = frame.to
                last = urlsafe_b64encode(json.dumps(places).encode()).rstrip(b"=").decode()
                data = json.dumps({"topic": frame.topic, **frame.fields}, indent=1).replace("\n", "\ndata: ")
                yield f"event: {frame.name}\ndata: {data}\nid: {last}\n\n".encode()
        for topic in places:
            deleted = json.dumps({"topic": topic, "head_seq": 99, "reason": "deleted"})
            yield f"event: topic-deleted\ndata: {deleted}\n\n: hb 1\n\n".encode()


def watched(history: Any, *topics: Any, count: int | None = None, **rules: Any) -> tuple[list[Any], Cursors]:
    """The values of a watch, or so many, and where it then is."""
    asked = WatchRules(topics[0] if isinstance(topics[0], dict) else topics, **rules).asked(Limits())
    cursors = Cursors(asked.starts)
    line = Line(URL, Patience(), Pace(now_s=lambda: 0.0, chance=lambda: 0.5))
    course, values = Course(RemoteWatch(cursors, asked, line).steps()), []
    while len(values) != count:
        if (value := course.value()) is not None:
            values.append(value)
        elif course.is_over:
            break
        else:
            try:
                given = history.answer(course.step)
            except TopicsError as error:
                course.refused(error)
            else:
                course.answered(given)
    return values, cursors


def lost() -> Unreachable:
    return Unreachable(Trouble.LOST, URL, "lost", sent=True)
