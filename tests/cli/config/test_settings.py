"""Where a setting comes from, and what refuses to start."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from topics.cli.config.setting import SettingKind
from topics.cli.config.settings import SYNC_INTERVAL_MS, TABLE, load
from topics.cli.core.failure import Failed
from topics.cli.main import check_clock
from topics.engine.checkpoint import SegmentRules
from topics.engine.engine import SYNC_INTERVAL_MS as ENGINE_SYNC_INTERVAL_MS
from topics.host.cold.segment_stores import HotRules
from topics.kernel.limits import Limits
from topics.server.runtime.log import LEVELS
from topics.server.settings import LOG_LEVELS, ServerSettings
from topics.store.opened import StoreOptions

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
    assert {s.server for s in TABLE.values() if s.server} == {
        field.name for field in attrs.fields(ServerSettings) if field.name != "data"
    }
    assert all(
        s.low <= s.default <= s.high
        for s in TABLE.values()
        if s.kind is SettingKind.NUMBER and s.default is not None
    )
    assert set(LOG_LEVELS) == set(LEVELS)


@pytest.mark.rule("H1.37")
def test_each_limit_is_a_knob_that_begins_with_topics_max() -> None:
    knobs = {
        s.variable.removeprefix("TOPICS_MAX_"): s.default for s in TABLE.values() if s.key.startswith("max_")
    }
    stated = {
        "RECORDS_PER_WRITE": 10_000, "RECORD_BYTES": 1 << 20, "BODY_BYTES": 64 << 20, "META_BYTES": 16 << 10,
        "META_KEYS": 64, "TAG_BYTES": 256, "NODE_BYTES": 128, "KEY_BYTES": 256, "IDEMPOTENCY_KEY_CHARS": 256,
        "READ_LIMIT": 1000, "PAGE_BYTES_DEFAULT": 1 << 20, "PAGE_BYTES": 8 << 20, "TOPICS": 100_000,
        "TAGS_PER_TOPIC": 1_000_000, "HEAD_BYTES": 32 << 10, "HEAD_FIELDS": 100, "HELD_BYTES": 256 << 20,
        "CONNECTIONS": 10_000, "SCHEDULES": 10_000, "ROUTERS": 10_000,
    }  # fmt: skip

    assert stated == {name: default for name, default in knobs.items() if name in stated}


def test_every_setting_is_spelled_one_way() -> None:
    for setting in TABLE.values():
        assert setting.variable in (f"TOPICS_{setting.key.upper()}", "TOPICS_DATA_DIR")


@pytest.mark.rule("O3.1")
def test_each_kind_of_value_is_read_from_file_environment_and_flag(
    call: Call, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my.toml").write_text(
        'certfile = "c.pem"\nallowed_origins = ["https://a.example", "b.example/"]\nauto_create = false\nhost = "::1"\n'
    )
    monkeypatch.setenv("TOPICS_ALLOW_INSECURE_NO_AUTH", "Yes")
    monkeypatch.setenv("TOPICS_LOG_LEVEL", "debug")
    monkeypatch.setenv("TOPICS_MAX_HELD_BYTES", "2MiB")
    seen = shown(call, "--settings", "sub/my.toml", "--set", "auto_create=on", "--set", "port=0")

    assert seen["certfile"] == ("sub/c.pem", "sub/my.toml")
    assert seen["keyfile"] == (None, "default")
    assert seen["allowed_origins"] == (["https://a.example", "b.example"], "sub/my.toml")
    assert seen["host"] == ("::1", "sub/my.toml")
    assert seen["allow_insecure_no_auth"] == (True, "TOPICS_ALLOW_INSECURE_NO_AUTH")
    assert seen["log_level"] == ("debug", "TOPICS_LOG_LEVEL")
    assert seen["max_held_bytes"] == (2 << 20, "TOPICS_MAX_HELD_BYTES")
    assert seen["auto_create"] == (True, "--set auto_create")
    assert seen["port"] == (0, "--set port")


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


@pytest.mark.rule("T6.6", "O3.1")
def test_the_cold_directory_is_a_folder_or_a_url(
    call: Call, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file a folder is relative to it, a URL is not; a user in one is told to nobody."""
    (tmp_path / "sub").mkdir()
    for given, expected in (("cold", "sub/cold"), ("s3://me:secret@bucket/x", "s3://bucket/x")):
        (tmp_path / "sub" / "my.toml").write_text(f'cold_dir = "{given}"\n')
        assert shown(call, "--settings", "sub/my.toml")["cold_dir"] == (expected, "sub/my.toml")
        assert expected in call("--settings", "sub/my.toml", "config", "show").text
    assert shown(call)["cold_dir"] == (None, "default")
    monkeypatch.setenv("TOPICS_COLD_DIR", "from-env")
    monkeypatch.setenv("TOPICS_HOT_RETAIN_SEGMENTS", "2")
    seen = shown(call, "--set", "hot_retain_bytes=1GiB")
    assert seen["cold_dir"] == ("from-env", "TOPICS_COLD_DIR")
    assert (seen["hot_retain_segments"][0], seen["hot_retain_bytes"][0]) == (2, 2**30)
    options = load({"cold_dir": "flag"}, {}).options()
    assert (options.cold_dir, options.hot) == ("flag", HotRules(retain_segments=4, retain_bytes=0))
    assert call("--cold-dir", "elsewhere", "put", "t", stdin=b"1\n").code == 0
    assert pathlib.Path("elsewhere").is_dir()
    refused = call("--cold-dir", "nowhere://x", "put", "t", stdin=b"1\n")
    assert refused.code == 2
    assert "--cold-dir: nowhere:// does not say when a file is durable" in refused.err


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("put", "t", "--format", "jsonl")])
def test_a_cold_directory_in_the_data_directory_is_refused_before_anything_is_made_or_said(
    call: Call, command: tuple[str, ...]
) -> None:
    for place in ("d/x", "d"):
        answer = call(*command, "--data", "d", "--cold-dir", place)
        assert answer.code == 2
        assert answer.out == b""
        assert answer.err == (
            f"topics: --cold-dir: {place} is or lies in d, which is the data directory: choose a place outside it\n"
        )
    assert not list(pathlib.Path().iterdir())


@pytest.mark.rule("O3.4")
def test_a_number_of_bytes_may_have_a_unit_whatever_its_key(call: Call, tmp_path: pathlib.Path) -> None:
    units = {"wal_file_first": "128KiB", "wal_file_max": "2 MiB", "wal_reserve": "64KiB", "min_free_bytes": "1MB",
             "body_bytes_per_s": "1KiB", "max_page_bytes_default": "1MiB"}  # fmt: skip
    found = load(units, {}).values
    (tmp_path / "topics.toml").write_text("".join(f'{key} = "{text}"\n' for key, text in units.items()))

    assert [found[key].value for key in units] == [1 << 17, 2 << 20, 1 << 16, 1_000_000, 1024, 1 << 20]
    assert [shown(call)[key][0] for key in units] == [found[key].value for key in units]
    for key in ("port", "wal_shards", "sync_interval_ms", "max_topics"):
        with pytest.raises(Failed, match="give a whole number from"):
            load({key: "1KiB"}, {})
    with pytest.raises(Failed, match="give a number of bytes, or one as in 64MiB, from 65536 to"):
        load({"wal_file_first": "1 KiB"}, {})


@pytest.mark.rule("T6.5")
def test_the_knobs_of_sealing_reach_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load({}, {}).options().segments == SegmentRules(
        records_max=10_000, bytes_max=64 << 20, age_ms=3_600_000
    )
    environment = {
        "TOPICS_SEGMENT_MAX_EVENTS": "5",
        "TOPICS_SEGMENT_MAX_BYTES": "1KiB",
        "TOPICS_SEGMENT_MAX_AGE_MS": "0",
    }
    assert load({}, environment).options().segments == SegmentRules(records_max=5, bytes_max=1024, age_ms=0)


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
        ("zebra = 1", "there is no setting 'zebra'; topics config show --defaults lists all\n"),
        ('url = "ftp://x"', "url: 'ftp://x' is not allowed; give a server's URL, as in http://127.0.0.1:4000"),
        ('url = "localhost:4000"', "give it with its scheme: http://localhost:4000, or https:// where"),
        ("wal_shards = 65", "topics.toml: wal_shards: 65 is not allowed; give a whole number from 1 to 64"),
        ("wal_shards = true", "wal_shards: True is not allowed"),
        ("sync_interval_ms = 1.5", "sync_interval_ms: 1.5 is not allowed"),
        ('data = ""', "data: '' is not allowed; give a directory"),
        ("data = 3", "data: 3 is not allowed; give a directory"),
        ("[server]\nport = 1", "there is no setting 'server'"),
        ("port = 65536", "port: 65536 is not allowed; give a whole number from 0 to 65535"),
        ('port = "1"', "port: '1' is not allowed"),
        ('host = "a b"', "host: 'a b' is not allowed; give an address or a host name"),
        ("host = 1", "host: 1 is not allowed"),
        ("auto_create = 1", "auto_create: 1 is not allowed; give true or false"),
        ('log_level = "loud"', "log_level: 'loud' is not allowed; give one of debug, info, warning, error"),
        ("log_level = []", "log_level: [] is not allowed"),
        ('allowed_origins = "https://a"', "allowed_origins: 'https://a' is not allowed; give origins such as"),
        ('allowed_origins = ["https://a/b"]', "allowed_origins: ['https://a/b'] is not allowed"),
        ("allowed_origins = [1]", "allowed_origins: [1] is not allowed"),
        ("certfile = true", "certfile: True is not allowed; give a file"),
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


def test_the_defaults_are_listed_whatever_is_set_wrongly(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "topics.toml").write_text("zebra = 1\n")

    assert call("config", "show").code == 2
    assert shown(call, "--defaults")["wal_shards"][1] == "default"


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
        ("TOPICS_MAX_TAG_BYTES", "0", "TOPICS_MAX_TAG_BYTES: '0' is not allowed"),
        ("TOPICS_DATA_DIR", "", "TOPICS_DATA_DIR: '' is not allowed; give a directory"),
        ("TOPICS_SETTINGS", "no.toml", "TOPICS_SETTINGS: no.toml does not exist"),
        ("TOPICS_AUTO_CREATE", "maybe", "TOPICS_AUTO_CREATE: 'maybe' is not allowed; give true or false"),
        (
            "TOPICS_API_KEYS",
            "one,two:everything",
            "TOPICS_API_KEYS: key 2: the scopes, behind the key and a colon: read, write, delete, admin",
        ),
        ("TOPICS_API_KEYS", "", "TOPICS_API_KEYS: holds no key: unset it"),
        ("TOPICS_PROBE_AUTH", "perhaps", "TOPICS_PROBE_AUTH: 'perhaps' is not allowed; give true or false"),
        (
            "TOPICS_ALLOWED_ORIGINS",
            "a b",
            "TOPICS_ALLOWED_ORIGINS: 'a b' is not allowed; give origins such as",
        ),
        (
            "TOPICS_DRAINMS",
            "1",
            "TOPICS_DRAINMS: there is no such setting; unset it; did you mean TOPICS_DRAIN_MS",
        ),
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
    without = shown(call)
    for name, value in {
        "TOPICS_SERVICE_HOST": "10.0.0.1", "TOPICS_SERVICE_PORT": "4000", "TOPICS_PORT": "tcp://10.0.0.1:4000",
        "TOPICS_PORT_4000_TCP": "tcp://10.0.0.1:4000", "TOPICS_VENV": "/venv",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    assert shown(call) == without


@pytest.mark.rule("O3.1")
@pytest.mark.parametrize(
    ("variable", "key"),
    [("TOPICS_URL", "url"), ("TOPICS_CAFILE", "cafile"), ("TOPICS_API_KEY_FILE", "api_key_file")],
)
def test_an_empty_variable_of_a_client_is_unset(
    call: Call, monkeypatch: pytest.MonkeyPatch, variable: str, key: str
) -> None:
    pathlib.Path("topics.toml").write_text(f'{key} = "http://of.the.file"\n')
    of_file = shown(call)[key]
    monkeypatch.setenv(variable, "")

    assert shown(call)[key] == of_file
    assert of_file[1] == "topics.toml"


@pytest.mark.rule("O3.4")
def test_a_topics_field_among_the_settings_is_told_where_it_belongs(call: Call) -> None:
    answer = call("serve", "--set", "cap_records=5")

    assert answer.code == 2
    assert answer.err == (
        "topics: --set: there is no setting 'cap_records'; it is of a topic's config: topics create TOPIC"
        " cap_records=…, or topics configure TOPIC cap_records=…\n"
    )


@pytest.mark.parametrize("pair", ["zebra=1", "wal_shards=x", "wal_shards"])
def test_a_bad_flag_refuses_to_start(call: Call, pair: str) -> None:
    assert call("--set", pair, "ls").code == 2


def test_keys_in_the_file_are_refused_too_and_no_message_holds_one(call: Call) -> None:
    pathlib.Path("topics.toml").write_text('api_keys = "secret"\n')
    answer = call("serve", "--memory")

    assert answer.code == 2
    assert (
        "topics.toml: api_keys: keys come from TOPICS_API_KEYS, or from a file that api_keys_file names"
        in answer.err
    )
    assert "secret" not in answer.err
    pathlib.Path("topics.toml").unlink()
    assert call("--set", "api_keys=secret", "serve", "--memory").code == 2


def test_no_key_is_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", "secret,other-secret:read")
    for answer in (call("config", "show"), call("config", "show", "--json")):
        assert "2 (not shown)" in answer.text
        assert "secret" not in answer.text


@pytest.mark.rule("H2.3", "H2.16")
def test_keys_that_nobody_could_use_refuse_to_start(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pathlib.Path("keys").write_text("# none\n")
    for arguments, message in [
        (("--api-keys-file", "absent"), "absent: cannot be read: No such file or directory"),
        (
            ("--api-keys-file", "keys"),
            "keys: holds no key, so nobody could ask for anything: make one by topics key",
        ),
        (("--host", "0.0.0.0"), "there are no keys, so anybody there could read, write and delete"),
    ]:
        answer = call("serve", "--memory", "--port", "0", *arguments)
        assert answer.code != 0
        assert message in answer.err
    pathlib.Path("keys").write_text("k\ns3cret:s3cret\n")
    answer = call("serve", "--memory", "--port", "0", "--api-keys-file", "keys")
    assert "keys: line 2: the scopes" in answer.err
    assert "s3cret" not in answer.err
    monkeypatch.setenv("TOPICS_API_KEYS", "k")
    assert "leave out one of the two" in call("serve", "--memory", "--api-keys-file", "keys").err


def test_the_help_of_serve_offers_no_server_to_go_to(call: Call) -> None:
    offered = call("serve", "--help").text

    assert "--data" in offered
    for option in ("--url", "--cafile", "--api-key-file"):
        assert option not in offered
        assert option in call("get", "--help").text


@pytest.mark.parametrize(
    "url",
    ["http://me:secret@127.0.0.1:1", "http://me:secret@[::1", "ftp://me:secret@h", "me:secret@h", "http://h?key=secret",
     "http://me:secret/x@h", "http://h/#secret"],
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_not_repeated(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, url: str
) -> None:
    (tmp_path / "t.toml").write_text(f'url = "{url}"')
    given = [call("--settings", str(tmp_path / "t.toml"), "ls"), call("--url", url, "ls")]
    given.append(call("--debug", "--url", url, "ls"))
    monkeypatch.setenv("TOPICS_URL", url)
    given += [call("ls"), call("config", "show"), call("serve")]

    assert [answer.code for answer in given] == [2] * 6
    assert not [answer for answer in given if b"secret" in answer.out or "secret" in answer.err]


def test_a_password_of_a_cold_directory_is_not_repeated(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_COLD_DIR", "file://me:secret@h/x")
    shown, refused = call("config", "show"), call("put", "a", "-", stdin=b"1")

    assert (shown.code, refused.code) == (0, 2)
    assert "TOPICS_COLD_DIR" in refused.err
    assert not [one for one in (shown, refused) if b"secret" in one.out or "secret" in one.err]


@pytest.mark.parametrize("url", ["s3://[::1/x", "s3://me:secret@[::1/x"])
def test_what_looks_like_the_url_of_a_store_and_is_none_is_refused_in_words(call: Call, url: str) -> None:
    call("put", "a", "-", stdin=b"1")
    refused = call("ls", "--cold-dir", url)

    assert refused.code == 2
    assert "--cold-dir: s3://[" in refused.err
    assert "secret" not in refused.err


@pytest.mark.parametrize("url", ["s3://me:secret@b/x", "s3://b/x?key=secret", "s3://b/x#secret"])
def test_config_show_tells_of_a_cold_store_where_it_is_and_no_more(
    call: Call, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("TOPICS_COLD_DIR", url)
    shown = (call("config", "show"), call("config", "show", "--json"))

    assert [one.code for one in shown] == [0, 0]
    assert all(b"s3://b/x" in one.out and b"secret" not in one.out for one in shown)


def test_a_clock_beyond_what_python_tells_refuses_to_start() -> None:
    def beyond() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    with pytest.raises(Failed, match="beyond the year 2262"):
        check_clock(beyond)
