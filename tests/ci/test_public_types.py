"""What an editor and a strict checker of types know of each public name: everything, and the parameters of each call.

By pyright, as users have it, beside the mypy of the gate, which sees our own code. A file is written that says each
public name, and each public attribute of each class; one whose type is not known, or known in parts, is an error there.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from inspect import isclass
from typing import Any

import topics
from topics.pytest_plugin.clock import Clock
from topics.pytest_plugin.server import Server

STRICT = "# pyright: strict, reportUnusedExpression=false\nimport topics\n"
OF_TESTS = {"topics.pytest_plugin.clock": Clock, "topics.pytest_plugin.server": Server}
OF_GENERICS = {
    "topics.AsyncWorker": "topics.AsyncWorker[topics.AsyncJob]",
    "topics.Worker": "topics.Worker[topics.Job]",
}


def found(folder: pathlib.Path, text: str) -> list[str]:
    """What pyright has against it: `rule: message`."""
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "pythonVersion": "3.11"}')
    (folder / "names.py").write_text(text)
    pyright = pathlib.Path(sys.executable).parent / "basedpyright"
    done = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "--outputjson", "names.py"],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == 1
    lines = text.splitlines()
    return [
        f"{lines[one['range']['start']['line']].strip()}: {one.get('rule')}: {one['message']}"
        for one in said["generalDiagnostics"]
    ]


def every_name() -> str:
    text = STRICT + "".join(f"import {module}\n" for module in OF_TESTS)
    text += "".join(f"topics.{name}\n" for name in topics.__all__)
    kinds = {f"topics.{name}": getattr(topics, name) for name in topics.__all__}
    kinds |= {f"{module}.{kind.__name__}": kind for module, kind in OF_TESTS.items()}
    for number, (name, kind) in enumerate(kinds.items()):
        if isclass(kind):
            annotated = [one for base in kind.__mro__ for one in vars(base).get("__annotations__", ())]
            attributes = {one for one in [*dir(kind), *annotated] if not one.startswith("_")}
            text += f"def of_{number}(it: {OF_GENERICS.get(name, name)}) -> None:\n"
            text += "".join(f"    it.{one}\n" for one in sorted(attributes)) or "    it\n"
    return text


def test_the_type_of_every_public_name_is_known(tmp_path: pathlib.Path) -> None:
    assert not found(tmp_path, every_name())


def test_a_call_is_checked_and_its_answer_known(tmp_path: pathlib.Path) -> None:
    """By what each call is made of: nothing is restated for checkers of types."""
    wrong = found(
        tmp_path,
        f"""{STRICT}
def blocking(store: topics.Client) -> None:
    seq: int | None = store.topic("quakes").put(1, tag="us").first_seq
    jobs: list[topics.Job] = store.queue("jobs").claim(2, wait_ms=10)
    store.topic("quakes").put(1, tga="us")
    text: str = store.topic("quakes").read(from_seq=0).next_from_seq
    print(seq, jobs, text)

async def awaited(store: topics.AsyncClient) -> None:
    page: topics.Page = await store.topic("quakes").read(limit=2)
    page = store.topic("quakes").read()
    print(page)
""",
    )

    assert len(wrong) == 3, wrong
    assert 'No parameter named "tga"' in wrong[0]
    assert '"int" is not assignable to "str"' in wrong[1]
    assert '"Page"' in wrong[2]
