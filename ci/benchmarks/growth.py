"""B13: how cost grows: writes over ever more topics, pages and recovery over ever more records.

Judged by CPU a record, so linear is a ratio of one. A figure compares two sizes, ten times apart, in turns as every
comparison here; it is the median over the turns of the ratio within a turn.

Writes: B1 into 10, 100 and 1000 topics by turns. All sides begin behind the same million records, so the raises of
young topics are behind them, and the generator sends the same thousand bodies to all. No checkpoint falls into the
timed second, for it would not fall into each; what one costs over ever more topics is printed for itself. Pages: all
of a topic, by a new process, verified from file; and its last ten, by the server that has just written them.
Recovery: `topics.open` of B10, over the log of a killed writer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.load import topic_name
from ci.benchmarks.paging import CONNECTIONS, LIMIT, read, write
from ci.benchmarks.payload import BATCH, raws, texts
from ci.benchmarks.recovery import kill_writer, open_again
from ci.benchmarks.served import Server, serve, topics_serve
from ci.benchmarks.serving import BATCHED
from ci.benchmarks.turns import Turn, loaded, take_turns
from topics.cli.bench.payload import PAYLOAD_BYTES

RATIO_MAX: Final = 1.2
TOPICS: Final = {10: "10", 100: "100", 1000: "1000"}
RECORDS: Final = {10_000: "10 k", 100_000: "100 k", 1_000_000: "1 M"}
QUICK: Final = {2: "2", 4: "4"}
QUICK_RECORDS: Final = {2000: "2 k", 4000: "4 k"}
FILL: Final = 10_000  # writes of 100
CHECKPOINTED: Final = 3000  # writes of 100
TAIL_PAGES: Final = 10
NO_CHECKPOINT: Final = 1 << 40

Costs = Mapping[int, Sequence[float]]  # µs of CPU a record, by turns


def figures(setting: Setting) -> Iterator[Figure]:
    topics_of, records_of = (QUICK, QUICK_RECORDS) if setting.quick else (TOPICS, RECORDS)
    beside = f"{PAYLOAD_BYTES} B, batch {BATCH}, 16 connections, disk; CPU a record"
    yield from _growth("writes", "topics", topics_of, _writes(setting, topics_of), beside)
    yield from _of_sizes("a checkpoint", "topics", topics_of, _checkpoints(setting, topics_of))
    from_file, from_tail = _pages(setting, records_of)
    beside = f"{PAYLOAD_BYTES} B, pages of {LIMIT}, {CONNECTIONS} connections, disk; CPU a record"
    yield from _growth("pages from file", "records", records_of, from_file, beside)
    yield from _growth("last pages", "records", records_of, from_tail, beside)
    beside = f"{PAYLOAD_BYTES} B, disk; CPU of topics.open a record"
    yield from _growth("recovery", "records", records_of, _recovery(setting, records_of), beside)


def _growth(what: str, unit: str, sizes: Mapping[int, str], costs: Costs, beside: str) -> Iterator[Figure]:
    """A figure a step from one size to the next, then what they are made of."""
    for small, large in pairwise(sizes):
        samples = [many / few for few, many in zip(costs[small], costs[large], strict=True)]
        yield median_figure(
            f"B13 {what}, {sizes[small]} to {sizes[large]} {unit}", samples, "x",
            must=RATIO_MAX, less=True, beside=beside,
        )  # fmt: skip
    yield from _of_sizes(what, unit, sizes, costs)


def _of_sizes(what: str, unit: str, sizes: Mapping[int, str], costs: Costs) -> Iterator[Figure]:
    for size, name in sizes.items():
        yield median_figure(f"  {what}, {name} {unit}", costs[size], "µs", beside="CPU a record")


# Over ever more topics.


def _writes(setting: Setting, sizes: Mapping[int, str]) -> Costs:
    sides = {
        count: loaded(
            setting,
            replace(BATCHED, topics=count, bodies=max(sizes), fill=FILL),
            checkpoint_wal_bytes=NO_CHECKPOINT,
        )
        for count in sizes
    }
    turns = take_turns(setting, sides)
    return {count: [turn.record_cpu_us for turn in turns[count]] for count in sizes}


def _checkpoints(setting: Setting, sizes: Mapping[int, str]) -> Costs:
    writes = raws(texts(50))

    def turn(path: Path, count: int) -> float:
        rounds = setting.count(CHECKPOINTED, 40)
        with topics.open(path) as store:
            handles = [store.create(topic_name(number), durability="disk") for number in range(count)]
            for number in range(rounds):
                handles[number % count].put_many(writes[number % len(writes)])
            begun = time.process_time()
            store.checkpoint()
            return (time.process_time() - begun) / (rounds * BATCH) * 1e6

    return take_turns(setting, {count: partial(turn, count=count) for count in sizes})


# Over ever more records.


def _pages(setting: Setting, sizes: Mapping[int, str]) -> tuple[Costs, Costs]:
    """From file, and the last ones."""
    with ExitStack() as stack:
        data = {count: stack.enter_context(setting.directory()) / "data" for count in sizes}
        with ExitStack() as living:
            servers = {count: living.enter_context(serve("topics", data[count], "disk")) for count in sizes}
            for count, server in servers.items():
                write(setting, server, count // LIMIT)
            last = take_turns(
                setting, {count: _last(setting, server, count) for count, server in servers.items()}
            )
        whole = take_turns(setting, {count: _whole(setting, data[count], count) for count in sizes})
    return _costs(whole), _costs(last)


def _last(setting: Setting, server: Server, count: int) -> Callable[[Path], Turn]:
    pages = min(TAIL_PAGES, count // LIMIT)
    return lambda _: read(setting, server, pages, skip=count // LIMIT - pages)


def _whole(setting: Setting, data: Path, count: int) -> Callable[[Path], Turn]:
    def turn(_: Path) -> Turn:
        with topics_serve(data) as server:
            return read(setting, server, count // LIMIT)

    return turn


def _costs(turns: Mapping[int, Sequence[Turn]]) -> Costs:
    return {count: [turn.record_cpu_us for turn in of] for count, of in turns.items()}


def _recovery(setting: Setting, sizes: Mapping[int, str]) -> Costs:
    def turn(_: Path, home: Path, count: int) -> float:
        cpu_s = open_again(home / "killed", home / "wal", count)[2]
        return cpu_s / count * 1e6

    with ExitStack() as stack:
        homes = {count: stack.enter_context(setting.directory()) for count in sizes}
        for count, home in homes.items():
            kill_writer(home / "killed", home / "wal", count // BATCH)
        return take_turns(setting, {count: partial(turn, home=homes[count], count=count) for count in sizes})
