"""`topics import --ledgerq` and `topics export --ledgerq`: what is said, and the exit codes."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tests.cli.conftest import Call
from topics.cli.demo.private_server import PrivateServer

RELEASE = pathlib.Path(__file__).parents[2] / "golden" / "ledgerq-release"
SEGMENT = "00000000000000000001.log"


@pytest.fixture
def damaged(tmp_path: pathlib.Path) -> pathlib.Path:
    """The release's directory with a byte of message 419 wrong."""
    source = tmp_path / "damaged"
    shutil.copytree(RELEASE, source)
    data = bytearray((source / SEGMENT).read_bytes())
    data[data.index(b"sample message 418")] ^= 1
    (source / SEGMENT).write_bytes(data)
    return source


def test_a_directory_of_the_release_becomes_a_queue(call: Call) -> None:
    """Exit code 0, and what cannot be kept is told on stderr."""
    answer = call("import", "--ledgerq", str(RELEASE), "mail", "--data", "new")

    assert answer.code == 0
    assert (
        answer.text == "mail: 3 records of 420 messages of release 1.4.1, 417 consumed; the next seq is 421\n"
    )
    assert "note: 60 entries were put with a dedup id" in answer.err
    assert call("state", "mail", "--data", "new", "--json").lines[0]["head_seq"] == 420


@pytest.mark.rule("Q7.14")
def test_damage_is_listed_and_the_exit_code_is_1(call: Call, damaged: pathlib.Path) -> None:
    """File, place and why; all others are there."""
    answer = call("import", "--ledgerq", str(damaged), "mail", "--data", "new")
    listed = call("import", "--ledgerq", str(damaged), "mail", "--data", "newer", "--json")
    (fault,) = listed.lines[0]["faults"]

    assert (answer.code, listed.code) == (1, 1)
    assert f"LEFT OUT: {SEGMENT} at byte {fault['offset']}: the checksum is wrong" in answer.err
    assert listed.lines[0]["records"] == 2


def test_fields_of_the_config_are_taken(call: Call) -> None:
    """A log keeps what was consumed."""
    answer = call(
        "import",
        "--ledgerq",
        str(RELEASE),
        "mail",
        "type=log",
        "durability=memory",
        "--data",
        "new",
        "--json",
    )
    state = call("state", "mail", "--data", "new", "--json").lines[0]

    assert answer.lines[0]["records"] == 420
    assert (state["type"], state["config"]["durability"]) == ("log", "memory")


def test_a_used_directory_is_told_the_way(call: Call) -> None:
    """Exit code 2, and the flag that helps."""
    call("put", "other", "-", "--data", "used", stdin=b"1\n")
    refused = call("import", "--ledgerq", str(RELEASE), "mail", "--data", "used")

    assert refused.code == 2
    assert "--new-timestamps" in refused.err
    assert call("import", "--ledgerq", str(RELEASE), "mail", "--data", "used", "--new-timestamps").code == 0


def test_an_export_is_imported_again(call: Call) -> None:
    """Through the files of the seed's dialect; a second export is refused."""
    call("import", "--ledgerq", str(RELEASE), "mail", "type=log", "--data", "one")
    exported = call("export", "--ledgerq", "out", "mail", "--data", "one")
    again = call("import", "--ledgerq", "out", "mail", "type=log", "--data", "two")

    assert (exported.code, again.code) == (0, 0)
    assert exported.text.startswith("mail: ")
    assert (
        call("get", "mail", "--data", "one", "--json").out
        == call("get", "mail", "--data", "two", "--json").out
    )
    assert call("export", "--ledgerq", "out", "mail", "--data", "one").code == 2


def test_a_server_is_no_place_to_export_from(call: Call, server: PrivateServer) -> None:
    """It does not tell priorities and expiry; a backup does."""
    answer = call("export", "--ledgerq", "out", "mail", "--url", server.url)

    assert answer.code == 1
    assert "topics backup" in answer.err


def test_a_server_takes_an_import_with_times_of_its_own(call: Call, server: PrivateServer) -> None:
    """Ids, headers and priorities; without the flag it is refused."""
    asked = ("import", "--ledgerq", str(RELEASE), "ledgerq-mail", "--url", server.url)
    refused = call(*asked)
    taken = call(*asked, "--new-timestamps", "--read-position", "400")
    jobs = call("queue", "peek", "ledgerq-mail", "--url", server.url, "--json").lines

    assert refused.code == 2
    assert taken.code == 0
    assert [job["$seq"] for job in jobs if job.get("priority") == 9] == [403, 410, 417]
    assert call("state", "ledgerq-mail", "--url", server.url, "--json").lines[0]["head_seq"] == 420
