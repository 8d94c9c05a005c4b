"""Every example of docs/pytest.md passes, as somebody runs it who has copied it."""

from __future__ import annotations

import pathlib
import re

import pytest

pytest_plugins = ["pytester"]
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytest.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of this house cost seconds
    *others, settings = BLOCKS
    for name, blocks in ("others", others), ("settings", [settings]):  # one server has one set of settings
        folder = pytester.mkdir(name)
        for number, block in enumerate(blocks):
            (folder / f"test_{number}.py").write_text(block)

        result = pytester.runpytest_subprocess(
            "-p", "anyio", "-p", "topics.pytest_plugin", "-W", "error", folder
        )

        result.assert_outcomes(passed=len(re.findall("^(?:async )?def test_", "".join(blocks), re.MULTILINE)))


def test_the_table_has_every_fixture() -> None:
    source = (pathlib.Path(__file__).resolve().parents[2] / "topics/pytest_plugin/__init__.py").read_text()
    there = set(re.findall(r"^def (topics_\w+)", source, re.MULTILINE))

    assert there - {"topics_server_settings"} == set(re.findall(r"^\| `(topics_\w+)` ", PAGE, re.MULTILINE))
