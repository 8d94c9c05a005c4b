"""What was found is printed before anything is written, and written whatever numbers it has."""

from __future__ import annotations

import attrs
import pyarrow.parquet as pq
import pytest

from tests.support.planting import plant
from tests.support.sample_store import build, write_out
from topics.audit.fsck import Options, fsck
from topics.cli.main import main
from topics.host.system.readonly import ReadOnlyDisk
from topics.spark.audits import write_report


@pytest.fixture
def damaged(tmp_path):
    files = dict(build().files)
    plant(files, "segment.record: a flipped bit", 1)
    write_out(files, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.rule("P4.8")
def test_a_seq_that_parquet_has_no_number_for_is_told_in_words(damaged, tmp_path):
    report = fsck(ReadOnlyDisk(damaged), where="here", options=Options(settled=True))
    found = attrs.evolve(report.violations[0], seq=2**63, detail="it was acknowledged")
    write_report(attrs.evolve(report, violations=[found, *report.violations]), tmp_path / "report")

    first, second, *_ = pq.read_table(tmp_path / "report" / "violations.parquet").to_pylist()
    assert (first["seq"], first["detail"]) == (None, "seq 9223372036854775808: it was acknowledged")
    assert (second["seq"], second["detail"]) == (report.violations[0].seq, report.violations[0].detail)


@pytest.mark.rule("P4.9")
def test_findings_are_printed_although_the_folder_for_them_cannot_be_made(spark, damaged, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code = main(["spark", "validate", str(damaged), "--out", str(tmp_path / "file" / "report")])

    shown = capsys.readouterr()
    assert code == 2
    assert "segment.record" in shown.out
    assert "file/report" in shown.err
