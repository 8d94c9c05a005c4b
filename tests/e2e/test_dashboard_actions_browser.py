"""What an operator does in the dashboard to routers, schedules and consumers, in Chromium and by keyboard."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import topics
from tests.crash.serving import Served
from tests.e2e.dashboards import PHONE, browsing, go, looking, until
from topics.cli.demo.private_server import PrivateServer

pytestmark = [pytest.mark.slow, pytest.mark.rule("O4.9"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("actions")
    with PrivateServer(home / "data", home) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[topics.Client]:
    with topics.Client(url) as client:
        yield client


def told(page: Page, text: str) -> Locator:
    """A status of the view has that text."""
    found = page.locator("main").get_by_role("status").filter(has_text=text)
    expect(found).to_be_visible()
    return found


def removed(page: Page, what: str, question: str) -> None:
    """Asked, left unanswered for another view, asked again and done, by keyboard."""
    view = page.evaluate("location.hash")
    button = page.get_by_role("button", name=f"Remove the {what}…")
    dialog = page.get_by_role("dialog")
    button.press("Enter")
    expect(dialog).to_contain_text(question)
    go(page, "#/keys")
    expect(dialog).to_have_count(0)
    go(page, view)
    button.press("Enter")
    dialog.get_by_role("button", name="Remove the").press("Enter")
    expect(told(page, f"The {what} was removed.")).to_be_focused()
    expect(button).to_have_count(0)


def test_a_router_is_made_and_removed_and_one_that_is_there_stays(
    browser: Browser, url: str, client: topics.Client
) -> None:
    client.create("orders").put_many({"data": n} for n in range(3))
    with looking(browser, url, "#/routers") as page:
        page.get_by_role("link", name="New router").press("Enter")
        page.get_by_role("heading", name="New router").wait_for()
        page.get_by_label("Name").fill("orders>eu")
        page.get_by_label("From the topic").fill("orders")
        page.get_by_label("To the topic").fill("orders.eu")
        page.get_by_label("Only with the tag").fill("eu*")
        page.get_by_label("Guarantee").select_option("exactly_once")
        told(page, "_topics_router")
        page.keyboard.press("Enter")
        said = told(page, "Made: orders>eu")
        expect(said).to_contain_text("what is there already, up to seq 3, is not. orders.eu was not there")
        made = client.router("orders>eu")
        assert (made.source, made.dest, made.filter) == ("orders", "orders.eu", ["tag", "Glob", "eu*"])
        assert made.guarantee == "exactly_once"

        page.get_by_label("To the topic").fill("elsewhere")
        page.get_by_role("button", name="Create").press("Enter")
        told(page, "There is a router of this name already, from orders to orders.eu. It was not changed.")
        assert (client.router("orders>eu"), list(client.list("elsewhere"))) == (made, [])
        page.get_by_label("Name").fill("orders")  # no router has that name, though one begins so
        page.get_by_label("To the topic").fill("all")
        page.get_by_role("button", name="Create").press("Enter")
        told(page, "Made: orders.")

        go(page, "#/routers")
        removed(page, "router orders>eu", "What was copied from orders stays in orders.eu")
        assert [one.router for one in client.routers()] == ["orders"]


def test_what_a_router_is_refused_for_is_said_as_text(
    browser: Browser, url: str, client: topics.Client
) -> None:
    client.put_router("first", "a", "fed")
    with looking(browser, url, "#/routers/new", expected="40[09]", viewport=PHONE) as page:
        for name, source, said, wrong in (
            ("<img src=x onerror=alert(1)>", "b", "<img src=x", "Name"),
            ("second", "fed", "fed", "To the topic"),
            ("second", "b", "one source", None),
        ):
            page.get_by_label("Name").fill(name)
            page.get_by_label("From the topic").fill(source)
            page.get_by_label("To the topic").fill("fed")
            page.get_by_role("button", name="Create").click()
            told(page, said)
            if wrong is not None:
                expect(page.get_by_label(wrong)).to_have_attribute("aria-invalid", "true")
        assert page.locator("main img").count() == 0
        expect(page.get_by_label("From the topic")).to_have_value("b")
    assert client.routers("second") == []


def test_a_schedule_is_made_with_its_next_times_and_removed(
    browser: Browser, url: str, client: topics.Client
) -> None:
    client.create("mails", type="queue")
    with looking(browser, url, "#/schedules", expected="40[04]", timezone_id="Europe/Berlin") as page:
        page.get_by_role("link", name="Make the first").press("Enter")
        page.get_by_label("Name").fill("nightly")
        page.get_by_label("Into the topic").fill("none")
        page.get_by_label("When").select_option("cron")
        expect(page.get_by_label("Every, ms")).to_be_hidden()
        page.get_by_label("Minute, hour").fill("0 3 * * *")
        page.get_by_label("In the time of").fill("Nowhere/Land")
        page.get_by_label("If missed").select_option("none")
        told(page, "No time at which no server was there is made up for.")
        page.get_by_label("Data").fill("hello")
        create = page.get_by_role("button", name="Create")
        create.press("Enter")
        told(page, "The data is not JSON")
        page.get_by_label("Data").fill('{"large": 1152921504606846977}')
        create.press("Enter")
        told(page, "Nowhere/Land")
        expect(page.get_by_label("In the time of")).to_be_focused()
        page.get_by_label("In the time of").fill("Europe/Berlin")
        create.press("Enter")
        told(page, "'none'")
        page.get_by_label("Into the topic").fill("mails")
        create.press("Enter")
        told(page, "Made: nightly, by cron, into mails.")
        expect(page.get_by_role("listitem").filter(has_text="03:00:00.000")).to_have_count(5)
        made = client.schedule("nightly")
        assert (made.cron, made.timezone, made.catch_up) == ("0 3 * * *", "Europe/Berlin", "none")
        assert made.record["data"] == {"large": 2**60 + 1}

        page.get_by_label("Data").fill("1")
        create.press("Enter")
        told(page, "There is a schedule of this name already, into mails. It was not changed.")
        expect(page.get_by_role("listitem")).to_have_count(0)
        page.get_by_label("Name").fill("often")
        page.get_by_label("When").select_option("every")
        page.get_by_label("Every, ms").fill("5")
        create.press("Enter")
        told(page, "every 1 s, into mails. 5 ms is out of range, and was moved to 1000.")
        assert (client.schedule("nightly").record, client.schedule("often").every_ms) == (made.record, 1000)

        go(page, "#/schedules")
        removed(page, "schedule nightly", "What it has put into mails stays, and nothing more is put by it.")
        assert [one.schedule for one in client.schedules()] == ["often"]


def test_a_position_is_moved_after_it_is_told_what_that_does(
    browser: Browser, url: str, client: topics.Client
) -> None:
    read = client.create("read", cap_records=300)
    read.put_many({"data": n} for n in range(500))
    billing = read.consumer("billing")
    billing.seek(seq=270)
    with looking(browser, url, "#/topics/read/consumers") as page:
        dialog, button = (
            page.get_by_role("dialog"),
            page.get_by_role("button", name="Move the consumer billing…", exact=True),
        )
        button.press("Enter")
        move, seq = dialog.get_by_role("button", name="Move"), dialog.get_by_label("Move it to seq")
        expect(dialog).to_contain_text("billing has read up to 270; the head is 500.")
        for typed, why in (
            ("", "Type the seq up to which it is to have read: a whole number, from 0 to 500."),
            ("-1", "a whole number"), ("1.5", "a whole number"), ("two", "a whole number"),
            ("501", "The head is 500: nobody has read beyond it."), ("270", "It stands there."),
        ):  # fmt: skip
            seq.fill(typed)
            expect(move).to_be_disabled()
            seq.press("Enter")
            expect(dialog.get_by_role("status")).to_contain_text(why)
        for typed, does in (
            ("271", "Record 271 is skipped."),
            ("400", "Records 271 to 400, 130 at most, are skipped."),
            ("260", "Records 261 to 270, 10 at most, are read again."),
            ("0", "70 at most, are read again. The reader is told that what is below 201 is lost."),
        ):
            seq.fill(typed)
            expect(dialog.get_by_role("status")).to_contain_text(does)
        seq.fill("400")
        read.put_many({"data": n} for n in range(10))
        expect(dialog).to_contain_text("the head is 510.")
        expect(seq).to_have_value("400")  # what was typed stays while it is looked again
        seq.press("Enter")
        told(page, "billing was moved from 270 to 400.")
        expect(button).to_be_focused()
        assert billing.position().from_seq == 400

        button.press("Enter")
        dialog.get_by_role("button", name="To the head").press("Enter")
        expect(dialog.get_by_role("status")).to_contain_text("Records 401 to 510, 110 at most, are skipped.")
        go(page, "#/topics/read/live")  # whoever leaves has not said yes
        expect(dialog).to_have_count(0)
        go(page, "#/topics/read/consumers")
        button.press("Enter")
        dialog.get_by_role("button", name="To the head").press("Enter")
        move.press("Enter")
        told(page, "billing was moved from 400 to 510.")
        expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("5100")
        assert billing.position().lag == 0

        removed(page, "consumer billing", "Every record stays; the position is forgotten.")
        until(page, "Nobody keeps a position here.")
    assert (read.consumers(), read.state().count) == ([], 300)


def test_a_key_that_may_only_read_is_told_what_it_lacks(browser: Browser, tmp_path: pathlib.Path) -> None:
    (tmp_path / "key").write_text("the-key")
    with (
        Served(tmp_path / "data", TOPICS_API_KEYS="the-key,reader:read") as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "key") as client,
    ):
        client.create("quakes").put("here")
        client.topic("quakes").consumer("billing").seek()
        client.put_router("copy", "quakes", "copies")
        client.put_schedule("hourly", topic="quakes", every_ms=3_600_000, data="some")
        url = f"http://127.0.0.1:{served.port}"
        with looking(browser, url, "#/routers/new", expected="40[13]") as page:
            page.get_by_label("Name").fill("more")
            page.get_by_label("From the topic").fill("quakes")
            page.get_by_label("To the topic").fill("elsewhere")
            page.get_by_role("button", name="Create").click()
            page.get_by_role("dialog").get_by_label("Key").fill("reader")
            page.keyboard.press("Enter")
            told(page, "needs the scope admin")
            go(page, "#/schedules/new")
            page.get_by_label("Name").fill("more")
            page.get_by_label("Into the topic").fill("quakes")
            page.get_by_role("button", name="Create").click()
            told(page, "needs the scope admin")
            for view, what in (
                ("routers", "router copy"),
                ("schedules", "schedule hourly"),
                ("topics/quakes/consumers", "consumer billing"),
            ):
                go(page, f"#/{view}")
                page.get_by_role("button", name=f"Remove the {what}…").click()
                page.get_by_role("dialog").get_by_role("button", name=re.compile("^Remove")).click()
                expect(page.locator("#notice")).to_contain_text("needs the scope delete")
            page.get_by_role("button", name="Move the consumer billing…", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="To the head").click()
            page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
            expect(page.locator("#notice")).to_contain_text("needs the scope write")
        assert client.topic("quakes").consumer("billing").position().from_seq == 0
        assert (len(client.routers()), len(client.schedules())) == (1, 1)
