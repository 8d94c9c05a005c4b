"""What the commands of `topics spark` tell Spark of the place that the flags name, without a JVM."""

from __future__ import annotations

import pytest

from topics.cli.commands.spark_jobs import source_options
from topics.cli.core.invocation import Invocation
from topics.cli.main import main
from topics.kernel.errors import Rejected


def options_of(monkeypatch, tmp_path, **flags):
    monkeypatch.chdir(tmp_path)
    invocation = Invocation()
    invocation.flags.update(flags)
    return source_options(invocation, ["a", "b"])


def test_a_directory_is_read_with_the_cold_tier_that_the_settings_name(monkeypatch, tmp_path):
    both = {"subscribe": "a,b", "failOnDataLoss": "false"}
    data, cold = str(tmp_path / "data"), str(tmp_path / "cold")

    assert options_of(monkeypatch, tmp_path, data=data) == {**both, "path": data}
    assert options_of(monkeypatch, tmp_path, data=data, cold_dir=cold) == {
        **both, "path": data, "coldPath": cold
    }  # fmt: skip
    assert (
        options_of(monkeypatch, tmp_path, data=data, cold_dir="s3://bucket/x")["coldPath"] == "s3://bucket/x"
    )


@pytest.mark.parametrize("url", ["s3://bucket/backup", "file:///srv/backup"])
def test_a_backup_behind_a_url_is_read_there(monkeypatch, tmp_path, url):
    assert options_of(monkeypatch, tmp_path, data=url)["path"] == url


def test_a_server_is_read_by_its_url_and_keeps_its_tiers_to_itself(monkeypatch, tmp_path):
    found = options_of(monkeypatch, tmp_path, url="http://localhost:1", cold_dir="cold")

    assert found == {"subscribe": "a,b", "failOnDataLoss": "false", "url": "http://localhost:1"}


def test_a_server_is_reached_by_the_key_and_the_certificates_that_the_flags_name(monkeypatch, tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    flags = {"url": "https://localhost:1", "api_key_file": str(key), "cafile": str(tmp_path / "ca.pem")}

    found = options_of(monkeypatch, tmp_path, **flags)

    assert (found["token"], found["caFile"]) == ("s3cret", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("TOPICS_API_KEY", "another")
    assert options_of(monkeypatch, tmp_path, url="http://localhost:1")["token"] == "another"
    with pytest.raises(Rejected, match="nowhere cannot be read"):
        options_of(monkeypatch, tmp_path, **{**flags, "api_key_file": str(tmp_path / "nowhere")})


def test_what_is_no_data_directory_is_told_before_a_java_starts(monkeypatch, tmp_path, capfd):
    """Which would say a dozen lines first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()

    for typed, told in (
        ("file", f"DIRECTORY: {tmp_path}/file is no directory: name a data directory"),
        ("nowhere", f"DIRECTORY: {tmp_path}/nowhere is no directory"),
        ("empty", f"{tmp_path}/empty holds no data directory of topics: it has no FORMAT"),
    ):
        assert main(["spark", "validate", typed]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"topics: {told}")
