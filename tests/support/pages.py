"""Fenced blocks of the users' pages, README.md and docs/ without docs/dev, and how a console block is typed.

for block in blocks_of("docs/keys.md"):
    print(block.language, block.text)
typed(block.commands, tmp_path)     # as somebody types them, one after another
"""

from __future__ import annotations

import pathlib
import re

import attrs

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<bars>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=bars)[ \t]*$", re.DOTALL | re.MULTILINE
)


@attrs.frozen
class Block:
    """One fenced block of a page. `language`: what stands behind its fence, often nothing."""

    page: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What is typed: the lines with a prompt, or all of them if none has one."""
        lines = self.text.splitlines()
        return [line[2:] for line in lines if line.startswith("$ ")] or lines

    @property
    def shown(self) -> list[str]:
        """What stands below the prompts."""
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(page, found["language"].strip(), found["text"]) for found in FENCE.finditer(text)]


def users_pages() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
    return sorted(page.relative_to(ROOT).as_posix() for page in pages)
