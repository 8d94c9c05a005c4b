"""The dashboard in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.e2e.browsing import chromium

LOOK_MS = 20_000
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser; skips where this machine has none."""
    command = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=command, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextmanager
def looking(
    browser: Browser, url: str, view: str = "", *, expected: str = r"(?!)", **options: Any
) -> Iterator[Page]:
    """A page on that view. At the end of the block nothing may have gone wrong in it, and nobody else been asked.

    `expected`: what the console may say, such as that an answer was 401.
    """
    context = browser.new_context(**({"viewport": DESK} | options))
    page = context.new_page()
    page.set_default_timeout(LOOK_MS)
    wrong: list[str] = []
    page.on("console", lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: None if asked.url.startswith(f"{url}/") else wrong.append(asked.url))
    page.goto(f"{url}/{view}")
    try:
        yield page
    finally:
        context.close()
    assert [text for text in wrong if not re.search(expected, text)] == []


def go(page: Page, view: str) -> None:
    """Another view, as by a link."""
    page.evaluate("(view) => { location.hash = view }", view)


def until(page: Page, text: str) -> Locator:
    """Somewhere on the page that text comes to be seen."""
    found = page.get_by_text(text).first
    found.wait_for()
    return found
