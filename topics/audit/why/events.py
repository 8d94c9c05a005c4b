"""What the frames of a log say of one seq, in their order.

Where the fold has gone through, what ended it is what the fold saw. Before that, frames alone are told: they name jobs,
and deletes say what they delete; what a cap or a ttl took then is in no frame.
"""

from __future__ import annotations

import msgspec

from topics.audit.why.folding import End, WatchedSeqs, selector
from topics.audit.why.kept_log import At, KeptLog
from topics.audit.why.writes import name_of, put_event
from topics.codec.log.control import CheckpointMark, Control, Delete, WriteResult
from topics.codec.log.forwards import Forward, ForwardForm
from topics.codec.log.frame import Run
from topics.codec.log.leases import (
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    LeaseEvent,
    Moved,
    Purged,
    Released,
    ReleasedAll,
)
from topics.codec.why import Event
from topics.kernel.ids import lease_id
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.floors import Reason
from topics.log.reads.match import parse_match

ENDINGS = frozenset({"acked", "moved", "purged", "deleted", "expired", "evicted", "lost"})
_NAMES: dict[type[LeaseEvent], str] = {
    Claimed: "claimed", Extended: "extended", Released: "released", ReleasedAll: "released_all", Acked: "acked",
    DeadLettered: "dead_lettered", Moved: "moved", Purged: "purged",
}  # fmt: skip


def events_of(
    disk: Disk, log: KeptLog, watch: WatchedSeqs, topic_id: int, names: dict[int, str], seq: int, now_ms: int
) -> list[Event]:
    """`watch`: has seen the fold, if there was one."""
    story = _Story(disk, log, names, seq)
    end = watch.ends.get(seq)
    for at, is_folded in log.walk():
        if at.item.topic_id == topic_id:
            story.follow(at, end=end, may_end=not (is_folded and watch.has_folded(at)))
        elif isinstance(forward := getattr(at.item, "payload", None), Forward):
            story.copied(at, forward)
    return story.told(end, watch.passed, now_ms)


class _Story:
    """`held_until`: until when nobody else can get it: 0: it is not leased; None: the log does not go back so far."""

    def __init__(self, disk: Disk, log: KeptLog, names: dict[int, str], seq: int) -> None:
        self._disk, self._log, self._names, self._seq = disk, log, names, seq
        self._events: list[Event] = []
        self._nonce: int | None = None
        self._tag = b""
        self._held_until: int | None = None
        self._head: Control | None = None  # with which the write begins whose records come next
        self._has_ended = False

    def follow(self, at: At, *, end: End | None, may_end: bool) -> None:
        """The next item of its topic. `may_end`: no fold says what ended it there."""
        item, seq = at.item, self._seq
        if isinstance(item, Run):
            if item.seq_start <= seq < item.seq_stop:
                self._put(at, item)
            self._head = None
        elif item.write_frames > 1:
            self._head = item
        if isinstance(item, Control) and isinstance(item.payload, WriteResult):
            if any(named == seq for _, named in item.payload.duplicates):
                self._add(at, event="again", idempotency_key=_text(item.payload.key))
        if isinstance(item, Control) and isinstance(item.payload, CheckpointMark):
            if item.payload.first <= seq <= item.payload.last:
                self._add(at, event="stored")
        if end is not None and end.at is not None and (end.at.file, end.at.item.offset) == _place(at):
            self._end(at, end)
        elif isinstance(item, Control) and not self._has_ended:
            self._control(at, item, may_end=may_end)

    def copied(self, at: At, forward: Forward) -> None:
        """A router has dealt with what its source, this topic, has had."""
        if not forward.first <= self._seq <= forward.last:
            return
        is_trimmed = forward.form is ForwardForm.TRIMMED
        seqs = () if is_trimmed else forward.seqs()
        is_copied = self._seq in seqs
        self._events.append(
            Event(
                ts=at.item.ts,
                event="copied" if is_copied else "left_out",
                file=at.path,
                offset=at.item.offset,
                router=name_of(self._names, forward.router),
                dest=name_of(self._names, at.item.topic_id),
                dest_seq=forward.dest_first + seqs.index(self._seq) if is_copied else None,
                reason=Reason.SOURCE_TRIM.value if is_trimmed else None,
            )
        )

    def told(self, end: End | None, passed: End | None, now_ms: int) -> list[Event]:
        if end is not None and end.at is None and not self._has_ended:
            self._events.append(_of_time(end))
        elif end is None and not self._has_ended:
            self._lease_ran_out(now_ms)
        if passed is not None:
            at = passed.at
            self._events.append(
                Event(
                    ts=passed.ts, event="passed", reason=passed.reason,
                    file=None if at is None else at.path, offset=None if at is None else at.item.offset,
                )
            )  # fmt: skip
        # A sync is told of with the put; of one ms, it comes behind what else happened in it.
        return sorted(self._events, key=lambda event: (event.ts, event.event == "synced"))

    def _put(self, at: At, run: Run) -> None:
        self._tag = b"" if run.tags is None else run.tags[self._seq - run.seq_start]
        self._held_until = 0
        put = put_event(self._disk, at, run, self._seq, self._head, self._names)
        self._events.append(put)
        synced = self._log.synced(at.file, run.offset + run.length)
        if synced is not None:
            self._events.append(Event(ts=synced[0], event="synced", file=self._log.paths[synced[1]]))

    def _end(self, at: At, end: End) -> None:
        """As the fold saw it; of a lease event with what that says besides."""
        payload = at.item.payload if isinstance(at.item, Control) else None
        if isinstance(payload, LeaseEvent):
            told = self._said(payload, at.item.ts) or {}
            self._add(at, event=end.state, **told)
        elif end.state == "lost" and end.reason in ("cap", "ttl"):
            self._add(at, event="evicted", reason=end.reason, first_seq=end.first_seq, last_seq=end.last_seq)
        else:
            self._add(at, event=end.state, reason=end.reason, first_seq=end.first_seq, last_seq=end.last_seq)
        self._has_ended = True

    def _control(self, at: At, item: Control, *, may_end: bool) -> None:
        if isinstance(item.payload, Delete):
            told, event = self._deleted(item.payload), "deleted"
        elif isinstance(item.payload, LeaseEvent):
            event = _NAMES.get(type(item.payload), "")
            told = self._said(item.payload, item.ts)
        else:
            return
        if told is None or (event in ENDINGS and not may_end):
            return
        if isinstance(item.payload, LeaseEvent):
            self._held_until = _held_until(item.payload, told)
        self._add(at, event=event, **told)
        self._has_ended = event in ENDINGS and (event != "purged" or self._held_until is not None)

    def _add(self, at: At, *, event: str, **told: object) -> None:
        self._lease_ran_out(at.item.ts)
        fields = {"ts": at.item.ts, "event": event, "file": at.path, "offset": at.item.offset, **told}
        self._events.append(msgspec.convert(fields, Event))

    def _lease_ran_out(self, ts: int) -> None:
        """No frame says that a lease ran out; what comes behind it shows that it did."""
        until = self._until
        if until is not None and until < ts:
            self._events.append(Event(ts=until, event="lease_ended"))

    @property
    def _until(self) -> int | None:
        last = next((one for one in reversed(self._events) if one.event not in _BESIDE), None)
        return None if last is None else last.deadline

    def _deleted(self, event: Delete) -> dict[str, object] | None:
        before_seq = event.upto + 1 if event.before_seq is None else event.before_seq
        if self._seq > event.upto or self._seq >= before_seq:
            return None
        if event.match is not None:
            match = parse_match(msgspec.json.decode(event.match), tag_bytes_max=U64_MAX)
            if not match.accepts(self._tag):
                return None
        return {"reason": selector(event)}

    def _said(self, event: LeaseEvent, ts: int) -> dict[str, object] | None:
        """What an event of leases says of this seq; None if it is not of it."""
        seq = self._seq
        is_held = None if self._held_until is None else self._held_until >= ts
        match event:
            case ReleasedAll(reason=reason):
                return {"reason": _text(reason)} if is_held else None
            case Purged(upto=upto):
                return {} if seq <= upto and not is_held else None
            case Claimed() | Extended() | Released() | Acked() | DeadLettered() | Moved():
                if seq not in event.seqs:
                    return None
            case _:
                return None
        return self._named(event, event.seqs.index(seq))

    def _named(self, event: LeaseEvent, i: int) -> dict[str, object]:
        match event:
            case Claimed():
                self._nonce = event.nonce
                first = 0
                for node, deadline, jobs in event.grants:
                    first += jobs
                    if i < first:
                        given = lease_id(event.nonce, event.first_lease + i)
                        return {"node": _text(node), "lease_id": given, "deadline": deadline}
            case DeadLettered(dest=dest, reason=reason):
                return {"dest": _text(dest), "reason": _text(reason)}
            case Extended() | Released() | Acked():
                lease = None if self._nonce is None else lease_id(self._nonce, event.leases[i])
                told: dict[str, object] = {"node": _text(event.node) or None, "lease_id": lease}
                if isinstance(event, Extended):
                    told["deadline"] = event.deadline
                if isinstance(event, Released):
                    told |= {"reason": _text(event.reason) or None, "ready_at": event.ready_at[i]}
                return told
            case _:
                pass
        return {}


_BESIDE = frozenset({"synced", "stored", "again", "copied", "left_out"})  # they are not of its lease


def _place(at: At) -> tuple[object, int]:
    return at.file, at.item.offset


def _of_time(end: End) -> Event:
    """What time alone has ended: the next frame of the topic will say so."""
    event = "evicted" if end.state == "lost" else end.state
    return Event(ts=end.ts, event=event, reason=end.reason)


def _held_until(event: LeaseEvent, told: dict[str, object]) -> int | None:
    """Until when nobody else can get it, behind an event of it."""
    match event:
        case Claimed() | Extended():
            deadline = told["deadline"]
            assert isinstance(deadline, int)
            return deadline
        case DeadLettered():
            return U64_MAX
        case _:
            return 0


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
