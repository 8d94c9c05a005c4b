"""A page of another origin in a real browser: a listed one reads and writes with a key, another one gets nothing."""

from __future__ import annotations

import pathlib

import pytest

import topics
from tests.crash.serving import Served
from tests.e2e.browsing import Origin, visiting

KEY = "a-key"
SAYING = """<!doctype html><script type="module">
const headers = {{ authorization: "Bearer {key}", "content-type": "application/json" }}
const post = (url, body, more) =>
  fetch(url, {{ method: "POST", headers: {{ ...headers, ...more }}, body: JSON.stringify(body) }})
const say = (text) => post("{here}/v0/topics/seen", {{ records: [{{ data: text }}] }}, {{ "idempotency-key": text }})
{script}
</script>"""
READS = """
const session = await (await post("{server}/v0/watch", {{ topics: {{ quakes: {{}} }} }})).json()
const stream = new EventSource("{server}" + session.stream_url + "?token={key}")
stream.addEventListener("record", ({{ data }}) => say("record " + JSON.parse(data).to_seq))
const refused = await fetch("{server}/v0/topics/none", {{ headers }})
await say("refused " + (await refused.json()).error.code)
const nobody = await fetch("{server}/v0/topics")
await say("without a key " + nobody.status)
"""
TRIES = """
const tried = (url, how) => fetch(url, how).then((answer) => "read " + answer.status, () => "got nothing")
await say("asked " + await tried("{server}/v0/topics", {{ headers }}))
await say("simple " + await tried("{server}/v0/health"))
await say("opaque " + await tried("{server}/v0/topics/quakes", {{ method: "POST", mode: "no-cors", body: "1" }}))
"""


def page_of(script: str, *, here: str, server: str) -> str:
    return SAYING.format(key=KEY, here=here, script=script.format(key=KEY, server=server))


def told(client: topics.Client, count: int) -> set[str]:
    seen, found = client.topic("seen"), list[str]()
    while len(found) < count:
        page = seen.read(from_seq=len(found), wait_ms=20_000)
        assert page.records, found
        found += [record.data for record in page.records]
    return set(found)


@pytest.mark.slow
@pytest.mark.rule("H2.24", "H2.25")
def test_a_page_of_a_listed_origin_reads_and_another_does_not(tmp_path: pathlib.Path) -> None:
    pages: dict[str, str] = {}
    (tmp_path / "key").write_text(KEY)
    with (
        Origin(0, pages) as listed,
        Served(tmp_path / "data", TOPICS_ALLOWED_ORIGINS=listed.url, TOPICS_API_KEYS=KEY) as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "key") as client,
    ):
        server = f"http://127.0.0.1:{served.port}"
        client.create("quakes").put(4.2)
        client.create("seen")
        pages["/page.html"] = page_of(READS, here=server, server=server)
        with visiting(f"{listed.url}/page.html", tmp_path / "one"):
            assert told(client, 3) == {"record 1", "refused topic_not_found", "without a key 401"}
        client.delete("seen")
        client.create("seen")
        # What this one has to say goes through its own origin, which is the server by another name.
        tries = {"/page.html": page_of(TRIES, here="", server=server)}
        with Origin(served.port, tries) as other, visiting(f"{other.url}/page.html", tmp_path / "two"):
            assert told(client, 3) == {"asked got nothing", "simple got nothing", "opaque read 0"}
        assert client.topic("quakes").state().head_seq == 1
