"""The page of `topics bench --html` in Chromium: its figures, its plots, in light and dark, and it asks for nothing."""

from __future__ import annotations

import pathlib

import pytest

from tests.e2e.dashboards import browsing
from topics.cli.bench.report import BenchRun, page_of
from topics.cli.bench.rounds import Measured, cell_of
from topics.cli.bench.systems import ours, peers
from topics.cli.bench.workloads import WORKLOADS, Sample

HOSTILE = "</script><img src=x onerror=alert(1)>"


def page_with(fact: str) -> bytes:
    systems = [*ours(), *peers()]
    cells = {
        (system.name, workload.key): cell_of(
            [Sample(1000 * at, 0.5, 0.01, 0.1, [at / 10_000 * (n + 1) for n in range(100)])],
            is_library=system.is_library,
        )
        for at, system in enumerate(systems, 1)
        for workload in WORKLOADS
        if workload.needs <= system.can
    }
    measured = Measured(systems, {one.name: "1.2" for one in systems}, WORKLOADS, cells, {"Other": fact}, [])
    return page_of(BenchRun({"machine": fact}, 3, 0.5, 7, measured))


@pytest.mark.slow
@pytest.mark.rule("O2.11")
def test_the_page_draws_every_workload_and_asks_for_nothing(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(page_with(HOSTILE))
    with browsing() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            asked: list[str] = []
            wrong: list[str] = []
            page.on("request", lambda request, to=asked: to.append(request.url))
            page.on("console", lambda message, to=wrong: to.append(message.text))
            page.on("pageerror", lambda error, to=wrong: to.append(str(error)))
            page.goto(file.as_uri())
            page.locator("canvas").nth(len(WORKLOADS) - 1).wait_for()

            assert asked == [file.as_uri()]
            assert wrong == []
            assert HOSTILE in page.inner_text("#facts")
            assert page.locator("#medians tbody tr").count() == len([*ours(), *peers()])
            assert page.inner_text("#medians tbody tr:first-child td:nth-child(3)") == "2.00"
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
            page.close()
