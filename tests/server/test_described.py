"""The server does what its OpenAPI document says, asked all that the document allows by a tool that knows nothing else.

Refusing what the document allows and taking what it does not are no faults here: numbers out of range are clamped, and
what a field means for others is not said by a schema (http-api 1).
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.process import Process
from topics.server.api.table import route_table

STREAMS = [route.name for route in route_table().routes if "text/event-stream" in route.media]
KEY = "a-key-of-all-scopes-and-all-names"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "unsupported_method", "missing_required_header",
)  # fmt: skip


def asked_all(server: Process, folder: Path, examples: int, config: str = "") -> int:
    """How many requests the tool made, none of which was answered otherwise than described."""
    (folder / "schemathesis.toml").write_text(config, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/v0/openapi.json"),
        *("--phases", "coverage,fuzzing", "--checks", ",".join(CHECKS), "--seed", "1", "--no-color"),
        *("--max-examples", str(examples), "--request-timeout", "20"),
        *("--header", f"Authorization: Bearer {KEY}"),
        *(word for name in STREAMS for word in ("--exclude-operation-id", name)),
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counted = re.search(r"(\d+) generated, \1 passed", ended.stdout)
    assert counted is not None, ended.stdout
    return int(counted[1])


@pytest.mark.slow
@pytest.mark.rule("H0.5")
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_no_request_that_the_document_allows_gets_an_answer_that_it_does_not_describe(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Of topics that mostly are not there, and of one that is."""
    with Process(
        "--port", "0", "--data", tmp_path / "data", cwd=tmp_path, TOPICS_API_KEYS=KEY
    ).ready() as server:
        created, _ = server.ask("PUT", "/v0/topics/there", {"type": kind}, Authorization=f"Bearer {KEY}")
        assert created == 201
        tried = asked_all(server, tmp_path, 40)
        tried += asked_all(server, tmp_path, 80, '[parameters]\n"path.topic" = "there"\n')
        server.stop()

    assert tried > 2000
    record_property("described requests", tried)
