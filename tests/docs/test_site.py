"""`make docs` builds the site of docs/ from the code as it is, without warnings. It loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import expect

from nsqd_py.version import PROJECT_VERSION
from tests.support.browser import DEADLINE_MS, chromium
from tests.support.nsqd_process import REPOSITORY

pytestmark = pytest.mark.xdist_group("site")  # building it takes 10 s

LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site. A broken link or anchor, or a page that is in no menu, is a warning, and so an error here."""
    folder = tmp_path_factory.mktemp("site")
    for page in ("index.html", "sitemap.xml"):  # an older version
        (folder / "0.9.0" / page).parent.mkdir(exist_ok=True)
        (folder / "0.9.0" / page).touch()
    command = [sys.executable, "contrib/build-site", str(folder)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / PROJECT_VERSION


def test_every_page_is_in_the_site(site):
    sources = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    pages = {path.with_suffix(".md") for path in (page.relative_to(site) for page in site.rglob("*.html"))}
    readme = {Path("tools/index.md"), Path("404.md")}
    assert pages - readme == {source for source in sources if source.name != "README.md"}


def test_the_site_loads_nothing_from_elsewhere(site):
    assert [page for page in site.rglob("*.html") if LOADED.search(page.read_text("utf-8"))] == []


def test_each_page_has_a_menu_of_the_versions(site):
    handler = partial(SimpleHTTPRequestHandler, directory=site.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}")
        expect(page.locator(".md-version__link")).to_have_text(
            [PROJECT_VERSION, "0.9.0"], timeout=DEADLINE_MS
        )
        assert page.url.endswith(f"/{PROJECT_VERSION}/index.html")
        server.shutdown()


def test_the_menu_names_the_tools_as_they_are_called(site):
    page = (site / "index.html").read_text("utf-8")
    menu = re.findall(r'<span class="md-ellipsis">\s*(.*?)\s*</span>', page, re.DOTALL)
    tools = {page.stem for page in (REPOSITORY / "docs/tools").glob("*.md")} - {"README"}
    assert tools <= set(menu)


@pytest.mark.parametrize(
    "call",
    ["multi_publish", "lookupd_http_addresses", "max_in_flight", "wait_for_depth", "nsqd_tcp_addresses"],
)
def test_the_python_api_is_made_from_the_code(site, call):
    assert call in (site / "python-api.html").read_text("utf-8")


def test_every_path_has_a_sentence():
    rows = (REPOSITORY / "docs/http-api.md").read_text("utf-8").splitlines()
    assert [row for row in rows if row.startswith("|") and "|  |" in row] == []
