"""B6: reading pages of 1000 over HTTP, from the server that has just written them, and verified from file.

From file means that a new process reads them: the server is stopped and started again over the directory, so nothing is
in its memory but the index. Every frame's checksum is verified in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.load import Plan, Result
from ci.benchmarks.payload import BATCH
from ci.benchmarks.served import Server, load, serve, topics_serve
from ci.benchmarks.turns import Side, Turn, made_of, plan_of, rate_figure, take_turns, turn_of
from topics.cli.bench.payload import PAYLOAD_BYTES

LIMIT = 1000
CONNECTIONS = 4
WRITING = Side("topics", "disk", "write", BATCH, 4, warm=0)
READING = Side("topics", "disk", "diff", LIMIT, CONNECTIONS, warm=100)
BOUNDS = {"tail": (800.0, 1400.0), "file": (450.0, 900.0)}
TITLES = {"tail": "from the tail", "file": "verified from file"}


def figures(setting: Setting) -> Iterator[Figure]:
    turns = take_turns(
        setting,
        {"tail": lambda path: _from_tail(setting, path), "file": lambda path: _from_file(setting, path)},
    )
    beside = f"{PAYLOAD_BYTES} B, {_pages(setting)} pages of {LIMIT}, {CONNECTIONS} connections, disk"
    for name, title in TITLES.items():
        must, aim = BOUNDS[name]
        rates = [turn.records_rate / 1000 for turn in turns[name]]
        figure = median_figure(
            f"B6 diff {title}", rates, "k rec/s", must=must, aim=aim, beside=beside, cpu=True
        )
        yield rate_figure(figure, turns[name])
        yield made_of(f"  {title}", turns[name], records=True)


def _pages(setting: Setting) -> int:
    return setting.count(100, 4)


def _from_tail(setting: Setting, path: Path) -> Turn:
    with serve("topics", path / "data", "disk") as server:
        write(setting, server, _pages(setting))
        return read(setting, server, _pages(setting))


def _from_file(setting: Setting, path: Path) -> Turn:
    with serve("topics", path / "data", "disk") as server:
        write(setting, server, _pages(setting))
    with topics_serve(path / "data") as server:
        return read(setting, server, _pages(setting))


def write(setting: Setting, server: Server, pages: int) -> None:
    """Somewhat more than so many pages: a warm-up of that many requests, and next to no time."""
    plan = plan_of(setting, WRITING, port=server.port, pid=server.pid)
    plan.warm, plan.warm_s, plan.seconds = pages * LIMIT // BATCH, 60.0, 0.001
    load(plan, Result)


def read(setting: Setting, server: Server, pages: int, *, skip: int = 0) -> Turn:
    """These pages, again and again."""
    plan: Plan = plan_of(setting, READING, port=server.port, pid=server.pid)
    plan.pages, plan.skip = pages, skip
    return turn_of(load(plan, Result), LIMIT)
