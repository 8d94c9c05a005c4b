"""Findings as one HTML page with charts: no script, no style sheet, no network (spark 4).

Charts are SVG drawn here. Whatever came from a directory is escaped: a topic's name, a file's, a detail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from topics.audit.fsck import FsckReport
from topics.audit.report.violations import CheckResult, Status, results
from topics.audit.scan.rows import Severity, Violation

LISTED_MAX: Final = 1000  # violations that a page lists; it says how many there are
BARS_MAX: Final = 30
_BAR: Final = 22  # pixels of a bar and the space below it
_WIDTH: Final = 460
_LABEL: Final = 240
_COLOURS: Final = {
    Severity.ERROR.value: "#b3261e",
    Severity.UNDECIDABLE.value: "#b26a00",
    Severity.NOTE.value: "#3367a8",
    Status.FAILED.value: "#b3261e",
    Status.NOTED.value: "#b26a00",
    Status.PASSED.value: "#2e7d32",
    Status.SKIPPED.value: "#5f6368",
}
STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c1b1f }
table { border-collapse: collapse; width: 100%; font-size: 13px; margin: .5rem 0 1.5rem }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } h2 { margin-top: 2rem } svg { max-width: 100% }
"""


def page(report: FsckReport) -> bytes:
    """The whole page, UTF-8."""
    verdict = ("nothing is wrong", "something is wrong", "it could not be looked at")[report.exit_code]
    by_topic = Counter(one.topic or "–" for one in report.violations)
    checks = results(report)
    by_check = {one.check: one.metric for one in checks if one.metric}
    seen = f"Files of segments and log: {report.files:,}, of {report.bytes:,} bytes"
    body = [
        f"<h1>{escape(report.where)}: {verdict}</h1>",
        f"<p>{seen}, with {report.frames:,} frames.</p>",
        _section("Violations by check", bars(by_check, _COLOURS["error"])),
        _section("Violations by topic", bars(dict(by_topic.most_common(BARS_MAX)), _COLOURS["note"])),
        _section("Checks", _checks(checks)),
        _section("Violations", _violations(report.violations)),
    ]
    return document(f"topics: {report.where}", body)


def document(title: str, body: Iterable[str]) -> bytes:
    """A page of these parts."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    text = (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )
    return text.encode("utf-8", "replace")


def bars(values: dict[str, int] | dict[str, float], colour: str) -> str:
    """A bar a name, as long as its value; a sentence if there is none."""
    if not values:
        return "<p>None.</p>"
    most = max(values.values()) or 1
    height = _BAR * len(values)
    parts = [f'<svg role="img" width="{_LABEL + _WIDTH + 90}" height="{height}" font-size="12">']
    for row, (name, value) in enumerate(values.items()):
        y, long = row * _BAR, max(1, round(_WIDTH * value / most))
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        parts += [
            f'<text x="{_LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name[:38])}</text>',
            f'<rect x="{_LABEL}" y="{y + 2}" width="{long}" height="{_BAR - 6}" fill="{colour}"/>',
            f'<text x="{_LABEL + long + 6}" y="{y + 14}">{shown}</text>',
        ]
    return "".join([*parts, "</svg>"])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of cells; numbers to the right."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{cells}</tr>{''.join(map(_row, rows))}</table>"


def _row(cells: Sequence[object]) -> str:
    return f"<tr>{''.join(map(_cell, cells))}</tr>"


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float):
        return f'<td class="n">{value:,}</td>'
    text = str(value)
    colour = _COLOURS.get(text)
    style = f' style="color:{colour}"' if colour else ""
    return f"<td{style}>{escape(text)}</td>"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}"


def _checks(checks: Sequence[CheckResult]) -> str:
    rows = [(one.check, one.constraint, one.status.value, one.metric, one.message) for one in checks]
    return table(("check", "what must hold", "status", "violations", "the first"), rows)


def _violations(violations: Sequence[Violation]) -> str:
    if not violations:
        return "<p>None.</p>"
    more = len(violations) - LISTED_MAX
    rows = [
        (one.severity.value, one.check, one.topic, one.seq, one.file, one.offset, one.detail)
        for one in violations[:LISTED_MAX]
    ]
    head = ("severity", "check", "topic", "seq", "file", "offset", "detail")
    return table(head, rows) + (f"<p>And {more:,} more.</p>" if more > 0 else "")
