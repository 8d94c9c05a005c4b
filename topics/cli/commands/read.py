"""`get` and `tail`: records to standard output, tombstones where records were lost.

`get` reads one topic in seq order up to its head; `tail` the latest of one or more topics, by time, and then what
comes, as it comes.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import click

from topics.cli.completion.types import CONSUMER, TOPIC
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import parse_duration_ms, parse_moment
from topics.cli.io.terminal import TerminalStyle

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore
    from topics.calls.page import Page
    from topics.calls.watching.rules import Start
    from topics.cli.io.lines import Item
    from topics.cli.target.consumed import Consumed

TAIL_DEFAULT = 10


class SeqKind(click.IntRange):
    """A seq, or what to give for a time."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            with suppress(ValueError):
                parse_duration_ms(value)
                self.fail(f"{value!r} is a time, and this is a seq: --since {value}", param, ctx)
            raise


from_option = click.option(
    "--from",
    "from_seq",
    type=SeqKind(0),
    metavar="SEQ",
    help="The records after this seq; 0 is the beginning.",
)
since_option = click.option("--since", metavar="AGO", help="The records of the last 5m, 2h, 1d …")
from_ts_option = click.option(
    "--from-time", "--from-ts", "from_ts", metavar="TIME",
    help="The records since this time: ms since 1970, or 2026-11-21T14:30 (UTC).",
)  # fmt: skip
match_option = click.option(
    "--match", metavar="TAG", help='Only this tag; or \'["tag", "Glob", "us*"]\': those that begin so.'
)
full_option = click.option("--full", is_flag=True, help="Do not cut lines at the terminal's edge.")


@attrs.frozen(kw_only=True)
class ReadChoice:
    """Where to begin and what to leave out."""

    from_seq: int = 0
    from_ts: int | None = None
    match: Any = None
    nodes: tuple[str, ...] = ()
    account: bool = False
    epoch: int | None = None


@click.command()
@click.argument("topic", type=TOPIC)
@from_option
@since_option
@from_ts_option
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="At most so many records; without it, all up to the head.",
)
@match_option
@click.option(
    "--node", multiple=True, help="Whose records to leave out: the reader's own name. May be repeated."
)
@click.option("--account", is_flag=True, help="Say at the end what became of every seq passed.")
@click.option("--page", is_flag=True, help="One page, as the wire writes it, to go on from next_from_seq.")
@full_option
@json_option
@common_options
@pass_invocation
def get(
    invocation: Invocation, topic: str, limit: int | None, page: bool, full: bool, as_json: bool, node: tuple[str, ...],
    account: bool, from_seq: int | None, since: str | None, from_ts: str | None, match: str | None,
) -> None:  # fmt: skip
    """Print the records of a topic, in order, up to its head.

    Where records were lost a line says which and why. With --json: a record a line, and {"tombstone": …} lines.

    \b
      topics get quakes --match us --limit 5
      topics get quakes --since 1h --json | jq .data.properties.mag
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    start = read_choice(from_seq=from_seq, since=since, from_ts=from_ts)
    reading = attrs.evolve(start, match=parse_match(match), nodes=node, account=account)
    with invocation.there() as store:
        handle = store.topic(topic)
        if page:
            first = _read(handle, reading, limit=limit or 0)
            sys.stdout.buffer.write(first.json() + b"\n")
            return
        sums: dict[str, int] = {}
        asked = start.from_seq
        for one in pages(store, handle, reading, limit=limit or 0):
            _print_page(one, as_json=as_json, is_full=full, asked=asked)
            asked = 0
            for name, count in (attrs.asdict(one.account) if one.account is not None else {}).items():
                sums[name] = sums.get(name, 0) + count
        if account:
            _print_account(sums, as_json=as_json)


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC…")
@from_option
@since_option
@click.option("--now", is_flag=True, help="From the head on.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    help=f"The last so many seqs of each topic (default {TAIL_DEFAULT}).",
)
@click.option(
    "--consumer",
    type=CONSUMER,
    help="What this durable consumer has not read. What is printed it has read.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, which is done anyway.")
@click.option("--no-follow", is_flag=True, help="Print up to the head, and end.")
@match_option
@full_option
@json_option
@common_options
@pass_invocation
def tail(
    invocation: Invocation, topics: tuple[str, ...], now: bool, lines: int | None, follow: bool, no_follow: bool,
    full: bool, as_json: bool, from_seq: int | None, since: str | None, consumer: str | None, match: str | None,
) -> None:  # fmt: skip
    """Print the latest records of topics, by time, with a line wherever records were lost.

    Then it waits for more, until Ctrl-C. A directory has one owner at a time: as long as this command follows one,
    nobody else can write to it, so follow a server (--url), or say --no-follow.

    With --consumer it goes on where the last one ended, however that was: nothing is left out, and what was printed
    last may come again. `topics consumer set` makes one.
    """
    from topics.cli.target.consumed import Consumed

    is_placed = from_seq is not None or since is not None or consumer is not None
    if sum((from_seq is not None, since is not None, consumer is not None, now, lines is not None)) > 1:
        raise Failed("give one of --from, --since, --consumer, --now and --lines", code=USAGE)
    if follow and no_follow:
        raise Failed("give --follow or --no-follow, not both", code=USAGE)
    start = attrs.evolve(read_choice(from_seq=from_seq, since=since), match=parse_match(match))
    names = list(dict.fromkeys(topics))
    printer = _Printer(names, as_json=as_json, is_full=full)
    printer.asked = start.from_seq
    is_look = no_follow and consumer is None
    with invocation.there(fires=not is_look) as store:
        last = TAIL_DEFAULT if lines is None else lines
        handles = list(map(store.topic, names))
        consumed = Consumed(handles, consumer)
        streams = [
            _TopicItems(store, topic, _placed(start, consumed, topic.name), last=None if is_placed else last)
            for topic in handles
        ]
        if not now:
            for _, name, item in heapq.merge(*streams, key=lambda timed: timed[0]):
                printer.write(name, [item])
                consumed.printed(name, item)
            for stream in streams:
                consumed.passed(stream.topic.name, stream.position["from_seq"])
            consumed.commit()
        printer.asked = 0
        if not no_follow:
            _follow(streams, printer, consumed, match=start.match, store=store)


def _placed(reading: ReadChoice, consumed: Consumed, topic: str) -> ReadChoice:
    """From where its consumer stands, if it has one."""
    at = consumed.positions.get(topic)
    return reading if at is None else attrs.evolve(reading, from_seq=at.from_seq, epoch=at.epoch)


def _follow(
    streams: list[_TopicItems], printer: _Printer, consumed: Consumed, *, match: Any, store: TopicStore
) -> None:
    from topics.cli.target.following import Tail
    from topics.embed.store import Store

    sys.stdout.flush()
    if isinstance(store, Store):
        alone = f"following {store.where}, which nobody else can write to as long as this command has it open"
        say(
            f"{alone}: --no-follow ends here, a server (topics serve) takes writers too",
            "topics: ",
            colour="cyan",
        )
    follower = Tail(store, {stream.topic.name: stream.position for stream in streams}, match=match)
    for item in follower:
        printer.write(item.topic, [item])
        consumed.printed(item.topic, item)
        if not follower.is_behind:
            consumed.commit()


def read_choice(*, from_seq: int | None, since: str | None, from_ts: str | None = None) -> ReadChoice:
    if sum(given is not None for given in (from_seq, since, from_ts)) > 1:
        raise Failed("give one of --from, --since and --from-ts", code=USAGE)
    try:
        if since is not None:
            return ReadChoice(from_ts=max(time.time_ns() // 1_000_000 - parse_duration_ms(since), 0))
        if from_ts is not None:
            return ReadChoice(from_ts=parse_moment(from_ts))
    except ValueError as error:
        raise Failed(f"{'--since' if since is not None else '--from-ts'}: {error}", code=USAGE) from None
    return ReadChoice(from_seq=from_seq or 0)


def parse_match(text: str | None) -> Any:
    """A match as the wire and Python have it: a tag, or the JSON of its tuple."""
    if text is None or not text.startswith("["):
        return text
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        form = '["tag", "Glob", "us*"] or ["tag", "Eq", "[x]"]'
        raise Failed(f"--match: {text!r:.80} is not JSON as in {form}: {error}", code=USAGE) from None
    except RecursionError:
        raise Failed("--match: nested too deep", code=USAGE) from None


def pages(
    store: TopicStore, topic: Topic, reading: ReadChoice, *, limit: int = 0, stop_seq: int | None = None
) -> Iterator[Page]:
    """Pages up to the head (or only to `stop_seq`), or up to `limit` records (0 = all)."""
    left = limit
    page_max = store.limits.read_limit
    while True:
        page = _read(
            topic,
            reading,
            limit=min(left, page_max) if limit else page_max,
            bytes_max=store.limits.page_bytes,
        )
        yield page
        left -= len(page.records)
        if page.caught_up or (limit and left <= 0):
            return
        if stop_seq is not None and page.next_from_seq >= stop_seq:
            return
        reading = attrs.evolve(reading, from_seq=page.next_from_seq, from_ts=None, epoch=page.epoch)


def _read(topic: Topic, reading: ReadChoice, *, limit: int, bytes_max: int = 0) -> Page:
    return topic.read(
        from_seq=reading.from_seq, from_ts=reading.from_ts, limit=limit, match=reading.match,
        node=reading.nodes or None, account=reading.account, epoch=reading.epoch, max_bytes=bytes_max,
    )  # fmt: skip


def _print_page(page: Page, *, as_json: bool, is_full: bool, asked: int) -> None:
    from topics.cli.io.lines import items, json_line, text_line

    if as_json:
        sys.stdout.buffer.write(b"".join(map(json_line, items(page))))
        return
    pen = TerminalStyle(sys.stdout)
    lines = (text_line(item, pen, is_full=is_full, asked=asked) for item in items(page))
    sys.stdout.buffer.write(b"".join(lines))


def _print_account(sums: dict[str, int], *, as_json: bool) -> None:
    import msgspec

    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode({"account": sums}) + b"\n")
        return
    words = (
        ", ".join(f"{count:,} {name.replace('_', '-')}" for name, count in sums.items() if count) or "nothing"
    )
    sys.stdout.buffer.write(f"{sum(sums.values()):,} seqs passed: {words}\n".encode())


class _TopicItems:
    """(ts, topic, item) of one topic up to its head; a tombstone stands just before the record that follows it.

    `last`: only so many seqs before the head (None: as `reading` says). `position`: how far it was read.
    """

    def __init__(self, store: TopicStore, topic: Topic, reading: ReadChoice, *, last: int | None) -> None:
        state = topic.state()
        self.topic = topic
        self.position: Start = {"from_seq": state.head_seq, "epoch": state.epoch}
        self._store = store
        self._stop_seq = state.head_seq
        if last is not None:
            reading = attrs.evolve(reading, from_seq=max(state.head_seq - last, 0), epoch=state.epoch)
        self._reading = reading

    def __iter__(self) -> Iterator[tuple[int, str, Item]]:
        from topics.cli.io.lines import items

        ts = 0
        for page in pages(self._store, self.topic, self._reading, stop_seq=self._stop_seq):
            for item in items(page):
                ts = getattr(item, "ts", page.records[0].ts if page.records else ts)
                yield ts, self.topic.name, item
            self.position = {"from_seq": page.next_from_seq, "epoch": page.epoch}


class _Printer:
    """Items of one or more topics, each named where there are more."""

    def __init__(self, names: list[str], *, as_json: bool, is_full: bool) -> None:
        self.is_named = len(names) > 1
        self.widest = max(map(len, names))
        self.as_json = as_json
        self.is_full = is_full
        self.asked = 0  # from which seq, of no epoch, the user wants to read, until that is read
        self.pen = TerminalStyle(sys.stdout)

    def write(self, name: str, found: list[Item]) -> None:
        from topics.cli.io.lines import json_line, text_line

        if self.as_json:
            lines = [json_line(item, name if self.is_named else None) for item in found]
        else:
            shown = name.ljust(self.widest) if self.is_named else None
            lines = [
                text_line(item, self.pen, shown, is_full=self.is_full, asked=self.asked) for item in found
            ]
        sys.stdout.buffer.write(b"".join(lines))
