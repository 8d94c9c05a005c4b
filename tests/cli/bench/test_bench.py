"""`topics bench`: every workload of every system that is here runs to its end and is told; what is not here is said.

The figures of so short a run mean nothing; that there are some, and of what, is what is looked at.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from topics.cli.bench.in_process import InProcess
from topics.cli.bench.payload import PAYLOAD_BYTES, payloads
from topics.cli.bench.processes import MissingPeer, find_program, free_port, started, version_in
from topics.cli.bench.report import BenchRun, print_report, run_fields
from topics.cli.bench.rounds import Measured, cell_of, measure
from topics.cli.bench.systems import Running, System, peers
from topics.cli.bench.workloads import WORKLOADS, Sample
from topics.cli.demo.private_server import PrivateServer

TINY = ("--rounds", "1", "--seconds", "0.01")
PEERS = {system.name: system for system in peers()}


def measured(system: System, home: pathlib.Path) -> Measured:
    return measure(
        [system], WORKLOADS, rounds=2, seconds=0.005, payloads=payloads(200, seed=1), home=home, tell=lambda _: None
    )  # fmt: skip


def expected_of(system: System) -> list[str]:
    return [one.key for one in WORKLOADS if one.needs <= system.can]


@pytest.mark.rule("O2.11")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_workload_is_measured_and_nothing_is_left_behind(call, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = call("bench", "--json", "--dir", str(scratch), *TINY)

    assert done.err == ""
    assert done.code == 0
    (told,) = done.lines
    assert [one["name"] for one in told["systems"]] == [
        "topics, fsync", "topics, disk", "topics embedded, fsync", "topics embedded, disk",
    ]  # fmt: skip
    served, embedded = told["systems"][0]["cells"], told["systems"][2]["cells"]
    assert list(served) == [one.key for one in WORKLOADS]
    assert set(served) - set(embedded) == {"deliver", "fan-out"}
    assert all(cell["rate"] > 0 and cell["cpu_us"] > 0 for cell in served.values())
    assert {"machine", "disk", "python", "versions"} <= set(told["facts"])
    assert told["failed"] == []
    assert list(scratch.iterdir()) == []


@pytest.mark.rule("O2.11")
def test_the_page_has_the_same_figures_and_can_ask_nobody_for_anything(call, server, tmp_path):
    page = tmp_path / "report.html"
    done = call("bench", "--url", server.url, "--only", "write", "--json", "--html", str(page), *TINY)

    assert done.code == 0, done.err
    (told,) = done.lines
    text = page.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="told">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert {key: json.loads(data[1])[key] for key in told} == told
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    assert "/*" + "UPLOT*/" not in text


@pytest.mark.rule("O2.11")
def test_a_server_that_runs_is_loaded_in_topics_that_are_removed_afterwards(call, server):
    before = call("ls", "--url", server.url, "--json").out
    done = call("bench", "--url", server.url, "--only", "write,job,deliver", *TINY)

    assert done.code == 0, done.err
    assert re.search(r"topics, fsync +yes +\d", done.text)
    assert "topics embedded" not in done.text
    assert call("ls", "--url", server.url, "--json").out == before


@pytest.mark.rule("O2.11")
def test_a_server_that_asks_for_a_key_is_given_it(call, tmp_path, monkeypatch):
    keys = str(tmp_path / "keys")
    key = call("key", "new", "bench", "--api-keys-file", keys).text.strip()
    with PrivateServer(tmp_path / "data", tmp_path, settings={"api_keys_file": keys}) as own:
        assert call("bench", "--url", own.url, "--only", "job", *TINY).code == 1
        monkeypatch.setenv("TOPICS_API_KEY", key)
        done = call("bench", "--url", own.url, "--only", "job,read", *TINY)

    assert done.code == 0, done.err
    assert key not in done.text


@pytest.mark.rule("O2.11")
@pytest.mark.parametrize("scopes", ["read+write+admin", "read+write+delete"])
def test_a_key_that_may_too_little_leaves_nothing_behind(call, tmp_path, monkeypatch, scopes):
    """And what is said is what the key lacks."""
    keys = str(tmp_path / "keys")
    key = call("key", "new", "bench", "--scopes", scopes, "--api-keys-file", keys).text.strip()
    with PrivateServer(tmp_path / "data", tmp_path, settings={"api_keys_file": keys}) as own:
        monkeypatch.setenv("TOPICS_API_KEY", key)
        done = call("bench", "--url", own.url, "--only", "write", *TINY)
        left = call("ls", "--url", own.url, "--json").text

    assert done.code == 1
    assert f"needs the scope {({'delete', 'admin'} - set(scopes.split('+'))).pop()}" in done.err
    assert left == ""


@pytest.mark.rule("O2.11")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "Rabbit" in name else name for name in PEERS]
)
def test_a_peer_that_is_installed_does_all_it_can(name, tmp_path):
    system = PEERS[name]
    result = measured(system, tmp_path)
    if result.missing:
        pytest.skip(result.missing[name])

    assert result.notes == []
    assert [key for _, key in result.cells] == expected_of(system)
    assert result.versions[name]


@pytest.mark.rule("O2.11")
def test_a_round_that_is_over_before_it_began_has_one_sample_of_each(tmp_path):
    """A slow machine took the whole of a short round for its first answer, and a median of nothing was asked for."""
    peer = PEERS["SQLite, FULL"]
    result = measure(
        [peer], WORKLOADS, rounds=1, seconds=0.0, payloads=payloads(200, seed=1), home=tmp_path, tell=lambda _: None
    )  # fmt: skip

    assert result.notes == []
    assert [key for _, key in result.cells] == expected_of(peer)


@pytest.mark.rule("O2.11")
def test_peers_that_are_not_installed_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    names = ["Redis Streams, always", "SQLite, FULL", "beanstalkd, -f 0"]
    result = measure(
        [PEERS[name] for name in names], WORKLOADS[:1], rounds=1, seconds=0.005,
        payloads=payloads(200, seed=1), home=tmp_path, tell=lambda _: None,
    )  # fmt: skip
    run = BenchRun(facts={}, rounds=1, seconds=0.005, seed=1, measured=result)
    print_report(run)
    said = capsys.readouterr().out

    assert result.missing == {
        names[0]: "redis-server is not installed",
        names[2]: "beanstalkd is not installed",
    }
    assert run_fields(run)["missing"] == result.missing
    assert "not measured: beanstalkd, -f 0: beanstalkd is not installed" in said
    assert re.search(r"SQLite, FULL +yes +\d", said)


def test_seconds_are_a_number(call):
    done = call("bench", "--seconds", "nan", "--only", "write")

    assert (done.code, done.err) == (2, "topics: --seconds takes a number of seconds, not nan\n")


def test_an_unknown_workload_is_told_with_those_that_there_are(call):
    done = call("bench", "--only", "writes")

    assert done.code == 2
    assert "there is no workload 'writes'; there are write, write-16" in done.err


def test_a_data_directory_is_not_written_to(call, tmp_path):
    done = call("bench", "--data", str(tmp_path / "data"))

    assert done.code == 2
    assert "--dir" in done.err
    assert not (tmp_path / "data").exists()


def test_a_page_that_cannot_be_written_is_told_before_anything_is_measured(call, tmp_path):
    done = call("bench", "--html", str(tmp_path / "no" / "report.html"))

    assert done.code == 2
    assert "--html" in done.err


class Forgetful(InProcess):
    """It claims one job too few."""

    def put(self, count: int) -> None:
        self._count = count

    def claim(self, count: int) -> None:
        self._count = count - 1


@contextmanager
def forgetful(_path: pathlib.Path, given: list[bytes]) -> Iterator[Running]:
    yield Running(lambda _: Forgetful(given))


def test_an_answer_that_is_wrong_is_no_figure(tmp_path):
    result = measured(System("Forgetful", "no", forgetful, frozenset({"jobs"}), is_library=True), tmp_path)

    assert [key for _, key in result.cells] == ["write", "write-16"]
    assert result.notes == ["Forgetful, jobs by 1: Forgetful: an answer was about 0 records, not 1"]


def test_a_cell_has_the_medians_of_its_rounds():
    rounds = [
        Sample(records=100, seconds=1.0, cpu_s=0.001, own_cpu_s=0.8, latencies=[0.01] * 99 + [0.5]),
        Sample(records=300, seconds=1.0, cpu_s=0.006, own_cpu_s=0.9, latencies=[0.02] * 100),
        Sample(records=200, seconds=1.0, cpu_s=0.002, own_cpu_s=0.1, latencies=[0.03] * 100),
    ]
    cell = cell_of(rounds, is_library=False)

    assert cell.rate == 200
    assert cell.rates == [100, 300, 200]
    assert cell.p50_us == pytest.approx(20_000)
    assert cell.p99_us == pytest.approx(30_000)
    assert cell.cpu_us == pytest.approx(10)
    assert cell.busy == pytest.approx(0.8)
    assert cell.is_bounded
    assert not cell_of(rounds, is_library=True).is_bounded


def test_the_seed_says_which_payloads():
    given = payloads(50, seed=3)

    assert given == payloads(50, seed=3)
    assert not set(given) & set(payloads(50, seed=4))
    assert {len(one) for one in given} == {PAYLOAD_BYTES}
    assert len(set(given)) == 50


def test_a_version_is_read_from_what_a_program_says():
    assert version_in("Redis server v=7.0.15 sha=00000000:0") == "7.0.15"
    assert version_in("Erlang 25.2\n  ##  ##      RabbitMQ 3.10.8\n", "RabbitMQ") == "3.10.8"
    assert version_in("none") == ""


def test_a_program_that_is_nowhere_is_missing():
    with pytest.raises(MissingPeer, match="no-such-broker is not installed"):
        find_program("no-such-broker")


def test_a_program_that_does_not_start_is_missing_with_its_last_words(tmp_path):
    """It is told as not measured, and the others are measured all the same."""
    command = "sh", "-c", "echo no license; exit 3"
    with (
        pytest.raises(MissingPeer, match=r"sh ended by itself \(3\): no license"),
        started(tmp_path, command, port=free_port()),
    ):
        pass
