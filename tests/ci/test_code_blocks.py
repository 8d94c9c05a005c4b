"""Every fenced block of the users' pages is run by a test, or stands here with the reason why none runs it.

A block that is in no row, or in a row that says another number, fails: who adds one says what runs it.
"""

from __future__ import annotations

import pathlib
import re

import attrs

from tests.support.pages import ROOT, Block, blocks_of, users_pages

COMMANDS = "tests/cli/test_command_pages.py::"
README = "tests/e2e/test_readme.py::"
HOW_TO = "tests/e2e/test_how_to.py::"
LIVE = "tests/e2e/test_live_page.py::"
API = "tests/e2e/test_api_page.py::"
CLUSTER = "tests/spark/test_cluster.py"
AUDITS = (
    "tests/spark/test_audits.py::test_an_overview_and_an_export_hold_every_record_of_a_directory_or_a_backup"
)
WHY = "tests/e2e/test_why_page.py::test_the_commands_print_what_the_page_says"
PAGES = "tests/e2e/test_pages.py::test_the_examples_print_what_one_expects"
SAMPLES = "tests/e2e/test_sample_pages.py::test_a_program_prints_what_the_page_promises"
REPLICATION = (
    "tests/lattice/test_page.py tests/lattice/test_queue_page.py tests/kv/test_docs.py tests/weaver/test_page.py"
    " tests/weaver/node/test_exchange_page.py"
)
INSTALLS = (
    "not run: it installs from an index of packages, which no test reaches; ci/smoke installs the wheel"
)
AS_ROOT = "not run: it changes the machine, as root; tests/server/test_deploy.py holds docs/deploy against the server"
NO_CODE = "not run: it is the site's navigation; tests/ci/test_docs_links.py follows it"


@attrs.frozen
class Row:
    """So many blocks of a page, by language and beginning. `by`: what runs them, or `not run: ` and why."""

    page: str
    language: str
    count: int
    by: str
    beginning: str = ""

    def has(self, block: Block) -> bool:
        asked = (self.page, self.language)
        return (block.page, block.language) == asked and block.text.startswith(self.beginning)

    @property
    def tests(self) -> list[str]:
        return [] if self.by.startswith("not run: ") else self.by.split()


# A block belongs to the first row that has it.
ROWS = (
    Row("README.md", "console", 1, f"{README}test_the_calls_over_http_are_answered", "$ topics serve"),
    Row("README.md", "console", 1, f"{README}test_every_line_of_the_console_block_runs", "$ topics put"),
    Row("README.md", "python", 3, f"{README}test_the_python_blocks_run_one_after_another_and_print_what_they_say"),
    Row("docs/api.md", "console", 1, f"{API}url"),
    Row("docs/api.md", "sh", 27, f"{API}test_every_call_of_the_page_answers_what_it_says"),
    Row("docs/api.md", "json", 27, f"{API}test_every_call_of_the_page_answers_what_it_says"),
    Row("docs/api.md", "text", 1, f"{API}test_every_message_of_the_page_is_answered_as_it_says", "→"),
    Row("docs/api.md", "text", 1, "not run: a stream that does not end, cut short; docs/live.md has such a one, run"),
    Row("docs/client.md", "python", 6, "tests/client/test_docs.py"),
    Row("docs/comparison.md", "sh", 1, "not run: it takes minutes; tests/cli/bench/test_bench.py has each flag"),
    Row("docs/consumers.md", "python", 5, PAGES),
    Row(
        "docs/export.md", "console", 1,
        f"{COMMANDS}test_a_topic_is_written_to_each_kind_of_file_and_comes_back", "$ topics export",
    ),
    Row("docs/export.md", "console", 1, f"{COMMANDS}test_what_kcat_and_rpk_print_is_appended", "$ kcat"),
    Row("docs/export.md", "sql", 1, "not run: DuckDB is none of our dependencies, and nothing here needs it"),
    Row("docs/frameworks.md", "python", 3, "tests/contrib/test_docs.py"),
    Row("docs/frameworks.md", "sh", 2, "tests/contrib/test_docs.py"),
    Row("docs/how-to/backup.md", "sh", 3, f"{HOW_TO}test_a_backup_is_written_restored_and_looked_at"),
    Row("docs/how-to/import.md", "python", 3, "tests/e2e/test_how_to.py"),
    Row("docs/how-to/import.md", "console", 1, f"{HOW_TO}test_the_command_stores_a_file_once"),
    Row("docs/how-to/live-feed.md", "console", 1, INSTALLS),
    Row("docs/how-to/live-feed.md", "python", 1, f"{HOW_TO}test_a_page_gets_everything_once_and_goes_on_where_it_was"),
    Row("docs/how-to/live-feed.md", "js", 1, "not run: `show` and `warn` are the reader's"),
    Row("docs/how-to/sizing.md", "console", 1, f"{HOW_TO}test_a_machine_is_measured"),
    Row("docs/how-to/sizing.md", "python", 1, f"{HOW_TO}test_a_machine_is_measured"),
    Row("docs/index.md", "console", 1, INSTALLS),
    Row("docs/index.md", "python", 1, PAGES),
    Row("docs/index.md", "{toctree}", 7, NO_CODE),
    Row("docs/install.md", "console", 1, f"{COMMANDS}test_the_shells_get_their_scripts", "$ mkdir -p"),
    Row("docs/install.md", "console", 1, INSTALLS, "$ pip install"),
    Row("docs/install.md", "console", 1, AS_ROOT, "$ python3 -m venv /opt"),
    Row("docs/install.md", "console", 1, AS_ROOT, "$ useradd"),
    Row("docs/install.md", "console", 1, "not run: it needs Docker, and builds from an index of packages", "$ docker"),
    Row("docs/install.md", "yaml", 1, "not run: it is Prometheus that reads it"),
    Row("docs/keys.md", "console", 1, f"{COMMANDS}test_keys_are_made_kept_and_given"),
    Row("docs/keys.md", "text", 1, f"{COMMANDS}test_keys_are_made_kept_and_given"),
    Row("docs/keys.md", "sh", 1, f"{COMMANDS}test_keys_are_made_kept_and_given"),
    Row("docs/keys.md", "js", 1, f"{COMMANDS}test_keys_are_made_kept_and_given"),
    Row("docs/ledgerq.md", "python", 1, SAMPLES),
    Row("docs/ledgerq.md", "", 1, f"{COMMANDS}test_directories_of_ledgerq_come_and_go"),
    Row("docs/live.md", "sh", 2, f"{LIVE}test_its_calls_by_curl"),
    Row("docs/live.md", "json", 1, f"{LIVE}test_its_calls_by_curl"),
    Row("docs/live.md", "text", 1, f"{LIVE}test_its_calls_by_curl"),
    Row("docs/live.md", "html", 1, "tests/e2e/test_live_browser.py::test_the_page_lives_in_chromium"),
    Row("docs/live.md", "console", 1, "not run: its ports are fixed; tests/e2e/test_cross_origin_browser.py"),
    Row("docs/live.md", "js", 1, f"{LIVE}test_its_websocket_in_javascript"),
    Row("docs/live.md", "python", 2, f"{LIVE}test_its_programs_in_python"),
    Row(
        "docs/operations.md", "", 1,
        f"{COMMANDS}test_a_backup_is_taken_verified_and_restored_up_to_a_moment", "$ topics backup",
    ),
    Row("docs/operations.md", "", 2, f"{COMMANDS}test_damage_is_named_and_repaired", "$ topics fsck"),
    Row("docs/operations.md", "", 1, f"{COMMANDS}test_a_server_says_where_it_is", "$ topics serve"),
    Row("docs/promise.md", "python", 1, PAGES),
    Row("docs/proxies.md", "nginx", 1, "not run: it needs nginx, a certificate and a name"),
    Row("docs/proxies.md", "caddyfile", 1, "not run: it needs Caddy, and a name for which it gets a certificate"),
    Row("docs/pytest.md", "python", 5, "tests/pytest_plugin/test_docs.py::test_every_example_passes"),
    Row("docs/queues.md", "python", 3, PAGES),
    Row("docs/queues.md", "", 1, f"{COMMANDS}test_a_queue_is_used_by_curl_and_by_any_program", "curl"),
    Row("docs/queues.md", "", 1, f"{COMMANDS}test_a_queue_is_used_by_curl_and_by_any_program", "topics work"),
    Row("docs/queues.md", "", 2, f"{COMMANDS}test_a_queue_is_looked_after", "topics "),
    Row("docs/replication.md", "python", 16, REPLICATION),
    Row("docs/routers.md", "python", 1, "tests/e2e/test_router_page.py::test_the_examples_print_what_one_expects"),
    Row("docs/routers.md", "", 1, f"{COMMANDS}test_routers_and_schedules_are_put_shown_and_removed"),
    Row("docs/samples.md", "python", 2, SAMPLES),
    Row("docs/schedules.md", "python", 2, PAGES),
    Row("docs/schedules.md", "", 1, f"{COMMANDS}test_routers_and_schedules_are_put_shown_and_removed"),
    Row("docs/spark.md", "console", 1, AUDITS, "$ topics spark"),
    Row("docs/spark.md", "console", 1, CLUSTER, "$ pip install attrs"),
    Row("docs/spark.md", "console", 1, INSTALLS),
    Row("docs/spark.md", "python", 1, CLUSTER, "import pathlib"),
    Row("docs/spark.md", "python", 5, "tests/spark/test_docs.py::test_the_code_of_the_page_runs"),
    Row("docs/tutorial.md", "console", 10, "tests/e2e/test_tutorial.py::test_what_it_shows_is_what_comes"),
    Row("docs/why.md", "python", 1, WHY),
    Row("docs/why.md", "", 3, WHY),
)  # fmt: skip


def test_every_block_is_in_a_row_and_every_row_has_its_blocks() -> None:
    counts = dict.fromkeys(ROWS, 0)
    lost = []
    for page in users_pages():
        for block in blocks_of(page):
            row = next((row for row in ROWS if row.has(block)), None)
            if row is None:
                lost.append(f"{page}: ```{block.language} {block.text.splitlines()[:1]}")
            else:
                counts[row] += 1

    assert lost == []
    assert [(row, count) for row, count in counts.items() if count != row.count] == []


def test_every_fence_of_a_page_is_found() -> None:
    """Two bars are one block; what `blocks_of` does not see no row is asked for."""
    for page in users_pages():
        bars = re.findall(r"^ *(?:```|~~~)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert len(bars) == 2 * len(blocks_of(page)), page


def test_a_row_names_a_test_that_is_there_and_reads_the_page_or_says_why_not() -> None:
    for row in ROWS:
        assert row.tests or len(row.by) > len("not run: "), row
        for test in row.tests:
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, row
            assert pathlib.Path(row.page).stem in text or row.by == AUDITS, row
