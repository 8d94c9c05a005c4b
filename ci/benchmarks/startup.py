"""B14: what a user waits for before anything happens. Warm, in turns with a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.served import topics_serve

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = {"import": 0.15, "help": 0.3, "serve": 1.0}


def figures(setting: Setting) -> Iterator[Figure]:
    """Medians of 10 warm starts each."""
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import topics"],
        "open": [sys.executable, "-c", "import topics; topics.open"],
    }
    if (ROOT / "topics" / "cli" / "main.py").exists():
        start = "from topics.cli.main import main; main(['--help'])"
        commands["help"] = [sys.executable, "-c", start]
    took: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(setting.count(11, 2)):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first one warms the file cache
                took[name].append(time.perf_counter() - begun)
    titles = {
        "bare": "  floor: python -c pass",
        "import": "B14 python -c 'import topics'",
        "open": "  python -c 'import topics; topics.open'",
        "help": "B14 topics --help",
    }
    for name, samples in took.items():
        beside = f"{len(samples)} warm starts"
        yield median_figure(titles[name], samples, "s", must=BOUNDS.get(name), less=True, beside=beside)
    yield _served(setting)


def _served(setting: Setting) -> Figure:
    samples = []
    for turn in range(setting.count(11, 2)):
        with setting.directory() as path, topics_serve(path / "data") as server:
            if turn:
                samples.append(server.ready_s)
    beside = f"{len(samples)} warm starts on empty directories, to 200 from /v0/ready"
    return median_figure("B14 topics serve", samples, "s", must=BOUNDS["serve"], less=True, beside=beside)
