"""The page as a package and the image have it: merged into few files, so that a browser with an empty cache soon has it all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.support.browser import DESK, Visits
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqd_process import REPOSITORY
from tests.support.sweeps import sample

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

MERGER = REPOSITORY / "contrib/page"
MOST_REQUESTS = 12
MOST_BYTES = 160_000
# nsqadmin, as it is where its package has a merged page.
PROGRAM = """
import sys
from pathlib import Path
from nsqadmin_py.web import shell
shell.MERGED = Path(sys.argv.pop(1))
from nsq_apps.nsqadmin import main
main()
"""


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (MERGER / "node_modules/esbuild").is_dir() or not shutil.which("node"):
        pytest.skip("needs npm, with which `make test` installs esbuild")
    folder = tmp_path_factory.mktemp("merged") / "page"
    done = subprocess.run(
        ["node", MERGER / "build.mjs", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_few_requests_show_the_first_screen(browser: Browser, cluster: AdminCluster, merged: Path) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    admin = cluster.admin("--history-file=", command=[sys.executable, "-c", PROGRAM, str(merged)])
    admin.wait_for_topic("orders", nodes=2, channels=1)
    asked: list[Request] = []
    with browser.new_context(base_url=f"http://127.0.0.1:{admin.http_port}", viewport=DESK) as context:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request))
        page.goto("/", wait_until="load")
        expect(page.get_by_role("table", name="Topics").get_by_role("row").nth(1)).to_be_visible()
        page.evaluate("document.fonts.ready.then(() => 0)")
        urls = [request.url for request in asked]
        assert len(urls) <= MOST_REQUESTS, urls
        assert any(url.endswith("/app.js") for url in urls) and not any("/views/" in url for url in urls), (
            urls
        )
        ended = [request for request in asked if request.resource_type != "eventsource"]  # that one goes on
        sizes = {request.url: request.sizes() for request in ended}
    assert (
        sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes.values()) <= MOST_BYTES
    ), sizes


@pytest.mark.parametrize(
    "path",
    sample(
        "/topics/orders/archive", "/channels", "/nodes", "/topics/orders", "/lookup", "/counter", "/audit"
    ),
)
def test_each_view_is_in_it(visit: Visits, cluster: AdminCluster, merged: Path, path: str) -> None:
    """The charts of some come later. What a page does wrong fails the test."""
    cluster.create("orders", "archive")
    admin = cluster.admin("--history-file=", command=[sys.executable, "-c", PROGRAM, str(merged)])
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = visit(admin, path)
    expect(page.get_by_role("main")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
    page.wait_for_load_state("load")


def test_a_package_has_it_where_it_is_named(merged: Path, tmp_path: Path) -> None:
    variables = {"NSQADMIN_PAGE": str(merged), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "setup.py", "--quiet", "build", f"--build-base={tmp_path}"]
    subprocess.run(command, cwd=REPOSITORY, env=variables, check=True, timeout=120, capture_output=True)
    (page,) = tmp_path.glob("lib*/nsqadmin_py/page")
    assert {path.name for path in page.iterdir()} == {path.name for path in merged.iterdir()}
