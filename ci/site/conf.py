"""What Sphinx reads. Pages are Markdown (MyST), the look is Furo's, and no page asks another host for anything."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import attrs
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

import topics

project = "topics"
version = release = topics.__version__
copyright = "the authors of topics, Apache License 2.0"  # noqa: A001 -- Sphinx's name for it
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"topics {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # it fetches each page that is found, which a browser refuses from the disk
html_search_scorer = str(pathlib.Path(__file__).with_name("scorer.js"))
pygments_style, pygments_dark_style = "default", "github-dark"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["misc.highlighting_failure"]  # a block of JSON with an … is no JSON, and reads well

smartquotes = False  # of --data they would make –data
default_role = "code"  # docstrings have one backtick round code, as Markdown has
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90

MADE_BY_USERS = frozenset(("topics.Client", "topics.AsyncClient"))

# A page of the tree, as others name it: in a checkout a path says more than a link does. Decisions have numbers.
_PAGE = re.compile(r"(docs/)?([\w/-]+)\.md", re.ASCII)
_DECISIONS = re.compile(r"\b[Dd]ecisions? \d+(?:(?:, and |, | and )\d+)*", re.ASCII)


def link_pages(app: Sphinx, doctree: nodes.document) -> None:
    """Make a link of each path in code that is a page, `docs/queues.md`, and of each number of a decision.

    One in docs/ that is no page is warned of, and so is a decision that is not there.
    """
    for literal in list(doctree.findall(nodes.literal)):
        target = page_of(literal.astext(), app.env.found_docs)
        if target is not None and not is_linked(literal):
            literal.parent.replace(literal, link(app, target, literal.deepcopy()))
    for text in list(doctree.findall(nodes.Text)):
        if not is_linked(text) and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            parts = list(with_decisions(app, text.astext()))
            if len(parts) > 1:
                text.parent.replace(text, parts)


def is_linked(node: nodes.Node) -> bool:
    return isinstance(node.parent, nodes.reference | addnodes.pending_xref | nodes.title)


def link(app: Sphinx, page: str, content: nodes.Node) -> addnodes.pending_xref:
    return addnodes.pending_xref(
        "", content, refdoc=app.env.current_document.docname, refdomain="std", reftype="doc",
        reftarget=f"/{page}", refexplicit=True, refwarn=True,
    )  # fmt: skip


def page_of(path: str, pages: set[str]) -> str | None:
    found = _PAGE.fullmatch(path)
    if found is None:
        return None
    in_docs, name = found.groups()
    if in_docs:
        return name  # whether it is there or not
    return "index" if name == "README" else name if name in pages else None


def with_decisions(app: Sphinx, text: str) -> Iterator[nodes.Node]:
    """The text, cut where numbers of decisions are, and these as links."""
    end = 0
    for cited in _DECISIONS.finditer(text):
        for number in re.finditer(r"\d+", cited.group()):
            start = cited.start() + number.start()
            yield nodes.Text(text[end:start])
            beginning = f"dev/decisions/{int(number.group()):04}"
            pages = (page for page in app.env.found_docs if page.startswith(beginning))
            yield link(app, next(pages, beginning), nodes.inline("", number.group()))
            end = cited.start() + number.end()
    yield nodes.Text(text[end:])


# Comments and docstrings name the rules that they keep, for who changes the code; docs/dev/rules.md has them.
_CITATION = re.compile(r" \((?:semantics|http-api|storage|queues|operations|replication|spark) [0-9.]+\)")


_RAISED = re.compile(r" {4}(\w+(?:, \w+)*): (.*)")


def tidy_docstring(
    _app: Sphinx, _what: str, _name: str, _found: object, _options: object, lines: list[str]
) -> None:
    """No citations; and `Raises:`, which ends a docstring of ours, as reStructuredText has it."""
    lines[:] = [_CITATION.sub("", line) for line in lines]
    if "Raises:" in lines:
        section = lines.index("Raises:")
        lines[section:] = [_RAISED.sub(r":raises \1: \2", line) for line in lines[section + 1 :]]


def leave_out_constructors(
    _app: Sphinx, what: str, name: str, found: type, _options: object, _signature: str, _gives: str
) -> tuple[str, str] | None:
    """How a store makes its handles is nobody's business; the fields of a value are, and so is how a client is made."""
    is_handle = what == "class" and not (attrs.has(found) or hasattr(found, "__struct_fields__"))
    return ("", "") if is_handle and name not in MADE_BY_USERS else None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", link_pages)
    app.connect("autodoc-process-docstring", tidy_docstring)
    app.connect("autodoc-process-signature", leave_out_constructors)
    return {"parallel_read_safe": True}
