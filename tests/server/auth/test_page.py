"""docs/keys.md: it has every route and op with what it needs, and what it shows of the file is so."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from topics.server.api.table import route_table
from topics.server.auth.lines import parse_line
from topics.server.auth.scopes import Names

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "keys.md").read_text(encoding="utf-8")


def test_the_page_has_what_every_route_and_op_needs():
    table = route_table()
    rows = re.findall(r"^\| `((?:[A-Z]+ /|[a-z_]+`)[^ |]*) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    said = sorted((asked.rstrip("`"), scope) for asked, scope in rows)
    routes = [
        (
            f"{route.method.decode()} {route.path}",
            route.scope + (", without prefixes" if route.names is Names.SERVER else ""),
        )
        for route in table.routes
    ]

    assert said == sorted([*routes, *((op.name, op.scope) for op in table.ops.values())])


def test_a_digest_is_made_as_the_page_says():
    assert 'printf %s "$KEY" \\| sha256sum' in PAGE
    line = f"sha256:{hashlib.sha256(b'k').hexdigest()}:read:orders. # dashboards"

    assert parse_line(line, where="").digest == parse_line("k", where="").digest
