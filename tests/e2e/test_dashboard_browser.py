"""The dashboard in Chromium: each view, by mouse and by keyboard, with data that wants to be more than text."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

import topics
from tests.crash.serving import Served
from tests.e2e.browsing import Origin
from tests.e2e.dashboards import PHONE, browsing, go, looking, until
from topics.cli.demo.private_server import PrivateServer

CERTIFICATES = pathlib.Path(__file__).parents[1] / "server" / "tls"

pytestmark = [pytest.mark.slow, pytest.mark.rule("O4.6"), pytest.mark.timeout(180)]

VIEWS = (
    "#/", "#/topics/quakes/live", "#/topics/quakes/records", "#/topics/quakes/consumers", "#/topics/quakes/config",
    "#/topics/quakes/put", "#/topics/mails/put", "#/topics/quakes/delete", "#/topics/quakes/why/5",
    "#/topics/mails/why/1", "#/topics/mails/jobs", "#/new",
    "#/queues", "#/workers", "#/consumers", "#/schedules", "#/schedules/new", "#/routers", "#/routers/new", "#/keys",
    "#/server", "#/no-such-view",
)  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</td></tr></table><h1>owned</h1>", "${alert(1)}",
    "gnp.\u202eexe", "\u0000\u0007\u200b", "\U0001f30b\ud7ff\ufffd", "x" * 900_000,
)  # fmt: skip

LONGEST = (  # the longest time in which nothing that was typed was heard
    "window.longest = 0; new PerformanceObserver((list) => { for (const one of list.getEntries())"
    " longest = Math.max(longest, one.duration) }).observe({ type: 'longtask' })"
)
CUT = (  # the tables of which a part is beyond the edge
    "[...document.querySelectorAll('.scroll')].filter((it) => it.scrollWidth > it.clientWidth)"
    ".map((it) => `${it.ariaLabel}: ${it.scrollWidth} > ${it.clientWidth}`)"
)
SEEN_HIGH = (  # true once something in the colour of a chart's first line is drawn in its upper half
    "async (title) => { for (let frame = 0; frame < 300; frame++) { await new Promise(requestAnimationFrame);"
    " const canvas = document.querySelector(`figure[aria-label^='${title}'] canvas`), { width, height } = canvas;"
    " const probe = new OffscreenCanvas(1, 1).getContext('2d');"
    " probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--live');"
    " probe.fillRect(0, 0, 1, 1); const ink = probe.getImageData(0, 0, 1, 1).data;"
    " const { data } = canvas.getContext('2d').getImageData(0, 0, width, height / 2);"
    " for (let i = 0; i < data.length; i += 4) if ([0, 1, 2, 3].every((k) => Math.abs(data[i + k] - ink[k]) < 40))"
    " return true } return false }"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("dashboard")
    with PrivateServer(home / "data", home) as server:
        with topics.Client(server.url) as client:
            fill(client)
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[topics.Client]:
    with topics.Client(url) as client:
        yield client


def fill(client: topics.Client) -> None:
    quakes = client.create("quakes", cap_records=300)
    for hundred in range(5):
        quakes.put_many(
            {"data": {"n": hundred * 100 + n}, "tag": "eu" if n % 2 else "asia", "node": "s1"}
            for n in range(100)
        )
    quakes.delete(before_seq=260)
    quakes.consumer("billing").seek(seq=270)
    client.create("dead")
    client.create("a-first").put("it", meta={"why": "to be seen"})
    client.create("mails", type="queue", dead_letter="dead", max_deliveries=1, lease_ms=600_000)
    mails = client.queue("mails", node="worker-1")
    mails.put_many({"data": {"to": f"user-{n}"}} for n in range(20))
    mails.put("later", delay_ms=3_600_000)
    first, *_ = mails.get_many(3)
    first.nack(reason="no such <b>host</b>")
    client.put_schedule("nightly", topic="mails", cron="0 3 * * *", timezone="Europe/Berlin", data="all")
    client.put_schedule("hourly", topic="mails", every_ms=3_600_000, data="some")
    client.put_schedule("hourly-and-a-bit", topic="mails", every_ms=3_600_500, data="some")
    for n in range(60):
        client.create(f"orders.{n:02}")
    client.put_router("to-archive", "orders.00", "z-archive")
    client.put_router("z>back", "z-archive", "orders.01")
    client.topic("orders.00").put_many({"data": n, "tag": "eu"} for n in range(3))


@pytest.mark.rule("O4.2")
def test_the_overview_pages_filters_and_draws_what_became_of_the_seqs(browser: Browser, url: str) -> None:
    with looking(browser, url) as page:
        quakes = page.get_by_role("row").filter(has=page.get_by_role("link", name="dead", exact=True))
        quakes.wait_for()
        until(page, "fsync p50 / p99")
        page.get_by_role("button", name="More →").click()
        line = page.get_by_role("row").filter(has=page.get_by_role("link", name="quakes")).get_by_role("img")
        expect(line).to_have_attribute(
            "aria-label",
            "1 to 200 lost to the caps or the age; 201 to 259 deleted, expired or lost; 260 to 500: 241 live.",
        )
        assert [rect.get_attribute("class") for rect in line.locator("rect").all()] == [
            "lost",
            "gone",
            "live",
        ]
        page.get_by_role("button", name="← Before").click()
        page.keyboard.press("/")
        page.keyboard.type("orders.1")
        expect(page.get_by_role("region", name="Topics").locator("tbody tr")).to_have_count(10)
        page.get_by_role("searchbox").fill("nothing")
        until(page, "No topic begins so.")


def test_routers_and_schedules_are_found_by_how_they_begin(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/routers") as page:
        for view, rest, kept, nothing in (
            ("routers", "z>back", "to-archive", "No router begins so."),
            ("schedules", "hourly-", "nightly", "No schedule begins so."),
        ):
            go(page, f"#/{view}")
            rows = page.get_by_role("region", name=re.compile(f"^{view}$", re.IGNORECASE)).locator("tbody tr")
            rows.filter(has_text=rest).wait_for()
            page.keyboard.press("/")
            page.keyboard.type(kept[:3])
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text(kept)
            page.keyboard.type("?")
            until(page, nothing)
        go(page, "#/routers")
        expect(page.locator(".graph rect")).to_have_count(3)
        page.get_by_role("searchbox").fill("to-")
        expect(page.locator(".graph rect")).to_have_count(2)


@pytest.mark.rule("O4.2")
def test_the_rate_of_a_topic_that_is_written_is_seen(
    browser: Browser, url: str, client: topics.Client
) -> None:
    with looking(browser, url) as page:
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="busy"))
        busy = client.create("busy")
        busy.put(0)
        row.wait_for()
        rate = ""
        for _ in range(50):
            busy.put_many({"data": n} for n in range(200))
            page.wait_for_timeout(100)
            rate = row.locator("td").nth(3).text_content() or ""
            if rate not in ("", "0"):
                break
        assert rate not in ("", "0"), row.text_content()
    client.delete("busy")


@pytest.mark.rule("O4.1")
def test_a_page_that_is_not_seen_asks_for_nothing_and_asks_at_once_when_it_is(
    browser: Browser, url: str
) -> None:
    with looking(browser, url, "#/no-such-view") as page:
        page.clock.install()
        go(page, "#/")
        until(page, "orders.00")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate(
            "Object.defineProperty(document, 'hidden', { get: () => isHidden, configurable: true });"
            " window.isHidden = true"
        )
        page.clock.run_for(20_000)  # what was begun ends
        page.evaluate("fetch('/v0/health').then((answer) => answer.text())")
        asked.clear()
        page.clock.pause_at("2100-01-01")
        page.evaluate("fetch('/v0/health').then((answer) => answer.text())")
        assert [one for one in asked if "health" not in one] == []
        with (
            page.expect_response(lambda answer: "/v0/topics?" in answer.url),
            page.expect_response("**/v0/metrics"),
        ):
            page.evaluate("isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.rule("O4.2")
def test_some_bytes_a_second_are_a_line_that_is_seen(browser: Browser, tmp_path: pathlib.Path) -> None:
    with (
        PrivateServer(tmp_path / "data", tmp_path) as server,
        topics.Client(server.url) as client,
        looking(browser, server.url) as page,
    ):
        small = client.create("small")
        for n in range(4):
            with page.expect_response("**/v0/metrics"):
                small.put(n)
        assert page.evaluate(SEEN_HIGH, "Written")


def test_a_value_with_none_beside_it_is_a_dot_of_its_chart(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/no-such-view") as page:
        page.evaluate(
            "async () => { const { chart, History } = await import('/dashboard/chart.mjs');"
            " const seen = new History(1); for (const value of [null, 4, null]) seen.push(value);"
            " const { signal } = new AbortController(), as = { format: String, least: 4 };"
            " const plot = chart('Rare', seen, [['it', '--live']], as, signal);"
            " document.body.append(plot.figure); plot.begin() }"
        )
        assert page.evaluate(SEEN_HIGH, "Rare")


@pytest.mark.rule("O4.3")
def test_the_live_view_shows_what_comes_and_what_is_lost_and_pauses_without_losing(
    browser: Browser, url: str, client: topics.Client
) -> None:
    live = client.create("live", cap_records=50)
    live.put({"number": "first"})
    with looking(browser, url, "#/topics/live/live", expected="404") as page:
        until(page, "Live, at 1.")
        live.put({"number": "second"})
        until(page, '{"number":"second"}')
        page.get_by_role("button", name="Pause").click()
        until(page, "Paused at 2.")
        live.put_many({"data": n} for n in range(60))
        page.get_by_role("button", name="Go on").click()
        until(page, "3 to 12 are lost")
        until(page, "Live, at 62.")
        seqs = page.locator("tbody button").all_text_contents()
        assert seqs == [str(seq) for seq in (*range(62, 12, -1), 2, 1)]
        expect(page.locator(".whole rect").first).to_have_class("lost")
        asked: list[Route] = []
        page.route("**/v0/watch", lambda route: asked.append(route), times=1)  # noqa: PLW0108 -- a built-in method is refused
        page.get_by_role("button", name="Only what comes now").click()
        until(page, "Asking for what comes from now on…")
        live.put("before the server was asked")
        asked[0].continue_()
        until(page, "Live, at 63.")
        live.put("third")
        until(page, '"third"')
        assert page.locator("tbody button").count() == 1
        client.delete("live")
        until(page, "The topic was deleted.")
        until(page, "There is no such topic.")


def test_hostile_data_is_text(browser: Browser, url: str, client: topics.Client) -> None:
    hostile = client.create("hostile")
    hostile.put_many(
        {"data": {"it": text}, "tag": text[:80] or "-", "meta": {"m": text[:80]}} for text in HOSTILE
    )
    hostile.put({"n": 2**60, "x": {"$bytes": "AP8="}})
    for view in ("live", "records"):
        with looking(browser, url, f"#/topics/hostile/{view}") as page:
            until(page, '{"it":"<script>alert(1)</script>"}')
            until(page, r"gnp.\u202eexe")
            assert page.locator("main img, main script, main h1").count() == 1
            expect(page.locator("tbody button.plain")).to_have_count(len(HOSTILE) + 1)
            for button in page.locator("tbody button.plain").all():
                button.click()
            expect(page.locator(".record dd").get_by_text(HOSTILE[1], exact=True).last).to_be_visible()
            until(page, "1152921504606846976")
            page.get_by_role("button", name="Show all (879 KiB)").click()
            assert len(page.get_by_label("Record 8").text_content() or "") > 900_000
            assert page.locator("main img, main script, main h1").count() == 1


@pytest.mark.rule("O4.3")
def test_a_record_opens_to_all_that_it_has(browser: Browser, url: str, client: topics.Client) -> None:
    full = client.create("full")
    full.put(
        {"order": {"id": 7}, "text": "x" * 300 + "end"},
        tag="eu",
        node="shop-1",
        key="order-7",
        meta={"trace": "t" * 300, "by": "a test"},
    )
    with looking(browser, url, "#/topics/full/records") as page:
        row = page.get_by_role("region", name="Records").locator("tbody tr").first
        row.locator("code").click()
        record = page.locator("tr.open")
        for name, value in (
            ("Tag", "eu"), ("Written by", "shop-1"), ("Key", "order-7"), ("trace", "t" * 300), ("by", "a test"),
        ):  # fmt: skip
            expect(record.locator("dl > div").filter(has=page.get_by_text(name, exact=True))).to_contain_text(
                value
            )
        expect(record.locator("dl > div").filter(has_text="Written at20")).to_contain_text("ago")
        assert record.get_by_label("Record 1").text_content() == (
            '{\n  "order": {\n    "id": 7\n  },\n  "text": "' + "x" * 300 + 'end"\n}'
        )
        row.get_by_role("button", name="1").press("Enter")
        expect(record).to_have_count(0)
        row.get_by_role("button", name="1").press("Enter")
        record.get_by_role("link", name="1 – what became of it").click()
        until(page, "record 1")
        assert page.url.endswith("#/topics/full/why/1")


@pytest.mark.rule("O4.3")
def test_the_reader_jumps_by_seq_time_and_tag_and_accounts_for_all(
    browser: Browser, url: str, client: topics.Client
) -> None:
    with looking(browser, url, "#/topics/quakes/records") as page:
        until(page, "1 to 259 are lost: cap")
        seqs = page.locator("tbody button")
        page.get_by_label("From seq").fill("300")
        page.get_by_label("Tag").fill("e*")
        page.get_by_label("Most").fill("10")
        page.keyboard.press("Enter")
        expect(seqs.first).to_have_text("300")
        until(page, "10 shown, 9 not matching")
        page.get_by_role("button", name="On →").click()
        expect(seqs.first).to_have_text("320")
        page.get_by_label("Tag").fill("")
        page.get_by_role("button", name="Last ⇥").click()
        expect(seqs.last).to_have_text("500")
        until(page, "That is all so far.")
        page.get_by_label("or time").fill("2100-01-01T00:00")
        page.get_by_role("button", name="Read").click()
        expect(seqs).to_have_count(0)
        page.get_by_label("or time").fill("2000-01-01T00:00")
        page.get_by_role("button", name="Read").click()
        expect(seqs.first).to_have_text("260")


@pytest.mark.rule("O4.8")
def test_it_tells_why_a_record_is_gone_a_job_was_given_up_and_what_a_reader_has_not_got(
    browser: Browser, url: str
) -> None:
    with looking(browser, url, "#/topics/quakes/why", expected="400") as page:
        events = page.get_by_role("region", name="What happened to it").locator("tbody tr")
        page.get_by_label("Seq", exact=True).fill("5")
        page.keyboard.press("Enter")
        until(page, "record 5 is lost: evicted by the topic's cap")
        until(page, "a reader who comes from 4 is told: seqs 5 to 259 are lost [cap]")
        expect(events.filter(has_text="evicted")).to_contain_text(
            "evicted by the topic's cap, to make room for seqs 301 to 400"
        )
        assert page.url.endswith("#/topics/quakes/why/5")
        page.get_by_label("Seq", exact=True).fill("205")
        page.get_by_role("button", name="What became of it?").click()
        until(page, "record 205 was deleted: before_seq 260")
        expect(events.filter(has_text="deleted")).to_contain_text("deleted: before_seq 260")
        page.get_by_label("Seq", exact=True).fill("501")
        page.keyboard.press("Enter")
        until(page, "record 501 was never put: no such seq, the head is 500")

        parts = page.get_by_role("region", name="Seqs by what a reader is told").locator("tbody tr")
        page.get_by_label("A reader at").fill("480")
        page.get_by_label("Tag", exact=True).fill("e*")
        page.get_by_role("button", name="What has he not got?").click()
        until(page, "Above 480 up to 500.")
        expect(parts).to_have_count(20)
        expect(parts.first).to_contain_text("481filterednot what the reader asked for")
        page.get_by_label("A reader at").fill("0")
        page.get_by_label("Tag", exact=True).fill("")
        page.keyboard.press("Enter")
        until(page, "a read from 0 begins with a tombstone up to 259 [cap]")
        expect(parts.first).to_contain_text("1 to 200lostevicted by the topic's cap")

        go(page, "#/topics/mails/why/1")
        until(page, "job 1 was moved to dead as 1: no such <b>host</b>")
        expect(events.filter(has_text="leased by worker-1 until 20")).to_have_count(1)
        expect(events.filter(has_text="on its way to dead")).to_contain_text("no such <b>host</b>")
        assert page.locator("main b").count() == 0
        expect(events.filter(has_text="synced: the log says that the disk had it")).to_have_count(1)
        assert "undefined" not in page.locator("main").inner_text()
        go(page, "#/topics/mails/why/-3")
        until(page, "400 invalid_request")


@pytest.mark.rule("O4.3")
def test_the_config_is_changed_field_by_field_and_a_refusal_names_its_field(
    browser: Browser, url: str, client: topics.Client
) -> None:
    changed = client.create("changed", type="queue")
    with looking(browser, url, "#/topics/changed/config", expected="400") as page:
        page.get_by_label("cap_records").fill("77")
        page.get_by_label("rate_limit").fill('{"count": 5, "per_ms": 1000}')
        page.get_by_label("dedupe_node").uncheck()
        page.get_by_role("button", name="Change").click()
        until(
            page, 'Changed: cap_records is 77, dedupe_node is false, rate_limit is {"count":5,"per_ms":1000}.'
        )
        page.get_by_label("discard").fill("sideways")
        page.get_by_role("button", name="Change").click()
        expect(page.get_by_label("discard")).to_have_attribute("aria-invalid", "true")
        page.get_by_label("retry_backoff").fill("{")
        page.get_by_role("button", name="Change").click()
        until(page, "retry_backoff: is not JSON")
    config = changed.state().config
    assert (config.cap_records, config.dedupe_node, config.discard.value) == (77, False, "old")


@pytest.mark.rule("O4.9")
def test_a_topic_is_made_put_to_and_deleted_by_keyboard(
    browser: Browser, url: str, client: topics.Client
) -> None:
    with looking(browser, url, expected="404") as page:
        page.get_by_role("link", name="New topic").press("Enter")
        page.get_by_role("heading", name="New topic").wait_for()
        expect(page.get_by_label("Hand a job out at most")).to_be_hidden()
        page.get_by_label("Name").fill("by-hand")
        page.get_by_label("Type").select_option("queue")
        until(page, "Jobs, each of which one worker takes")
        page.get_by_label("Durability").select_option("fsync")
        until(page, "when the disk has it: nothing takes it")
        page.get_by_label("Keep at most, records").fill("50")
        page.get_by_label("Hand a job out at most").fill("3")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="by-hand").wait_for()
        config = client.queue("by-hand").state().config
        assert (config.type.value, config.durability.value) == ("queue", "fsync")
        assert (config.cap_records, config.max_deliveries, config.lease_ms) == (50, 3, 30_000)

        page.get_by_role("link", name="Put", exact=True).press("Enter")
        page.get_by_label("Data, as JSON").fill("hello")
        page.get_by_role("button", name="Put the job").press("Enter")
        until(page, "The data is not JSON")
        page.get_by_label("Data, as JSON").fill('{"exact": 3.10, "large": 1152921504606846977}')
        page.get_by_label("Tag").fill("eu")
        page.get_by_label("Priority").fill("7")
        page.keyboard.press("Enter")
        until(page, "Put as job 1.")
        with topics.Client(url) as other:
            (job,) = other.queue("by-hand").get_many(1)
            assert (job.data, job.priority, job.tag) == ({"exact": 3.1, "large": 2**60 + 1}, 7, "eu")
            job.ack()

        page.get_by_role("link", name="Delete", exact=True).press("Enter")
        page.get_by_role("button", name="Delete the topic…").press("Enter")
        dialog = page.get_by_role("dialog")
        act = dialog.get_by_role("button", name="Delete the topic")
        expect(act).to_be_disabled()
        act.press("Enter")
        expect(dialog.get_by_text("Type by-hand first.")).to_be_visible()
        assert client.queue("by-hand").state().count == 0
        dialog.get_by_label("Type by-hand to go on").fill("by-hand")
        go(page, "#/topics/by-hand/live")  # whoever leaves has not said yes
        expect(dialog).to_have_count(0)
        go(page, "#/topics/by-hand/delete")
        page.get_by_role("button", name="Delete the topic…").press("Enter")
        dialog.get_by_label("Type by-hand to go on").fill("by-hand")
        act.press("Enter")
        until(page, "The topic was deleted.")
        until(page, "There is no such topic.")


@pytest.mark.rule("O4.9")
def test_what_making_a_topic_is_refused_for_is_said_in_the_form(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/new", expected="40[09]") as page:
        for name, said in (
            ("quakes", "'quakes' is there with another config (cap_records: 300 there, 7 asked)"),
            ("no spaces", "topic"),
        ):
            page.get_by_label("Name").fill(name)
            page.get_by_label("Keep at most, records").fill("7")
            page.get_by_role("button", name="Create").click()
            expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
        expect(page.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
        page.get_by_label("Name").fill("quakes")
        page.get_by_label("Keep at most, records").fill("300")
        page.get_by_role("button", name="Create").click()
        until(page, "There is such a topic already")


@pytest.mark.rule("O4.9")
def test_a_key_that_may_only_read_is_told_which_scope_is_missing(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "key").write_text("the-key")
    with (
        Served(tmp_path / "data", TOPICS_API_KEYS="the-key,reader:read") as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "key") as client,
    ):
        client.create("quakes").put("here")
        url = f"http://127.0.0.1:{served.port}"
        with looking(browser, url, "#/topics/quakes/put", expected="40[13]") as page:
            page.get_by_role("dialog").get_by_label("Key").fill("reader")
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Put the record").click()
            expect(page.locator("main").get_by_role("status").filter(has_text="write")).to_be_visible()
            go(page, "#/new")
            page.get_by_label("Name").fill("more")
            page.get_by_role("button", name="Create").click()
            expect(page.locator("main").get_by_role("status").filter(has_text="admin")).to_be_visible()
            go(page, "#/topics/quakes/delete")
            page.get_by_role("button", name="Delete the topic…").click()
            page.get_by_label("Type quakes to go on").fill("quakes")
            page.get_by_role("dialog").get_by_role("button", name="Delete the topic").click()
            until(page, "403 forbidden")
        assert client.topic("quakes").state().count == 1
        assert [one.topic for one in client.list()] == ["quakes"]


@pytest.mark.rule("O4.9")
def test_a_key_that_may_not_look_loses_nothing_of_what_it_fills_in(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    """The page does not know then whether it is a queue, nor how many records there are."""
    (tmp_path / "key").write_text("the-key")
    with (
        Served(tmp_path / "data", TOPICS_API_KEYS="the-key,writer:write+delete") as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "key") as client,
    ):
        jobs = client.create("mails", type="queue")
        with looking(
            browser, f"http://127.0.0.1:{served.port}", "#/topics/mails/put", expected="40[13]"
        ) as page:
            page.get_by_role("dialog").get_by_label("Key").fill("writer")
            page.keyboard.press("Enter")
            page.get_by_label("Ready after, ms").fill("3600000")
            page.get_by_label("Priority").fill("9")
            page.get_by_role("button", name="Put", exact=True).click()
            until(page, "Put as record 1.")
            go(page, "#/topics/mails/delete")
            page.get_by_role("button", name="Delete the topic…").click()
            expect(page.get_by_role("dialog")).to_contain_text("with everything in it")
        assert (jobs.state().count, client.queue("mails").peek("delayed")[0].priority) == (1, 9)


@pytest.mark.rule("O4.9")
def test_a_number_of_a_new_topic_that_was_moved_is_told(
    browser: Browser, url: str, client: topics.Client
) -> None:
    with looking(browser, url, "#/new") as page:
        page.get_by_label("Name").fill("moved")
        page.get_by_label("Type").select_option("queue")
        page.get_by_label("Keep at most, records").fill("9007199254740993")
        page.get_by_label("A worker has a job for, ms").fill("1")
        page.get_by_role("button", name="Create").click()
        until(page, "A worker has a job for, ms: 1 is out of range, and was moved to 100.")
        page.locator("main").get_by_role("link", name="moved").click()
        page.get_by_role("heading", name="moved").wait_for()
    config = client.queue("moved").state().config
    assert (config.lease_ms, config.cap_records) == (100, 9007199254740993)


@pytest.mark.rule("O4.3")
def test_a_delete_shows_what_would_go_and_asks(browser: Browser, url: str, client: topics.Client) -> None:
    doomed = client.create("doomed")
    doomed.put_many({"data": n, "tag": "eu" if n % 2 else "asia"} for n in range(2000))
    with looking(browser, url, "#/topics/doomed/delete") as page:
        expect(page.get_by_role("table")).to_have_count(0)
        page.get_by_role("button", name="Preview").click()
        until(page, "Say which")
        page.get_by_label("Below seq").fill("1001")
        page.get_by_label("Tag").fill("eu")
        page.get_by_role("button", name="Preview").click()
        until(page, "500 records would go; the first 20 of them:")
        expect(page.locator("tbody button")).to_have_count(20)
        page.get_by_role("button", name="Delete 500 records").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert doomed.state().count == 2000
        page.get_by_role("button", name="Delete 500 records").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        until(page, "500 deleted, 1,500 left.")
    assert doomed.state().count == 1500


def test_a_preview_that_comes_late_deletes_nothing_else(
    browser: Browser, url: str, client: topics.Client
) -> None:
    late = client.create("late")
    late.put_many({"data": n, "tag": "eu" if n % 2 else "asia"} for n in range(10))
    with looking(browser, url, "#/topics/late/delete") as page:
        held: list[Route] = []
        page.route("**/v0/topics/late/diff", lambda route: held.append(route))  # noqa: PLW0108 -- it asks for a Python function
        page.get_by_label("Tag").fill("eu")
        with page.expect_request("**/v0/topics/late/diff"):
            page.get_by_role("button", name="Preview").click()
        page.get_by_label("Tag").fill("asia")
        with page.expect_response("**/v0/topics/late/diff"):
            held.pop().continue_()
        page.wait_for_timeout(300)
        expect(page.get_by_role("button", name=re.compile("^Delete .*record"))).to_have_count(0)


@pytest.mark.rule("O4.4")
def test_a_queue_shows_who_holds_what_and_its_dead_letters_go_back(
    browser: Browser, url: str, client: topics.Client
) -> None:
    mails = client.queue("mails")
    with looking(browser, url, "#/topics/mails/jobs") as page:
        until(page, "17 ready, 2 in flight, 1 delayed.")
        until(page, "1 done, given up, deleted, expired or lost; 2 to 21: 20 live.")
        held = page.get_by_role("region", name="In flight").locator("tbody tr")
        expect(held).to_have_count(2)
        expect(page.get_by_role("figure", name="Jobs").get_by_role("row").last).to_have_text(
            "given up since0"
        )
        expect(held.first).to_contain_text("worker-1")
        expect(page.get_by_role("region", name="Dead letters, the latest")).to_contain_text(
            "no such <b>host</b>"
        )
        page.get_by_role("button", name="Pause").click()
        until(page, "The queue is paused.")
        assert mails.state().queue.paused
        page.get_by_role("button", name="Resume").click()
        until(page, "It goes on.")
        page.get_by_role("button", name="Put 1 back").click()
        until(page, "18 ready")
        page.get_by_role("button", name="Purge").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        until(page, "19 jobs deleted.")
        until(page, "0 ready, 2 in flight, 0 delayed.")
        go(page, "#/queues")
        expect(page.get_by_role("row").filter(has_text="mails")).to_contain_text("2")


@pytest.mark.rule("O4.4")
def test_a_button_that_would_do_nothing_says_why_and_keeps_the_focus(
    browser: Browser, url: str, client: topics.Client
) -> None:
    client.create("no-letters")
    client.create("idle", type="queue", dead_letter="no-letters", max_deliveries=1)
    idle = client.queue("idle")
    with looking(browser, url, "#/topics/idle/jobs") as page:
        for name, why in (
            ("Put all back", "There is no dead letter in no-letters."),
            ("Purge", "No job is ready or delayed"),
        ):
            button = page.get_by_role("button", name=name)
            expect(button).to_be_disabled()
            button.focus()
            page.keyboard.press("Enter")
            expect(page.get_by_role("status").filter(has_text=why)).to_be_visible()
            expect(page.get_by_role("dialog")).to_have_count(0)
        idle.put("will fail")
        expect(page.get_by_role("button", name="Purge")).to_be_enabled()
        idle.get_many(1)[0].nack()
        expect(page.get_by_role("button", name="Put all back")).to_be_enabled()
        expect(page.get_by_role("button", name="Purge")).to_be_disabled()
    with looking(browser, url, "#/topics/quakes/records") as page:
        on = page.get_by_role("button", name="On →")
        on.focus()
        for above in (309, 359, 409, 459):
            page.keyboard.press("Enter")
            until(page, f"Above {above} up to")
            expect(on).to_be_focused()
        expect(on).to_be_disabled()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="That is all so far.").last).to_be_visible()
        expect(page.get_by_role("button", name="← Before")).to_be_enabled()


def test_of_a_topic_that_is_not_there_nothing_is_asked_again(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/", expected="404") as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.install()
        go(page, "#/topics/nope/jobs")
        until(page, "There is no such topic.")
        expect(page.get_by_role("button", name=re.compile("Pause|Put all back|Purge"))).to_have_count(0)
        expect(page.get_by_role("navigation", name="Parts of the topic")).to_have_count(0)
        asked.clear()
        page.clock.run_for(20_000)
        page.evaluate("fetch('/v0/health').then((answer) => answer.text())")

        assert [one for one in asked if "/topics/nope" in one] == []
        go(page, "#/topics/mails/jobs")
        expect(page.get_by_role("button", name="Purge")).to_be_visible()


def test_the_other_views_have_what_they_are_of(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/consumers", expected="404") as page:
        expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("230")
        go(page, "#/topics/quakes/consumers")
        expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("270")
        go(page, "#/schedules")
        expect(page.get_by_role("row").filter(has_text="nightly")).to_contain_text("0 3 * * * Europe/Berlin")
        expect(page.get_by_role("row", name="hourly… mails")).to_contain_text("every 1 h")
        expect(page.get_by_role("row", name="hourly-and-a-bit")).to_contain_text("every 3,600,500 ms")
        go(page, "#/routers")
        expect(page.get_by_role("row").filter(has_text="z>back")).to_contain_text("z-archive")
        expect(page.get_by_role("row").filter(has_text="to-archive")).to_contain_text("3")
        assert page.locator(".graph rect").count() == 3
        assert page.locator(".graph text").all_text_contents() == ["orders.00", "z-archive", "orders.01"]
        go(page, "#/no-such-view")
        page.get_by_role("heading", name="There is no such view.").wait_for()
        go(page, "#/topics/none/live")
        until(page, "There is no such topic.")


@pytest.mark.rule("O4.2")
def test_the_server_is_told_in_words_that_are_no_names_of_metrics(browser: Browser, url: str) -> None:
    with looking(browser, url, "#/server") as page:
        page.get_by_role("heading", name="Server").wait_for()
        until(page, "Nothing is known to be damaged.")
        until(page, "Topics still to be told")
        expect(page.get_by_role("region", name="Shards of the log")).to_contain_text("written")
        size = fact(page, "Size of the log")
        expect(size).to_contain_text("MiB")  # the first file and the next
        told = page.locator("main").inner_text()
        assert re.findall(r"\w+_\w+", told) == []
        assert page.title() == "Server · topics"
        go(page, "#/")
        expect(fact(page, "Size of the log")).to_have_text(size_of(told))
        go(page, "#/node")  # as it was once called
        page.get_by_role("heading", name="Server").wait_for()
        expect(page.locator("#nav [aria-current]")).to_have_text("Server")


def fact(page: Page, name: str) -> Locator:
    return page.locator("dl > div").filter(has=page.locator("dt", has_text=name)).locator("dd")


def size_of(told: str) -> str:
    found = re.search(r"Size of the log\n+(.*)", told)
    assert found is not None
    return found[1]


@pytest.mark.rule("O4.4")
def test_workers_are_shown_with_what_they_hold(browser: Browser, tmp_path: pathlib.Path) -> None:
    hostile = "<b>worker</b>"
    with (
        PrivateServer(tmp_path / "data", tmp_path) as server,
        topics.Client(server.url) as client,
        looking(browser, server.url, "#/workers") as page,
    ):
        until(page, "Nobody holds a job.")
        for name in ("mails", "bills"):
            client.create(name, type="queue", lease_ms=600_000)
            client.queue(name).put_many({"data": n} for n in range(400))
        again, *_ = client.queue("mails", node=hostile).get_many(7)
        again.nack()
        client.queue("mails", node=hostile).get_many(1)
        client.queue("bills", node=hostile).get_many(1)
        client.queue("bills", node="w-2").get_many(300)
        rows = page.get_by_role("region", name="Workers").locator("tbody tr")
        expect(rows).to_have_count(3)
        until(page, "Jobs are in flight: 308. Looked at are 257, the first 250 of each queue.")
        expect(rows.filter(has_text="w-2")).to_contain_text("bills249")
        mails = rows.filter(has_text=hostile).filter(has_text="mails")
        expect(mails).to_contain_text(re.compile("mails71in 9 min"))
        assert page.locator("main b").count() == 0
        mails.get_by_role("link", name="2", exact=True).click()
        until(page, f"leased by {hostile} until")


@pytest.mark.rule("O4.5")
def test_the_graph_of_routers_fits_a_phone(browser: Browser, tmp_path: pathlib.Path) -> None:
    ways = [("a", "b"), ("b", "c"), ("c", "d"), ("b", "e"), ("d", "a"), ("x", "y")]  # and a again
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        for source, dest in ways:
            client.create(source)
            client.create(dest)
            client.put_router(f"{source}-{dest}", source, dest, allow_cycle=True)
        with looking(browser, server.url, "#/routers", viewport=PHONE) as page:
            graph = page.get_by_role("region", name="Graph of routers")
            expect(graph.locator("rect")).to_have_count(7)
            assert graph.evaluate("(it) => it.scrollWidth <= it.clientWidth")
            assert graph.locator("path.tip").count() == len(ways)
            page.screenshot(path=tmp_path / "phone.png")
            page.set_viewport_size({"width": 1280, "height": 900})
            expect(graph.locator("svg")).not_to_have_attribute("width", re.compile("^[1-3]..$"))


@pytest.mark.rule("H2.19")
def test_a_link_of_another_site_leads_to_the_dashboard_and_a_frame_does_not(
    browser: Browser, url: str
) -> None:
    link = f'<a href="{url}/#/topics/quakes/records">quakes</a><iframe src="{url}/"></iframe>'
    with Origin(0, {"/wiki.html": link}) as other, browser.new_context() as context:
        page = context.new_page()
        with page.expect_response(f"{url}/") as framed:
            page.goto(other.url.replace("127.0.0.1", "localhost") + "/wiki.html")  # which is another site
        assert framed.value.status == 403
        page.get_by_role("link", name="quakes").click()
        page.get_by_role("heading", name="quakes").wait_for()
        assert page.url == f"{url}/#/topics/quakes/records"


@pytest.mark.rule("H11.14")
def test_a_key_is_asked_for_kept_in_the_tab_and_sent_as_a_header(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    keys = "the-key,reader:read:quakes"
    (tmp_path / "key").write_text("the-key")
    with (
        Served(tmp_path / "data", TOPICS_API_KEYS=keys) as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "key") as client,
    ):
        client.create("quakes").put("here")
        client.create("secret")
        url = f"http://127.0.0.1:{served.port}"
        with looking(browser, url, "#/topics/quakes/live", expected="40[13]") as page:
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            dialog = page.get_by_role("dialog")
            until(page, "this server asks for a key")
            page.keyboard.type("wrong")
            page.keyboard.press("Enter")
            until(page, "this is none of the server's keys")
            dialog.get_by_label("Key").fill("reader")
            page.keyboard.press("Enter")
            until(page, '"here"')
            assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [
                1,
                0,
                "",
            ]
            go(page, "#/topics/quakes/config")
            page.get_by_label("cap_records").fill("5")
            page.get_by_role("button", name="Change").click()
            until(page, "admin")
            go(page, "#/topics/secret/live")
            until(page, "403 forbidden")
            page.get_by_role("button", name="Key…").click()
            dialog.get_by_role("button", name="Forget it").click()
            until(page, "this server asks for a key")
            dialog.get_by_role("button", name="Cancel").click()
            until(page, "401 unauthorized")
            page.wait_for_timeout(2500)  # it is asked again, and nobody is asked for a key again
            expect(dialog).to_have_count(0)
            assert not any("reader" in one or "token" in one for one in asked)


@pytest.mark.rule("O4.5")
def test_keys_are_shown_to_whom_may_see_them_and_no_secret_is(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    hostile = "<b>shop</b>"
    (tmp_path / "keys").write_text(
        f"the-admin # me\nthe-shop:rw:orders.|mail. # {hostile}\nlimited:a+r:orders.\n"
    )
    (tmp_path / "shop").write_text("the-shop")
    with (
        Served(tmp_path / "data", TOPICS_API_KEYS_FILE=str(tmp_path / "keys")) as served,
        topics.Client(f"http://127.0.0.1:{served.port}", api_key_file=tmp_path / "shop") as client,
    ):
        url = f"http://127.0.0.1:{served.port}"
        with looking(browser, url, "#/keys", expected="40[13]") as page:
            page.get_by_role("dialog").get_by_label("Key").fill("limited")
            page.keyboard.press("Enter")
            until(page, "is about the whole server, and this key has prefixes")
            expect(page.locator("table")).to_have_count(0)
            page.get_by_role("button", name="Key…").click()
            page.get_by_role("dialog").get_by_label("Key").fill("the-admin")
            page.keyboard.press("Enter")
            until(page, "yours")
            row = page.get_by_role("row").filter(has_text=hostile)
            expect(row).to_contain_text("read, writeorders.* mail.*not yet")
            client.topic("orders.eu").put("a use")
            expect(row).to_contain_text("ago")
            assert page.locator("tbody tr").count() == 3
            text = page.content()
            assert [secret for secret in ("the-admin", "the-shop", "limited") if secret in text] == []
    with PrivateServer(tmp_path / "open", tmp_path) as server, looking(browser, server.url, "#/keys") as page:
        until(page, "No key is asked for")
        expect(page.locator("table")).to_have_count(0)


@pytest.mark.rule("O4.1")
def test_everything_is_reached_by_keyboard_and_focus_is_seen(browser: Browser, url: str) -> None:
    with looking(browser, url) as page:
        until(page, "orders.00")

        def tab_to(name: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                outline, text = page.evaluate(
                    "[getComputedStyle(document.activeElement).outlineStyle,"
                    " document.activeElement.textContent || document.activeElement.type]"
                )
                assert outline != "none", text
                if text.startswith(name):
                    return
            raise AssertionError(name)

        tab_to("Skip to the content")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        tab_to("a-first")
        page.keyboard.press("Enter")
        until(page, "Live, at 1.")
        assert page.evaluate("document.activeElement.tagName") == "H1"
        tab_to("Pause")
        page.keyboard.press("Enter")
        until(page, "Paused at 1.")
        tab_to("1")
        page.keyboard.press("Enter")
        until(page, "to be seen")


@pytest.mark.rule("O4.1")
def test_what_has_the_focus_keeps_it_while_lists_are_drawn_anew(browser: Browser, url: str) -> None:
    with looking(browser, url) as page:
        until(page, "orders.00").focus()
        for _ in range(2):
            with page.expect_response(lambda answer: "/v0/topics?" in answer.url):
                pass
        page.wait_for_timeout(300)
        assert page.evaluate("document.activeElement.textContent") == "orders.00"


@pytest.mark.rule("O4.1")
@pytest.mark.parametrize(
    ("view", "what", "there"),
    [
        ("#/queues", "queue", "mails"),
        ("#/consumers", "consumer", "billing"),
        ("#/workers", "worker", "worker-1"),
    ],
)
def test_queues_consumers_and_workers_are_found_by_the_beginning_of_their_name(
    browser: Browser, url: str, view: str, what: str, there: str
) -> None:
    with looking(browser, url, view) as page:
        cell = page.get_by_role("cell", name=there, exact=True)
        expect(cell).to_have_count(1)
        page.keyboard.press("/")
        page.keyboard.type("nobody-is-so")
        expect(page.get_by_role("cell", name=f"No {what} begins so.")).to_be_visible()
        expect(cell).to_have_count(0)
        page.get_by_role("searchbox").fill(there[:3])
        expect(cell).to_have_count(1)


@pytest.mark.parametrize("width", [320, 390, 700, 720, 1280])
def test_of_the_header_nothing_is_cut_or_covers_another_part(browser: Browser, url: str, width: int) -> None:
    with looking(browser, url, "#/server", viewport={"width": width, "height": 700}) as page:
        page.locator("h1").wait_for()
        boxes = page.evaluate(
            "[...document.querySelectorAll('header a, header button, h1')].filter((it) => it.checkVisibility())"
            ".map((it) => { const { left, right, top, bottom } = it.getBoundingClientRect();"
            " return [it.textContent, left, right, top, bottom] })"
        )

    assert len(boxes) >= 10  # eight views, the key's button, the heading
    for at, (name, left, right, top, bottom) in enumerate(boxes):
        assert 0 <= left < right <= width, name
        for other, left_of, right_of, top_of, bottom_of in boxes[:at]:
            is_apart = right <= left_of or right_of <= left or bottom <= top_of or bottom_of <= top
            assert is_apart, (name, other)


@pytest.mark.rule("O4.1")
def test_what_a_word_means_is_told_by_keyboard(browser: Browser, url: str) -> None:
    with looking(browser, url) as page:
        dialog = page.get_by_role("dialog")
        told: set[str] = set()
        for view, word in (
            ("#/", "Pressure"), ("#/topics/quakes/live", "Lost below"), ("#/topics/mails/jobs", "Times"),
            ("#/queues", "Ran out/s"), ("#/routers", "Forwarded"), ("#/server", "They wait for"),
            ("#/workers", "Holds"),
        ):  # fmt: skip
            go(page, view)
            page.locator("main .word", has_text=re.compile(f"^{word}$")).first.wait_for()
            there = page.locator("main .word").all_text_contents()
            page.keyboard.press("?")
            expect(dialog.get_by_text(word, exact=True)).to_be_visible()
            assert set(there) <= set(dialog.locator("dt").all_text_contents())
            assert all(len(text) > 20 for text in dialog.locator("dd").all_text_contents())
            told.update(there)
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
        assert len(told) > 40
        go(page, "#/keys")
        page.get_by_role("button", name="What the words here mean").press("Enter")
        expect(dialog).to_contain_text("This view has none that need it.")
        go(page, "#/topics/mails/config")
        expect(dialog).to_have_count(0)
        expect(page.get_by_label("cap_records")).to_have_accessible_description(
            "Bound on the live records; 0: none"
        )
        expect(page.get_by_label("retry_backoff")).to_have_accessible_description(
            "When a failed job comes again"
        )


@pytest.mark.rule("O4.1")
@pytest.mark.parametrize(
    ("scheme", "size"), [("light", None), ("dark", None), ("light", PHONE), ("dark", PHONE)]
)
def test_every_view_fits_the_screen_in_light_and_dark(
    browser: Browser, url: str, tmp_path: pathlib.Path, scheme: str, size: dict[str, int] | None
) -> None:
    options = {"color_scheme": scheme, "reduced_motion": "reduce"} | ({"viewport": size} if size else {})
    with looking(browser, url, **options) as page:
        for view in VIEWS:
            go(page, view)
            page.locator("h1").wait_for()
            page.wait_for_timeout(400)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert page.evaluate(CUT) == [], view
            ground, ink = brightness(page, "backgroundColor"), brightness(page, "color")
            assert (ground > 200, abs(ink - ground) > 150) == (scheme == "light", True)
            page.screenshot(path=tmp_path / f"{view.strip('#/').replace('/', '-') or 'topics'}.png")


def brightness(page: Page, what: str) -> float:
    found: float = page.evaluate(
        f"getComputedStyle(document.body).{what}.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3"
    )
    return found


@pytest.mark.rule("O4.1")
def test_the_live_view_goes_on_when_the_server_is_there_again(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        client.create("quakes").put("before")
        with looking(browser, server.url, "#/topics/quakes/live", expected="ERR_|Failed to load") as page:
            until(page, '"before"')
            until(page, "Live, at 1.")
            server.kill()
            until(page, "The server does not answer.")
            server.start()
            client.topic("quakes").put("after")
            until(page, '"after"')
            until(page, "Live, at 2.")
            expect(page.locator("#notice")).to_be_empty()
            assert page.locator("tbody button").all_text_contents() == ["2", "1"]


def test_it_lives_over_tls_and_http2(browser: Browser, tmp_path: pathlib.Path) -> None:
    files = {"certfile": str(CERTIFICATES / "one.pem"), "keyfile": str(CERTIFICATES / "one.key")}
    with topics.open(tmp_path / "data") as store:
        store.create("quakes").put("before")
    with PrivateServer(tmp_path / "data", tmp_path, settings=files) as server:
        url = server.url.replace("http:", "https:")
        with looking(browser, url, "#/topics/quakes/live", ignore_https_errors=True) as page:
            until(page, '"before"')
            until(page, "Live, at 1.")
            assert page.evaluate(
                "performance.getEntriesByType('resource').map((one) => one.nextHopProtocol)"
            ).count("h2") == page.evaluate("performance.getEntriesByType('resource').length")


@pytest.mark.rule("O4.8")
def test_a_readers_range_of_ten_thousand_parts_keeps_nobody_waiting(
    browser: Browser, url: str, client: topics.Client
) -> None:
    """Each second record is not what he asked for."""
    mixed = client.create("mixed")
    for at in range(0, 20_000, 5000):
        mixed.put_many({"data": n, "tag": "odd" if n % 2 else "even"} for n in range(at, at + 5000))
    with looking(browser, url, "#/topics/mixed/why") as page:
        page.evaluate(LONGEST)
        page.get_by_label("A reader at").fill("0")
        page.get_by_label("Tag", exact=True).fill("odd")
        page.get_by_role("button", name="What has he not got?").click()
        until(page, "Above 0 up to 10,000.")
        parts = page.get_by_role("region", name="Seqs by what a reader is told").locator("tbody tr")
        expect(parts).to_have_count(500)
        page.get_by_role("button", name="On →").click()
        expect(parts.first).to_contain_text("501filtered")
        for _ in range(18):
            page.get_by_role("button", name="On →").click()
        expect(parts.last).to_contain_text("10,000delivered")
        page.get_by_role("button", name="On →").click()
        until(page, "Above 10,000 up to 20,000.")
        assert page.evaluate("longest") < 500
    client.delete("mixed")


@pytest.mark.timeout(400)
def test_ten_thousand_topics_and_a_million_records_keep_nobody_waiting(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    with topics.open(tmp_path / "data") as store, ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda n: store.create(f"topic.{n:05}"), range(10_000)))
        large = store.create("a-large-one")
        for at in range(0, 1_000_000, 10_000):
            large.put_many({"data": n, "tag": "odd" if n % 2 else "even"} for n in range(at, at + 10_000))
    with PrivateServer(tmp_path / "data", tmp_path) as server, looking(browser, server.url) as page:
        page.evaluate(LONGEST)
        until(page, "10,001")
        list_ = page.get_by_role("region", name="Topics").locator("tbody tr")
        expect(list_).to_have_count(50)
        for _ in range(3):
            page.get_by_role("button", name="More →").click()
        until(page, "topic.00149")
        page.get_by_role("searchbox").fill("topic.099")
        until(page, "topic.09949")
        go(page, "#/topics/a-large-one/live")
        until(page, "Live, at 1,000,000.")
        with topics.Client(server.url) as client:  # more than a screen can draw
            for _ in range(20):
                client.topic("a-large-one").put_many({"data": n} for n in range(5000))
            page.get_by_role("button", name="Only what comes now").click()
            until(page, "Live, at 1,100,000.")
            client.topic("a-large-one").put("the last")
        until(page, '"the last"')
        assert page.locator("tbody button").count() <= 200
        go(page, "#/topics/a-large-one/records")
        page.get_by_label("From seq").fill("987654")
        page.keyboard.press("Enter")
        expect(page.locator("tbody button").first).to_have_text("987654")
        go(page, "#/topics/a-large-one/delete")
        page.get_by_label("Tag").fill("odd")
        page.get_by_role("button", name="Preview").click()
        until(page, "at least 25,")
        for view in ("#/queues", "#/workers", "#/consumers", "#/server"):
            go(page, view)
            page.locator("h1").wait_for()
            page.wait_for_timeout(1500)
        assert page.evaluate("longest") < 500  # ms in which nothing that was typed was heard
