"""When a page has drawn the first rows of its list."""

from __future__ import annotations

from playwright.sync_api import Page, expect

# Notes when the first row of the list has been drawn.
WATCH = """new MutationObserver(() => {
  if (window.painted_ms !== undefined || !document.querySelector("main [data-row]")) return;
  window.painted_ms = null;
  requestAnimationFrame(() => setTimeout(() => { window.painted_ms = performance.now(); }));
}).observe(document, {subtree: true, childList: true});"""


def painted_s(page: Page) -> float:
    """Return the time from the beginning of the navigation, of a page that has WATCH as an init script."""
    expect(page.locator("main [data-row]").first).to_be_visible()
    while not (painted_ms := page.evaluate("window.painted_ms")):
        page.evaluate("new Promise(requestAnimationFrame)")
    return float(painted_ms) / 1000
