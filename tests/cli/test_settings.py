"""Where a setting comes from, and what refuses to start."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from topics.cli.settings import SYNC_INTERVAL_MS, TABLE
from topics.engine.engine import SYNC_INTERVAL_MS as ENGINE_SYNC_INTERVAL_MS
from topics.host.opening import StoreOptions
from topics.kernel.limits import Limits

Call = Callable[..., Any]


def shown(call: Call, *arguments: str) -> dict[str, tuple[Any, str]]:
    answer = call("config", "show", "--json", *arguments)
    assert answer.code == 0, answer.err
    return {key: (each["value"], each["source"]) for key, each in answer.lines[0].items()}


@pytest.mark.rule("O3.1")
@pytest.mark.rule("O3.3")
@pytest.mark.rule("O2.8")
def test_flags_beat_the_environment_beats_the_file_beats_the_default(
    call: Call, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(call)["data"] == ("topics-data", "default")
    assert shown(call)["wal_shards"] == (None, "default")

    (tmp_path / "topics.toml").write_text('data = "from-file"\nsync_interval_ms = 7\nmax_tag_bytes = 9\n')
    assert shown(call)["data"] == ("from-file", "topics.toml")
    monkeypatch.setenv("TOPICS_DATA_DIR", "from-env")
    monkeypatch.setenv("TOPICS_SYNC_INTERVAL_MS", "8")
    assert shown(call)["data"] == ("from-env", "TOPICS_DATA_DIR")
    flags = shown(call, "--data", "from-flag", "--set", "min_free_bytes=1MiB")
    assert flags["data"] == ("from-flag", "--data")
    assert flags["sync_interval_ms"] == (8, "TOPICS_SYNC_INTERVAL_MS")
    assert flags["max_tag_bytes"] == (9, "topics.toml")
    assert flags["min_free_bytes"] == (2**20, "--set min_free_bytes")


@pytest.mark.rule("O3.3")
def test_the_table_shows_every_setting_and_its_variable(call: Call) -> None:
    table = call("config", "show").text
    for setting in TABLE.values():
        assert setting.key in table
        assert setting.variable in table


def test_defaults_are_those_of_the_store(call: Call) -> None:
    limits = {f.name: f.default for f in attrs.fields(Limits)}
    assert {s.limit: s.default for s in TABLE.values() if s.limit} == limits
    assert TABLE["min_free_bytes"].default == StoreOptions().min_free_bytes
    assert SYNC_INTERVAL_MS == ENGINE_SYNC_INTERVAL_MS
    assert all(s.low <= s.default <= s.high for s in TABLE.values() if s.limit and s.high is not None)


@pytest.mark.rule("O3.1")
@pytest.mark.rule("O2.19")
def test_settings_reach_the_store(call: Call) -> None:
    refused = call(
        "put",
        "t",
        "--set",
        "max_records_per_write=2",
        "--set",
        "max_tag_bytes=1",
        "--tag",
        "ab",
        stdin=b"1\n",
    )
    assert "2 bytes are more than the limit of 1" in refused.err
    assert call("--data", "elsewhere", "--set", "wal_shards=2", "put", "t", stdin=b"1\n2\n3\n").code == 0
    assert (pathlib.Path("elsewhere") / "wal" / "gen-0" / "shard-01").is_dir()
    assert call("get", "t", "--data", "elsewhere", "--json").lines[2]["data"] == 3


def test_a_relative_directory_in_a_named_file_is_relative_to_the_file(
    call: Call, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my.toml").write_text('data = "here"\n')

    assert shown(call, "--settings", "sub/my.toml")["data"] == ("sub/here", "sub/my.toml")


@pytest.mark.rule("O3.4")
@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("wal_shard = 1", "topics.toml: there is no setting 'wal_shard'; did you mean wal_shards"),
        ("zebra = 1", "there is no setting 'zebra'; known are data, wal_shards"),
        ("wal_shards = 65", "topics.toml: wal_shards: 65 is not allowed; give a whole number from 1 to 64"),
        ("wal_shards = true", "wal_shards: True is not allowed"),
        ("sync_interval_ms = 1.5", "sync_interval_ms: 1.5 is not allowed"),
        ('data = ""', "data: '' is not allowed; give a directory"),
        ("data = 3", "data: 3 is not allowed; give a directory"),
        ("[server]\nport = 1", "there is no setting 'server'"),
        ("data = ", "topics.toml is not TOML"),
        ("max_page_bytes = 10", "max_page_bytes_default (1048576, default) is above max_page_bytes (10, topics.toml)"),
    ],
)  # fmt: skip
def test_a_bad_file_refuses_to_start_naming_the_key(
    call: Call, tmp_path: pathlib.Path, toml: str, message: str
) -> None:
    (tmp_path / "topics.toml").write_text(toml)
    answer = call("ls")

    assert answer.code == 2
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.rule("O3.4")
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TOPICS_DATA", "x", "TOPICS_DATA: there is no such setting; unset it; did you mean TOPICS_DATA_DIR"),
        (
            "TOPICS_WAL_SHARDS",
            "many",
            "TOPICS_WAL_SHARDS: 'many' is not allowed; give a whole number from 1 to 64",
        ),
        ("TOPICS_MAX_TAG_BYTES", "0", "TOPICS_MAX_TAG_BYTES: 0 is not allowed"),
        ("TOPICS_DATA_DIR", "", "TOPICS_DATA_DIR: '' is not allowed; give a directory"),
        ("TOPICS_SETTINGS", "no.toml", "TOPICS_SETTINGS: no.toml does not exist"),
    ],
)
def test_a_bad_variable_refuses_to_start_naming_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    answer = call("ls")

    assert answer.code == 2
    assert message in answer.err


def test_variables_an_orchestrator_sets_for_a_service_are_no_settings(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "TOPICS_SERVICE_HOST": "10.0.0.1", "TOPICS_SERVICE_PORT": "4000", "TOPICS_PORT": "tcp://10.0.0.1:4000",
        "TOPICS_PORT_4000_TCP": "tcp://10.0.0.1:4000", "TOPICS_VENV": "/venv",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    shown(call)


@pytest.mark.parametrize("pair", ["zebra=1", "wal_shards=x", "wal_shards"])
def test_a_bad_flag_refuses_to_start(call: Call, pair: str) -> None:
    assert call("--set", pair, "ls").code == 2
