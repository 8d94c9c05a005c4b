"""Violations for people and for machines: text, lines of JSON, one JSON document; and a row for each check.

The rows are those of the validation jobs (spark 4): topic, file, check, severity, seq, offset, detail; and a check with
what must hold, how it ended, how many violations it has, and a sentence. An HTML page is made from the same two lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import attrs
import msgspec

from topics.audit.checks.row_checks import CHECKS
from topics.audit.fsck import FsckReport
from topics.audit.scan.rows import Severity, Violation


class Status(StrEnum):
    """How a check ended: all well, something to know, damage; or that it was not made."""

    PASSED = "passed"
    NOTED = "noted"
    FAILED = "failed"
    SKIPPED = "skipped"


@attrs.frozen(kw_only=True)
class CheckResult:
    """One check. `metric`: its violations."""

    check: str
    constraint: str
    status: Status
    metric: int
    message: str


def results(report: FsckReport) -> list[CheckResult]:
    """A row for each check there is, in the order of the table."""
    violations = report.violations
    counts = Counter(one.check for one in violations)
    failed = Counter(one.check for one in violations if one.severity is Severity.ERROR)
    unknown = counts.keys() - CHECKS.keys()
    assert not unknown, unknown
    return [
        CheckResult(
            check=check,
            constraint=constraint,
            status=_status(failed[check], counts[check], skipped=check in report.skipped),
            metric=counts[check],
            message=_message(check, violations) or report.skipped.get(check, ""),
        )
        for check, constraint in CHECKS.items()
    ]


def _status(errors: int, violations: int, *, skipped: bool) -> Status:
    if errors:
        return Status.FAILED
    if violations:
        return Status.NOTED
    return Status.SKIPPED if skipped else Status.PASSED


def _message(check: str, violations: Sequence[Violation]) -> str:
    first = next((one for one in violations if one.check == check), None)
    return "" if first is None else line(first)


def line(one: Violation) -> str:
    """A violation as a sentence: where, which record, what."""
    seq = "" if one.seq is None else f" seq {one.seq}"
    topic = f"topic {one.topic!r}{seq}: " if one.topic else f"{seq.strip()}: " if seq else ""
    offset = "" if one.offset is None else f", offset {one.offset}"
    return _encodable(f"{topic}{one.detail} ({one.file}{offset})")


def fields(one: Violation) -> dict[str, object]:
    """A violation as the row it is."""
    file, detail = _encodable(one.file), _encodable(one.detail)
    return {**attrs.asdict(one), "severity": one.severity.value, "file": file, "detail": detail}


def _encodable(text: str) -> str:
    """The same as UTF-8 can say it: a file's name may be any bytes, which Python holds as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def json_lines(report: FsckReport) -> Iterator[bytes]:
    """A line a violation, then one that sums up."""
    for one in report.violations:
        yield msgspec.json.encode(fields(one)) + b"\n"
    yield msgspec.json.encode(summary(report)) + b"\n"


def document(report: FsckReport) -> bytes:
    """All of it as one JSON object: summary, checks, violations."""
    checks = [{**attrs.asdict(one), "status": one.status.value} for one in results(report)]
    rows = [fields(one) for one in report.violations]
    return msgspec.json.encode({**summary(report), "checks": checks, "violations": rows})


def summary(report: FsckReport) -> dict[str, object]:
    """How much was looked at, and how it ended."""
    counts = Counter(one.severity for one in report.violations)
    return {
        "directory": _encodable(report.where),
        "files": report.files,
        "bytes": report.bytes,
        "records_in_segments": report.records,
        **{severity.value: counts[severity] for severity in Severity},
        "exit_code": report.exit_code,
    }
