"""The import contracts of pyproject.toml turn red on a planted breach, whatever part of the house exists already."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

BREACHES = [
    ("topics/kernel/planted.py", "import time\n", "the core is pure"),
    ("topics/engine/planted.py", "import threading\n", "the core is pure"),
    ("topics/log/planted.py", "from pathlib import Path\n", "the core is pure"),
    ("topics/kernel/planted.py", "import topics.codec\n", "a lower layer never imports a higher one"),
    ("topics/engine/planted.py", "import topics.host\n", "a lower layer never imports a higher one"),
    ("topics/engine/planted.py", "import topics.kv\n", "a lower layer never imports a higher one"),
    ("topics/unheard_of/planted.py", "", "a lower layer never imports a higher one"),
    ("topics/server/api/planted.py", "import topics.server.main\n", "inside the server"),
    ("topics/embed/store.py", "import trio\n", "trio stays"),
    ("topics/cli/planted.py", "import hypothesis\n", "hypothesis stays"),
]
HONEST = [
    ("topics/embed/aio.py", "import trio\n"),
    ("topics/host/planted.py", "import time, os\nimport topics.engine\n"),
    ("topics/simulation/planted.py", "import hypothesis, trio\n"),
    ("topics/cli/planted.py", "import topics.server.main\n"),
]


def contracts(root: pathlib.Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run lint-imports on a house of empty packages with one file planted."""
    packages = ["", "kernel", "codec", "log", "engine", "kv", "host", "embed", "server", "server/main", "cli"]
    for package in [*packages, pathlib.Path(name).relative_to("topics").parent]:
        folder = root / "topics" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    (root / "topics" / "server" / "main" / "__init__.py").write_text("import trio\n")
    (root / name).write_text(text)
    shutil.copy(ROOT / "pyproject.toml", root)
    command = [str(pathlib.Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)


@pytest.mark.parametrize(("name", "text", "contract"), BREACHES)
def test_breach_breaks_its_contract(tmp_path, name, text, contract):
    result = contracts(tmp_path, name, text)

    assert result.returncode == 1, result.stdout + result.stderr
    assert any(line.startswith(contract) and line.endswith("BROKEN") for line in result.stdout.split("\n"))


@pytest.mark.parametrize(("name", "text"), HONEST)
def test_honest_import_keeps_every_contract(tmp_path, name, text):
    result = contracts(tmp_path, name, text)

    assert result.returncode == 0, result.stdout + result.stderr
