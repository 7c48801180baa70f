"""Headless Chromium for tests of nsqadmin's page. Whatever goes wrong in a page fails the test that looks at it.

Playwright's event loop is in the thread that started it until it is stopped: nothing else in that thread may use
asyncio in the meantime. The servers under test are other processes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import pytest
from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]  # it brings none
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    Playwright,
    Request,
    Response,
    ViewportSize,
    WebError,
    expect,
    sync_playwright,
)

from tests.support import steady_browser
from tests.support.nsqd_process import ServerProcess

# The headless shell takes half the processor time of the others.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
IS_REQUIRED = os.environ.get("NSQADMIN_BROWSER") == "required"
EVIL_HOST = "evil.example"
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nobody but this machine is asked, whatever a page wants; that it wants it is a fault, see Watch.
    # The owner of EVIL_HOST lets it resolve to this machine.
    f"--host-resolver-rules=MAP {EVIL_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# The machine may be busy with other tests.
DEADLINE_MS = 40_000
DESK = ViewportSize(width=1280, height=900)
PHONE = ViewportSize(width=360, height=740)
# Requests that the page itself gave up, because it went on to another view.
_GIVEN_UP = "net::ERR_ABORTED"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is none, or fails it where there has to be one."""
    with sync_playwright() as playwright:
        path = _path_of_browser(playwright)
        if path is None:
            message = "no Chromium found; contrib/install-browser installs Debian's"
            if IS_REQUIRED:
                pytest.fail(message)
            pytest.skip(message)
        with TemporaryDirectory() as folder:
            browser = playwright.chromium.launch(executable_path=_launcher(Path(folder), path), args=_FLAGS)
            try:
                yield browser
            finally:
                browser.close()


def _launcher(folder: Path, browser: str) -> Path:
    """Return a program that starts the browser as `steady_browser` does."""
    launcher = folder / "chromium"
    command = [sys.executable, steady_browser.__file__, browser]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    launcher.chmod(0o755)
    return launcher


def _path_of_browser(playwright: Playwright) -> str | None:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    own = playwright.chromium.executable_path  # of `playwright install`
    return found or (own if Path(own).exists() else None)


class Watch:
    """What the pages of a context did that they should not have done. `check` at the end."""

    def __init__(self, context: BrowserContext, own_url: str) -> None:
        self.faults: list[str] = []
        self._own_url = own_url
        self._expected: list[re.Pattern[str]] = []
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_failed)
        context.on("response", self._on_response)

    def expect(self, pattern: str) -> None:
        """Such a fault is none; a regular expression."""
        self._expected.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        return [fault for fault in self.faults if not any(known.search(fault) for known in self._expected)]

    def check(self) -> None:
        faults = self.unexpected()
        assert not faults, "\n".join(["the page did what it should not:", *faults])

    def _on_console(self, message: ConsoleMessage) -> None:
        # What the browser says of the policy for contents is an error here too.
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.type}: {message.text} at {message.location.get('url')}")

    def _on_error(self, error: WebError) -> None:
        self.faults.append(f"exception: {error.error.stack or error.error}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self._own_url, "data:", "blob:")):
            self.faults.append(f"another host: {request.url}")

    def _on_failed(self, request: Request) -> None:
        if request.failure != _GIVEN_UP:
            self.faults.append(f"failed {request.failure}: {request.method} {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.request.method} {response.url}")


class Visits:
    """Opens pages of nsqadmins, each in a context of its own. At the end of `with`, none may have done wrong."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._opened: list[tuple[BrowserContext, Watch]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, *__: object) -> None:
        for context, _ in self._opened:
            context.close()
        if error is None:
            for _, watch in self._opened:
                watch.check()

    def __call__(
        self,
        admin: ServerProcess,
        path: str = "/",
        *,
        faults: Iterable[str] = (),
        size: ViewportSize = DESK,
        **options: Any,
    ) -> Page:
        """`faults` are regular expressions of those that are none here; `options` are those of a context."""
        url = f"http://{admin.host.address}:{admin.http_port}"
        # Nothing moves: what is looked at is what is there.
        context = self._browser.new_context(
            base_url=url, viewport=size, reduced_motion="reduce", locale="en-US", timezone_id="UTC", **options
        )
        context.set_default_timeout(DEADLINE_MS)
        watch = Watch(context, url)
        for pattern in faults:
            watch.expect(pattern)
        self._opened.append((context, watch))
        page = context.new_page()
        page.goto(path)
        return page

    def faults(self) -> list[str]:
        """So far. What the browser has reported in the meantime is heard first."""
        for context, _ in self._opened:
            for page in context.pages:
                page.wait_for_function("true")
        return [fault for _, watch in self._opened for fault in watch.unexpected()]

    def describe(self, folder: Path, name: str) -> str:
        """The addresses of all that is open, and the names of pictures of it."""
        lines = []
        for number, page in enumerate(page for context, _ in self._opened for page in context.pages):
            path = folder / f"{name}-{number}.png"
            with suppress(Error):  # it may hang
                page.screenshot(path=path)
            lines.append(f"{page.url}: {path}")
        return "\n".join([*lines, *(fault for _, watch in self._opened for fault in watch.unexpected())])


# ---- what is on a page


def path_of(page: Page) -> str:
    """Of its address, from the path on."""
    return re.sub(r"^\w+://[^/]+", "", page.url)


def rows_of(page: Page, caption: str) -> list[dict[str, str]]:
    """The texts of a table's cells, by the heads of their columns."""
    expect(page.get_by_role("table", name=caption)).to_be_visible()
    table = page.get_by_role("table", name=caption)
    found: list[dict[str, str]] = table.evaluate(
        """table => {
          const text = cell => cell.innerText.replace(/[▲▼↕]/g, "").trim();
          const heads = [...table.querySelectorAll("thead th")].map(text);
          const rows = [...table.querySelectorAll("tbody tr")];
          return rows.map(row => Object.fromEntries([...row.cells].map((cell, place) => [heads[place], text(cell)])));
        }"""
    )
    return found


def tiles_of(page: Page) -> dict[str, str]:
    """The statistics at the top of a view, by their labels."""
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("main dl dt")].map(
          label => [label.innerText.trim(), label.parentElement.querySelector("dd").innerText.trim()]))"""
    )
    return found


def ready(page: Page) -> Page:
    """When the view has what it shows."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text(re.compile("^Loading"))).to_have_count(0)
    return page


def press(page: Page, button: str | re.Pattern[str]) -> Locator:
    """The dialog that a button of the view opens."""
    page.get_by_role("main").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def confirm(dialog: Locator, button: str, *, phrase: str = "") -> None:
    """Goes on, where a phrase has to be typed with that; returns when the dialog is gone."""
    going_on = dialog.get_by_role("button", name=button, exact=True)
    if phrase:
        expect(going_on).to_be_disabled()
        dialog.get_by_label("Type").fill(phrase)
    going_on.click()
    expect(dialog).to_have_count(0)


def system_theme(page: Page, theme: Literal["light", "dark"]) -> None:
    """What the system says; the page follows."""
    page.emulate_media(color_scheme=theme)
    expect(page.locator("html")).to_have_attribute("data-theme", theme)


def violations(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Of the rules of WCAG 2.1 A and AA, or of some rules, as axe-core finds them."""
    run_only = {"type": "rule", "values": list(rules)} if rules else {"type": "tag", "values": WCAG}
    options = {"runOnly": run_only, "resultTypes": ["violations"]}
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[dict[str, Any]] = page.evaluate("options => axe.run(options)", options)["violations"]
    return [
        f"{rule['id']}: {' '.join(node['target'])}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


def overflow(page: Page) -> list[str]:
    """Why the whole page would scroll sideways: some of the elements that reach beyond the window."""
    found: list[str] = page.evaluate(
        """() => {
          const {clientWidth, scrollWidth} = document.documentElement;
          if (scrollWidth <= clientWidth) return [];
          const reachesOut = element => element.getBoundingClientRect().right > clientWidth + 1;
          const isCut = element => element && (getComputedStyle(element).overflowX !== "visible" ||
            isCut(element.parentElement));
          const wide = [...document.body.querySelectorAll("*")].filter(e => reachesOut(e) && !isCut(e.parentElement));
          return [`${scrollWidth} px of ${clientWidth}`, ...wide.slice(0, 5).map(e => e.outerHTML.slice(0, 100))];
        }"""
    )
    return found
