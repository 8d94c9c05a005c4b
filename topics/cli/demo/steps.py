"""Steps of the demo: load, read back, crash, floors. Each compares what the store answers with the input file, or with
what was promised.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

import topics
from topics.cli.demo import clients
from topics.cli.demo.proof import WRITERS, TopicProof
from topics.cli.io.lines import gap_text
from topics.cli.io.quantities import counted, moment, size

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore
    from topics.cli.demo.input import Input
    from topics.cli.demo.private_server import PrivateServer
    from topics.cli.demo.story import Story

BATCHES: Final = 20
BATCH_MAX: Final = 1000
CRASH_ROWS: Final = 500
CAP: Final = 5
WRITTEN: Final = 12
DRAFTS: Final = frozenset({3, 9, 11})


@attrs.frozen
class LoadTimes:
    """When each batch was committed: (ts, records)."""

    batches: list[tuple[int, int]]


# 1


def load(story: Story, server: PrivateServer, store: TopicStore, given: Input) -> LoadTimes:
    """Append the whole file over HTTP, with somebody following."""
    store.create(given.topic)
    tail = clients.TailThread(server, given.topic)
    try:
        loaded = _append(story, store, given)
        tail.read_to(len(given.rows))
    finally:
        tail.close()
    told = tail.told_once(given.rows)
    story.prove("followed while it was written, each once, in order", expected=len(given.rows), found=told)
    return loaded


def _append(story: Story, store: TopicStore, given: Input) -> LoadTimes:
    by = f", tagged by its field {given.tag_field}" if given.tag_field else ""
    story.begin("Load", f"Append every line of the file to topic {given.topic!r}{by}.")
    topic = store.topic(given.topic)
    step = min(max(len(given.rows) // BATCHES, 1), BATCH_MAX)
    batches = []
    started = time.monotonic()
    with story.bar("appending", len(given.rows)) as advance:
        for at in range(0, len(given.rows), step):
            batch = [
                {"data": topics.Raw(row), "tag": tag}
                for row, tag in zip(given.rows[at : at + step], given.tags[at : at + step], strict=True)
            ]
            topic.put_many(batch)
            batches.append((topic.state().last_write_ts or 0, len(batch)))
            advance(at + len(batch))
    took_ms = (time.monotonic() - started) * 1000
    total = size(sum(map(len, given.rows)))
    story.prove("records stored, one a line", expected=len(given.rows), found=topic.state().count)
    story.say(
        f"{total} in {took_ms:,.0f} ms and {counted(len(batches), 'write')}, each of them all or nothing."
    )
    return LoadTimes(batches)


# 2


def read_back(story: Story, store: TopicStore, given: Input, loaded: LoadTimes) -> None:
    """By seq, tag and time, beside the file."""
    story.begin("Read back", "By seq, by tag, by time; each answer is compared with the file itself.")
    topic = store.topic(given.topic)
    stored = [item.raw for item in topic.records() if isinstance(item, topics.Record)]
    same = sum(a == b for a, b in zip(stored, given.rows, strict=False))
    story.prove("records in order, byte for byte", expected=len(given.rows), found=same)
    by_tag = Counter(tag for tag in given.tags if tag is not None)
    common = by_tag.most_common(1)[0][0] if by_tag else None
    if common is not None:
        story.prove(
            f"records tagged {common!r}", expected=by_tag[common], found=_count(topic, match=common)
        )  # fmt: skip
        right = sum(_count(topic, match=tag) == count for tag, count in by_tag.items())
        story.prove("tags counted as in the file", expected=len(by_tag), found=right)
    since = loaded.batches[len(loaded.batches) // 2][0]
    later = sum(count for ts, count in loaded.batches if ts >= since)
    story.prove(f"records since {moment(since)[11:]}", expected=later, found=_count(topic, from_ts=since))
    account = _account(store, topic, match=common)
    story.prove("seqs accounted for", expected=topic.state().head_seq, found=sum(account.values()))
    story.say(
        f"Reading only what is tagged {common!r}: {_words(account)}." if common else f"{_words(account)}."
    )


def _count(topic: Topic, **how: Any) -> int:
    return sum(isinstance(item, topics.Record) for item in topic.records(**how))


def _account(store: TopicStore, topic: Topic, *, match: str | None) -> dict[str, int]:
    """What became of every seq of a topic, from its beginning to its head."""
    sums: dict[str, int] = {}
    cursor, is_read = 0, False
    while not is_read:
        page = topic.read(from_seq=cursor, limit=store.limits.read_limit, match=match, account=True)
        assert page.account is not None
        for name, count in attrs.asdict(page.account).items():
            sums[name] = sums.get(name, 0) + count
        cursor, is_read = page.next_from_seq, page.caught_up
    return sums


def _words(account: dict[str, int]) -> str:
    words = " + ".join(f"{count:,} {name.replace('_', '-')}" for name, count in account.items() if count)
    return f"{words} = {sum(account.values()):,} seqs"


# 3


def _prove_survival(story: Story, findings: list[TopicProof]) -> None:
    for found in findings:
        name = f"{found.topic} ({found.durability})"
        story.prove(f"{name}: acked records intact", expected=found.acked_records, found=found.intact_records)
        story.prove(f"{name}: seqs up to the head", expected=found.head_seq, found=found.delivered)
        story.prove(f"{name}: holes, tombstones", expected=0, found=found.holes)
        story.prove(f"{name}: seqs accounted for", expected=found.head_seq, found=found.accounted)
    partial = sum(found.torn_writes + found.foreign for found in findings)
    story.prove("writes there in part, or altered", expected=0, found=partial)
    unacked = sum(found.unacked_writes for found in findings)
    story.prove("writes there that nobody was told of", expected=0, found=unacked)


def crash(
    story: Story, server: PrivateServer, given: Input, *, kills: int, acks: Callable[[], int]
) -> None:  # fmt: skip
    """Kill the server, start it again, and go on; then compare."""
    threads = Counter(writer.durability for writer in WRITERS)
    classes = ", ".join(f"{count} in class {name}" for name, count in sorted(threads.items(), reverse=True))
    story.begin(
        "Crash",
        f"{len(WRITERS)} clients write ({classes}) and one follows topic {WRITERS[0].topic!r} from its beginning, by"
        f" server-sent events. The server gets SIGKILL in mid-write, {counted(kills, 'time')}, and is started again;"
        " the clients live on.",
    )
    end = clients.crash(story, server, given, rows=CRASH_ROWS, kills=kills, acks=acks)
    _prove_survival(story, end.findings)
    told, head = end.tail.told_once(end.stored), len(end.stored)
    story.prove(f"{WRITERS[0].topic}: followed, each once, in order", expected=head, found=told)
    story.prove("tombstones the follower got", expected=0, found=end.tail.gaps)


# 4


def floors(story: Story, store: TopicStore, given: Input) -> None:
    """What a reader is told of records that are gone."""
    from rich.text import Text

    story.begin(
        "Floors",
        f"A topic that keeps {CAP} records gets {WRITTEN}, then those tagged 'draft' are deleted. Every reader is told"
        " what was lost; what was deleted on purpose is silent, and still accounted for.",
    )
    topic = store.create("latest", cap_records=CAP)
    rows = [given.rows[seq % len(given.rows)] for seq in range(1, WRITTEN + 1)]
    topic.put_many(
        [
            {"data": topics.Raw(row), "tag": "draft" if seq in DRAFTS else "final"}
            for seq, row in enumerate(rows, 1)
        ]
    )
    topic.delete(match="draft")
    page = topic.read(account=True)
    state, gap = topic.state(), page.tombstone
    _draw(story, {record.seq for record in page.records}, state)
    lost = WRITTEN - CAP
    deleted = sum(seq > lost for seq in DRAFTS)
    if gap is not None:
        story.show(Text(gap_text(gap), "bold red"))
    story.prove(
        "tombstone for whoever reads from 0",
        expected=f"1\u2013{lost} cap",
        found="none" if gap is None else f"{gap.gap_from}\u2013{gap.gap_to} {gap.reason.value}",
    )
    story.prove("evict_floor", expected=lost + 1, found=state.evict_floor)
    account = {} if page.account is None else attrs.asdict(page.account)
    told = {name: account.get(name) for name in ("delivered", "lost", "deleted")}
    expected = {"delivered": CAP - deleted, "lost": lost, "deleted": deleted}
    for name, count in expected.items():
        story.prove(f"account: {name}", expected=count, found=told[name])
    story.say(f"{_words(account)}.")


def _draw(story: Story, live: set[int], state: topics.TopicState) -> None:
    from rich.text import Text

    cells = Text("seqs   ")
    for seq in range(1, state.head_seq + 1):
        style = "red" if seq < state.evict_floor else "bold green" if seq in live else "dim"
        mark = "\u2205" if seq < state.evict_floor else "" if seq in live else "\u2212"
        cells.append(f"{mark}{seq}", style)
        cells.append("  ")
    story.show(cells)
    story.show(Text("       \u2205 lost to the cap  \u2212 deleted on purpose", "dim"))
