"""Make the pictures of the README anew: docs/dashboard.png and docs/demo.png.

usage: .venv/bin/python -m ci.pictures [dashboard] [demo]     both, if none is named; each takes about a minute

The dashboard is looked at in Chromium while a private server is written to; the demo is `topics demo` as a terminal
of 110 columns has it, from the crash on. Make them again when what they show has changed, and look at them.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import termios
import time

from playwright.sync_api import Browser
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import topics
from tests.e2e.dashboards import browsing, looking
from topics.cli.demo.private_server import PrivateServer

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
LOOKED_S = 65.0  # of the two minutes that the chart has
COLUMNS = 110
FIRST_STEP = "3  Crash"
TABLE = tuple("╭├│╰┌└┏┃┡┗")  # the demo's last word is all of it again


def main(arguments: list[str]) -> int:
    making = {"dashboard": dashboard, "demo": demo}
    if unknown := set(arguments) - making.keys():
        print(f"ci.pictures: there is no picture {', '.join(sorted(unknown))}: name dashboard or demo")
        return 2
    with browsing() as browser:
        for name in arguments or making:
            target = DOCS / f"{name}.png"
            making[name](browser, target)
            print(f"ci.pictures: {target}, {target.stat().st_size // 1000} kB")
    return 0


def dashboard(browser: Browser, target: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        with PrivateServer(folder / "data", folder) as server, topics.Client(server.url) as client:
            fill(client)
            with looking(browser, server.url, viewport={"width": 1240, "height": 800}) as page:
                write_for(client, LOOKED_S)
                page.screenshot(path=target, full_page=True)


def fill(client: topics.Client) -> None:
    """Topics that have lost some to a cap, had some deleted, or lost nothing; a queue with dead letters."""
    for name, count, cap in (
        ("alarms", 400, 0), ("audit", 2500, 0), ("clicks", 20_000, 3000), ("orders", 5000, 0),
        ("quakes", 5000, 1200), ("sensor.readings", 4000, 2000),
    ):  # fmt: skip
        topic = client.create(name, cap_records=cap) if cap else client.create(name)
        for first in range(0, count, 1000):
            topic.put_many(
                [
                    {"data": {"n": n}, "tag": "eu" if n % 3 else "asia"}
                    for n in range(first, min(count, first + 1000))
                ]
            )
    client.topic("orders").delete(before_seq=1500)
    client.topic("quakes").delete(before_seq=4200)
    client.topic("orders").consumer("billing").seek(seq=4040)
    client.create("mails", type="queue", dead_letter="mails.dead", max_deliveries=1)
    mails = client.queue("mails", node="worker-1")
    mails.put_many([{"data": {"to": f"user-{n}"}} for n in range(72)])
    for job in mails.get_many(12):
        job.nack(reason="no such host")
    client.put_router("alarms-to-audit", "alarms", "audit")
    client.put_schedule("nightly", topic="mails", cron="0 3 * * *", timezone="Europe/Berlin", data="all")


def write_for(client: topics.Client, seconds: float) -> None:
    """Some a tenth of a second, more and less of them as time goes on."""
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        for name, most, period_s in (("clicks", 30, 9), ("sensor.readings", 8, 23), ("orders", 2, 4)):
            count = round(most * (1.2 + math.sin(at * 2 * math.pi / period_s)) / 2.2)
            if count:
                client.topic(name).put_many([{"data": {"n": n}} for n in range(count)])
        if int(at * 10) % 3 == 0:
            client.topic("quakes").put({"mag": round(4 + math.sin(at), 1)}, tag="eu")
        time.sleep(0.1)


def demo(browser: Browser, target: pathlib.Path) -> None:
    lines = Text.from_ansi(on_a_terminal(sys.executable, "-m", "topics", "demo")).split("\n")
    first = next(number for number, line in enumerate(lines) if line.plain.strip().startswith(FIRST_STEP))
    told = [line for line in lines[first:] if not line.plain.startswith(TABLE)]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text("\n").join(told))
    style = "margin: 0; padding: 1px 20px 20px; width: max-content; font-size: 14px"
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_content(console.export_html(theme=MONOKAI).replace("<body", f'<body style="{style}"'))
    page.locator("body").screenshot(path=target)


def on_a_terminal(*command: str) -> str:
    """All that a command prints to a terminal of so many columns."""
    ours, its = os.openpty()
    termios.tcsetwinsize(its, (50, COLUMNS))
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=its, stderr=its
    ) as child:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # EIO is the end of a terminal that nobody holds any more
            while some := os.read(ours, 65536):
                said += some
    os.close(ours)
    if child.returncode:
        raise SystemExit(f"ci.pictures: {' '.join(command)} ended with {child.returncode}")
    return said.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
