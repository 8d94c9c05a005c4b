"""The page of docs/live.md in a real browser: its EventSource and its WebSocket, over a restart of the server."""

from __future__ import annotations

import pathlib
import re

import pytest

import topics
from tests.e2e.browsing import Origin, visiting
from topics.cli.demo.private_server import PrivateServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
# What the page shows, and what it logs, becomes a topic.
REPORTING = """<script>
const report = (text) => fetch("/v0/topics/seen", {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ records: [{ data: text }] }),
})
console.log = (...words) => report(words.join(" "))
new MutationObserver((changes) => {
  for (const { addedNodes } of changes) for (const node of addedNodes) report(node.textContent)
}).observe(document.querySelector("ol"), { childList: true })
</script>"""


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.slow
def test_the_page_lives_in_chromium(tmp_path: pathlib.Path) -> None:
    socket = block("js").replace('"ws://localhost:4000', '"ws://" + location.host + "')
    page = block("html").replace("<ol></ol>", f"<ol></ol>{REPORTING}<script>{socket}</script>")
    pages = {"/live.html": page, "/live.mjs": (ROOT / "docs" / "live.mjs").read_text(encoding="utf-8")}
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        quakes = client.create("quakes", cap_records=2)
        quakes.put_many([{"data": n} for n in range(3)])
        seen, from_seq = client.create("seen"), 0

        def until(*texts: str) -> None:
            """They are told, in whatever order, and nothing else."""
            nonlocal from_seq
            missing = sorted(texts)
            while missing:
                page = seen.read(from_seq=from_seq, wait_ms=20_000)
                assert page.records, missing
                for record in page.records:
                    missing.remove(record.data)
                from_seq = page.next_from_seq

        with Origin(server.port, pages) as origin, visiting(f"{origin.url}/live.html", tmp_path):
            until("quakes: 1 to 1 are lost (cap)", "quakes 2: 1", "quakes 3: 2",
                  "quakes: that is all so far", "quakes 2,3 3", "quakes caught up 3")  # fmt: skip
            quakes.put({"mag": 5})
            until('quakes 4: {"mag":5}', "quakes 4 4")
            server.kill()
            server.start()
            quakes.put("after")
            until('quakes 5: "after"', "quakes: that is all so far")
            client.delete("quakes")
            until("quakes was deleted")
