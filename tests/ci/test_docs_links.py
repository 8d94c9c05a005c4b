"""Every page of the site is in a toctree and every link in it leads somewhere, seen without building the site.

What Sphinx alone can see (autodoc, roles) `ci/docs` sees, and `tests/ci/test_docs.py`.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from ci.site.__main__ import gather

SOUND = "# Home\n\n[There](there.md#a-part), `docs/there.md`.\n\n```{toctree}\nthere\n```\n"
_FENCE = re.compile(r"^(`{3,}|~{3,})(.*?)\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_PATH_IN_DOCS = re.compile(r"docs/([\w/-]+)\.md", re.ASCII)
_DECISION = re.compile(r"\b[Dd]ecisions? (\d+(?:(?:, and |, | and )\d+)*)", re.ASCII)
_HEADING = re.compile(r"^#{1,4} +(.+?)[ #]*$", re.MULTILINE)
_LABEL = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)


def faults_in(folder: pathlib.Path) -> list[str]:
    pages = {path.relative_to(folder).with_suffix("").as_posix(): path for path in _pages(folder)}
    texts = {name: path.read_text(encoding="utf-8") for name, path in pages.items()}
    told = {"index"}
    for name, text in texts.items():
        told.update(_named_by_toctrees(name, text, pages))
    return [f"{name}: is in no toctree" for name in sorted(pages.keys() - told)] + [
        f"{name}: {fault}"
        for name, text in texts.items()
        if pages[name].suffix == ".md"
        for fault in _faults_of(name, text, folder, texts)
    ]


def _pages(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.suffix in (".md", ".rst"))


def _named_by_toctrees(name: str, text: str, pages: dict[str, pathlib.Path]) -> Iterator[str]:
    folder = pathlib.PurePosixPath(name).parent
    for _, what, body in _FENCE.findall(text):
        if what.strip() == "{toctree}":
            for line in body.splitlines():
                entry = line.strip()
                if entry and not entry.startswith(":"):
                    pattern = posixpath.normpath(folder / entry).lstrip("/")
                    yield from (page for page in pages if fnmatch(page, pattern) and page != name)
    for block in re.findall(r"^\.\. toctree::\n((?:(?: {3}.*)?\n)*)", text, re.MULTILINE):
        yield from ((folder / entry).as_posix() for entry in block.split() if not entry.startswith(":"))


def _faults_of(name: str, text: str, folder: pathlib.Path, texts: dict[str, str]) -> Iterator[str]:
    prose = _FENCE.sub("", text)
    for _, code in _CODE.findall(prose):
        path = _PATH_IN_DOCS.fullmatch(code)
        if path and path[1] not in texts:
            yield f"`{code}` is no page"
    prose = _CODE.sub(lambda found: "x" * len(found[0]), prose)
    for numbers in _DECISION.findall(prose):
        for number in re.findall(r"\d+", numbers):
            if not any(page.startswith(f"dev/decisions/{int(number):04}") for page in texts):
                yield f"there is no decision {number}"
    for target in _LINK.findall(prose):
        if not re.match(r"[a-z]+:|//", target):
            yield from _faults_of_link(name, target, folder, texts)


def _faults_of_link(name: str, target: str, folder: pathlib.Path, texts: dict[str, str]) -> Iterator[str]:
    path, _, anchor = target.partition("#")
    file = (folder / name).parent / path if path else next(iter(folder.glob(f"{name}.*")))
    if not file.exists():
        yield f"{target} leads nowhere"
    elif anchor and file.suffix == ".md":
        page = file.resolve().relative_to(folder.resolve()).with_suffix("").as_posix()
        if anchor not in _anchors(texts[page]):
            yield f"{target}: the page has no such part"


def _anchors(text: str) -> set[str]:
    prose = _FENCE.sub("", text)
    slugs: set[str] = set(_LABEL.findall(prose))
    for heading in _HEADING.findall(prose):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        again = 0
        while (found := slug if not again else f"{slug}-{again}") in slugs:
            again += 1
        slugs.add(found)
    return slugs


def test_every_page_is_found_and_every_link_leads_somewhere(tmp_path: pathlib.Path) -> None:
    gather(tmp_path / "docs")

    assert faults_in(tmp_path / "docs") == []


@pytest.mark.parametrize(
    ("pages", "fault"),
    [
        ({"there": "# There\n\n## A part\n\n[Gone](gone.md)\n"}, "there: gone.md leads nowhere"),
        ({"there": "# There\n\n## Another\n"}, "index: there.md#a-part: the page has no such part"),
        ({"there": "# There\n\n## A part\n\n[Up](#above)\n"}, "there: #above: the page has no such part"),
        ({"there": "# There\n\n## A part\n\nSee `docs/gone.md`.\n"}, "there: `docs/gone.md` is no page"),
        ({"there": "# There\n\n## A part\n\nSee decision 9.\n"}, "there: there is no decision 9"),
        ({"lonely": "# Lonely\n"}, "lonely: is in no toctree"),
        ({}, None),
    ],
)
def test_what_leads_nowhere_is_seen(tmp_path: pathlib.Path, pages: dict[str, str], fault: str | None) -> None:
    for name, text in {"index": SOUND, "there": "# There\n\n## A part\n", **pages}.items():
        (tmp_path / f"{name}.md").write_text(text)

    assert faults_in(tmp_path) == ([] if fault is None else [fault])
