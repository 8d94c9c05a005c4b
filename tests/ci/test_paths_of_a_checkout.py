"""Users' pages say so where they name what only a checkout has: an installation has neither ci/ nor tests/."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import FENCE, ROOT, users_pages

# The source distribution has what makes the site; see pyproject.toml.
NAMED = re.compile(r"`(?:ci|tests|fuzz|models)/[\w./-]+|\.venv/")
SAID = re.compile(r"checkout", re.IGNORECASE)


@pytest.mark.parametrize("page", [*users_pages(), "SECURITY.md", "CHANGELOG.md"])
def test_a_page_that_names_them_says_where_they_are(page: str) -> None:
    """In the section, or at the page's head for all of it."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    lost = [
        part.splitlines()[0]
        for part in (head, *sections)
        if NAMED.search(part) and not SAID.search(head + part)
    ]

    assert lost == []
