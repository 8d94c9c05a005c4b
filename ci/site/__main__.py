"""Build build/site from docs/ and the code (decision 107).

usage: ci/docs [--out DIR]

The sources are put together in build/docs: docs/ as it stands, the pages of the repository's root, and what is made
from the code. Sphinx reads those and nothing else. A link, an anchor or a path of a page that leads nowhere is a
warning of Sphinx, and a warning fails.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys

from ci.site.command_page import command_page, settings_page
from ci.site.http_page import http_page
from ci.site.python_pages import python_pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/docs", description="Build the site of the documentation.")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build", help="site/ and docs/ go there")
    out = parser.parse_args().out.resolve()
    sources, site = out / "docs", out / "site"
    for folder in (sources, site):
        shutil.rmtree(folder, ignore_errors=True)
    gather(sources)
    done = build(sources, site)
    sys.stderr.write(done.stderr)
    if done.returncode == 0:
        print(f"ci/docs: {len(list(site.rglob('*.html')))} pages, {site / 'index.html'}")
    return done.returncode


def gather(sources: pathlib.Path) -> None:
    """Everything that Sphinx reads, in one folder. Fragments of the changelog are no pages."""
    shutil.copytree(ROOT / "docs", sources, ignore=shutil.ignore_patterns("changes"))
    for name in OF_ROOT:
        shutil.copy(ROOT / name, sources / name)
    made = {
        "http.md": http_page(),
        "commands.md": command_page(),
        "settings.md": settings_page(),
        **python_pages(),
    }
    for name, text in made.items():
        page = sources / "reference" / name
        assert not page.exists(), f"docs/reference/{name} is made from the code: it must not lie in docs/"
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")


def build(sources: pathlib.Path, site: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Sphinx over a folder of pages. Every warning is told, and one is enough to fail."""
    command = [
        sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--quiet", "--fresh-env",
        "--conf-dir", str(ROOT / "ci" / "site"), "--doctree-dir", str(site.parent / "doctrees"),
        str(sources), str(site),
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
