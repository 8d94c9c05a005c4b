"""How a record and a tombstone look on one line: for people, or as JSON.

For people: seq, time, origin, tag, key and the payload as stored, cut at the edge of a terminal and nowhere else. As
JSON: a record as the wire writes it, but on one line, and a tombstone as `{"tombstone": {…}}`, so that no loss is
silent there either.
"""

from __future__ import annotations

from typing import Final

from topics.calls.page import Page, Record, tombstone_fields
from topics.cli.io.quantities import counted, moment, seqs
from topics.cli.io.terminal import TerminalStyle, safe
from topics.log.floors import Gap, Reason

Item = Record | Gap
_ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

_WHY = {
    "cap": "evicted by the topic's cap",
    "ttl": "expired by the topic's ttl",
    "mixed": "for more than one reason, which topics why --reader tells",
    "crash": "lost with the machine's power",
    "corrupt": "damaged, and repaired away",
    "restart": "ephemeral, and the process restarted",
    "source_trim": "lost in the router's source, or longer than this topic's max_record_bytes",
}
# Their tombstone reaches over what had been deleted or had expired by itself, too (semantics 4).
_REACHES_FURTHER = frozenset({Reason.CAP, Reason.TTL})


def on_one_line(text: bytes) -> bytes:
    """JSON text, in which a bare line end can only be white space."""
    return text.translate(_ON_ONE_LINE)


def items(page: Page) -> list[Item]:
    """The tombstone first: it is about the seqs before the records."""
    return [*([] if page.tombstone is None else [page.tombstone]), *page.records]


def json_line(item: Item, topic: str | None = None) -> bytes:
    """One line. `topic`: named too, where lines of several are mixed."""
    import msgspec

    named = b"" if topic is None else b'"topic":%b,' % msgspec.json.encode(topic)
    if isinstance(item, Gap):
        return b'{%b"tombstone":%b}\n' % (named, msgspec.json.encode(tombstone_fields(item)))
    return b"{%b%b\n" % (named, on_one_line(item.json()[1:]))


def job_line(job: Record, told: dict[str, object]) -> bytes:
    """One line of JSON: the record, and what it is as a job."""
    import msgspec

    return json_line(job)[:-2] + b"," + msgspec.json.encode(told)[1:] + b"\n"


def text_line(
    item: Item, pen: TerminalStyle, topic: str | None = None, *, is_full: bool = False, asked: int = 0
) -> bytes:
    """One line for people. `asked`: as of `gap_text`."""
    if isinstance(item, Gap):
        plain = gap_text(item, asked)
        painted = pen.paint(plain, "red", bold=True)
    else:
        plain, painted = _record(item, pen)
    if topic is not None:
        plain, painted = f"{topic}  {plain}", f"{pen.paint(topic, 'cyan')}  {painted}"
    if isinstance(item, Record):
        text = data_on_one_line(item)
        room = pen.width - len(plain)
        if pen.width and not is_full and len(text) > room:
            text = text[: max(room - 1, 0)] + "\u2026"
        painted += text
    return f"{painted}\n".encode(errors="backslashreplace")


def gap_text(gap: Gap, asked: int = 0) -> str:
    """A tombstone in words. `asked`: from which seq, of no epoch, somebody wanted to read."""
    gone = seqs(gap.gap_from, gap.gap_to)
    if gap.reason is Reason.RECREATED:  # what is there of this range follows
        left = "it is empty" if gap.gap_to < gap.gap_from else f"what does not follow of {gone} is gone"
        where = (
            "the position" if asked <= gap.head_seq else f"{asked} is beyond the head ({gap.head_seq}), so it"
        )
        anew = f"{where} is not of this topic as it is now, which is read from its beginning"
        return f"\u2205 [recreated] {anew}; {left}"
    why = _WHY[gap.reason.value]
    if gap.missed_estimate > 1 and gap.reason in _REACHES_FURTHER:
        why += ", or gone before"
    return f"\u2205 LOST {gone} [{gap.reason.value}] {counted(gap.missed_estimate, 'record')}: {why}"


def _record(record: Record, pen: TerminalStyle) -> tuple[str, str]:
    seq, when = f"{record.seq:>6}", moment(record.ts)
    marks = [
        f"{name}{safe(text)}"
        for name, text in (("", record.tag), ("key=", record.key), ("node=", record.node))
        if text is not None
    ]
    mark = " ".join(marks)
    plain = f"{seq}  {when}  " + (f"{mark}  " if mark else "")
    painted = f"{pen.paint(seq, bold=True)}  {pen.paint(when, dim=True)}  "
    return plain, painted + (f"{pen.paint(mark, 'green')}  " if mark else "")


def data_on_one_line(record: Record) -> str:
    """The data as stored, on one line."""
    if record.content_type is not None:
        return f"<{counted(len(record.raw), 'byte')} of {safe(record.content_type)}> {record.raw[:60]!r}"
    return safe(on_one_line(record.raw).decode(errors="replace"))
