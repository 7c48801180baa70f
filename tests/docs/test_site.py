"""`make docs` builds the site of docs/ from the code as it is, without warnings. It loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY

LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. A broken link or anchor, or a page that is in no menu, is a warning, and so an error here."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    sources = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    pages = {path.with_suffix(".md") for path in (page.relative_to(site) for page in site.rglob("*.html"))}
    readme = {Path("tools/index.md"), Path("404.md")}
    assert pages - readme == {source for source in sources if source.name != "README.md"}


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    assert [page for page in site.rglob("*.html") if LOADED.search(page.read_text("utf-8"))] == []


def test_the_menu_names_the_tools_as_they_are_called(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    menu = re.findall(r'<span class="md-ellipsis">\s*(.*?)\s*</span>', page, re.DOTALL)
    tools = {page.stem for page in (REPOSITORY / "docs/tools").glob("*.md")} - {"README"}
    assert tools <= set(menu)


@pytest.mark.parametrize(
    "call", ["multi_publish", "lookupd_http_addresses", "max_in_flight", "wait_for_depth", "nsqd_tcp_addresses"]
)
def test_the_python_api_is_made_from_the_code(site: Path, call: str) -> None:
    assert call in (site / "python-api.html").read_text("utf-8")


def test_every_path_has_a_sentence() -> None:
    rows = (REPOSITORY / "docs/http-api.md").read_text("utf-8").splitlines()
    assert [row for row in rows if row.startswith("|") and "|  |" in row] == []
