"""docs/spark.md is right: its code runs, from the first block to the last."""

import pathlib
import re

import topics
from topics.audit.checks.acks import load_acks

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = [  # those of a cluster have a test of their own
    block
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    if "addPyFile" not in block
]


def test_the_code_of_the_page_runs(spark, server, tmp_path, capsys):
    with topics.open(tmp_path / "data") as store:
        store.create("quakes").put_many([{"data": {"mag": n}} for n in (6.4, 1.2, 7.0)])
        store.create("capped", cap_records=1).put_many([{"data": 1}, {"data": 2}])
    code = "\n".join(BLOCKS)
    for name in ("./data", "./checkpoint", "./acks.jsonl"):
        code = code.replace(name, str(tmp_path / name))

    exec(compile(code.replace("http://127.0.0.1:4000", server.url), "docs/spark.md", "exec"), {})

    assert len(BLOCKS) == 5
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "2"
    assert "capped" in printed
    with topics.Client(server.url) as client:
        assert [item.data["mag"] for item in client.topic("copy").records()] == [6.4, 1.2, 7.0]
        assert len(client.topic("numbers").read(limit=1000).records) == 1000
    acks = load_acks(tmp_path / "acks.jsonl")
    assert len(acks) == len(acks.took_ms["quakes"]) == 2
