"""`ci/docs`: the site is built without a warning, asks no other host, and what leads nowhere fails it."""

from __future__ import annotations

import pathlib
import re

import pytest

from ci.site.__main__ import build, gather
from ci.site.command_page import command_page, settings_page
from ci.site.http_page import http_page
from ci.site.python_pages import python_pages
from tests.e2e.dashboards import browsing

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"|url\(([^)]+)\)|@import"""
)
SOUND = "# Home\n\n[There](there.md#a-part), and `docs/there.md`.\n\n```{toctree}\nthere\n```\n"


def written(folder: pathlib.Path, **pages: str) -> pathlib.Path:
    folder.mkdir()
    for name, text in {"index": SOUND, "there": "# There\n\n## A part\n", **pages}.items():
        (folder / f"{name}.md").write_text(text)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """All of it, built once."""
    out = tmp_path_factory.mktemp("site")
    gather(out / "docs")
    done = build(out / "docs", out / "site")
    assert (done.returncode, done.stderr) == (0, "")
    return out / "site"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_site_is_built_and_needs_no_other_host(site: pathlib.Path) -> None:
    pages = list(site.rglob("*.html"))

    assert len(pages) > 100
    for file in (*pages, *site.rglob("*.css")):
        for found in FETCHED.finditer(file.read_text(encoding="utf-8")):
            where = next((one for one in found.groups() if one), "").strip("'\"")
            assert not re.match(r"(https?:)?//|/", where), (file, found.group())
    assert "idempotency_key" in (site / "reference" / "python-records.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_browser_reads_and_searches_it_from_the_disk(site: pathlib.Path) -> None:
    faults: list[str] = []
    fetched: list[str] = []
    with browsing() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        for name in ("index", "performance", "reference/http", "dev/architecture"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        page.goto((site / "search.html").as_uri() + "?q=tombstone")
        page.get_by_text(re.compile("found [0-9]+ pages")).wait_for()
        found = page.locator("ul.search a").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"
        )

    assert faults == []
    assert all(url.startswith(("file:", "data:")) for url in fetched)
    houses = [link.startswith("dev/") for link in found]
    assert True in houses
    assert houses == sorted(houses)  # users' pages first


@pytest.mark.timeout(120)
def test_pages_that_are_sound_make_a_site(tmp_path: pathlib.Path) -> None:
    done = build(written(tmp_path / "docs"), tmp_path / "site")

    assert (done.returncode, done.stderr) == (0, "")
    home = (tmp_path / "site" / "index.html").read_text()
    assert re.findall(r'<a class="reference internal" href="there\.html([^"]*)"><(?:span|code)', home) == [
        "#a-part",
        "",
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("pages", "told"),
    [
        ({"there": "# There\n\n## A part\n\n[Gone](gone.md)\n"}, "gone.md"),
        ({"there": "# There\n\n## Another part\n"}, "a-part"),
        ({"there": "# There\n\n## A part\n\nSee `docs/gone.md`.\n"}, "unknown document: '/gone'"),
        (
            {"there": "# There\n\n## A part\n\nSee decision 9999.\n"},
            "unknown document: '/dev/decisions/9999'",
        ),
        ({"lonely": "# Lonely\n"}, "isn't included in any toctree"),
    ],
    ids=["page", "anchor", "path in code", "decision", "page that nobody finds"],
)
def test_what_leads_nowhere_fails(tmp_path: pathlib.Path, pages: dict[str, str], told: str) -> None:
    done = build(written(tmp_path / "docs", **pages), tmp_path / "site")

    assert done.returncode != 0
    assert told in done.stderr


def test_the_reference_has_what_the_code_has() -> None:
    http, commands, settings, python = http_page(), command_page(), settings_page(), python_pages()

    assert "\n### POST /v0/topics/{topic}/diff\n" in http
    assert "[TopicConfig](#schema-topicconfig)" in http
    assert "(schema-topicconfig)=" in http
    assert "\n### topics queue claim\n" in commands
    assert "- `--lease TIME`: For how long, as in 30s. Default: as the queue says." in commands
    assert "\n## wal_shards\n" in settings
    assert "Variable `TOPICS_WAL_SHARDS`." in settings
    assert ".. autoclass:: topics.Why\n" in python["python-asking.rst"]
