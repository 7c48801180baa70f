"""A filmstrip of nsqadmin's first screen while it loads with an empty cache: on this machine, and over a slow network.

    python -m bench.filmstrip [FILE.jpg]

Chromium tells each frame that it draws, with its time. The strip has the frame that was on the screen at each moment,
and marks the first one with rows of topics. Of several loads it shows the quickest: the others had to share the
processor.
"""

from __future__ import annotations

import os
import sys
import tempfile
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Error, ViewportSize

from bench.machine import commit
from tests.support.browser import DESK, chromium
from tests.support.first_paint import WATCH, painted_s
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.slow_link import SlowLink

TOPICS = 60
LOADS = 7
ROUND_TRIP_S, BYTES_A_SECOND = 0.15, 200_000
FRAME_PX = 300
QUALITY = 60
AFTER_S = 0.3  # of what is shown after the first rows
RESULTS = Path(__file__).parent / "results"


class Frame(NamedTuple):
    time_s: float  # since the epoch
    jpeg: bytes


class Film(NamedTuple):
    """The frames of one load; `began_s` is since the epoch, `painted_s` the time to the first rows."""

    title: str
    step_s: float
    began_s: float
    painted_s: float
    frames: list[Frame]

    def at(self, passed_s: float) -> bytes:
        """Return the frame that was on the screen at a time after the beginning; empty before the first."""
        seen = [frame.jpeg for frame in self.frames if frame.time_s <= self.began_s + passed_s]
        return seen[-1] if seen else b""


def film(browser: Browser, port: int, title: str, step_s: float) -> Film:
    """Load the first screen and return its frames."""
    frames: list[Frame] = []
    options: dict[str, Any] = {"base_url": f"http://127.0.0.1:{port}", "viewport": DESK}
    with browser.new_context(**options, reduced_motion="reduce") as context:
        context.add_init_script(WATCH)
        page = context.new_page()
        session = context.new_cdp_session(page)

        def on_frame(event: dict[str, Any]) -> None:
            frames.append(Frame(event["metadata"]["timestamp"], b64decode(event["data"])))
            with suppress(Error):  # the last frame may come when the page is closed
                session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

        session.on("Page.screencastFrame", on_frame)
        size = {"maxWidth": FRAME_PX, "maxHeight": FRAME_PX}
        session.send("Page.startScreencast", {"format": "jpeg", "quality": QUALITY, **size})
        page.goto("/")
        first_rows_s = painted_s(page)
        page.wait_for_timeout(1000 * (AFTER_S + step_s))
        session.send("Page.stopScreencast")
        began_s = page.evaluate("performance.timeOrigin") / 1000
    return Film(title, step_s, began_s, first_rows_s, frames)


def strip(films: list[Film]) -> str:
    """Return a page with a row of frames for each film."""
    rows = "".join(
        f"<h2>{escape(one.title)}: first rows after {one.painted_s:.2f} s</h2><div>{_cells(one)}</div>" for one in films
    )
    style = f"""body {{ margin: 12px; font: 14px sans-serif; }} h2 {{ font-size: 15px; margin: 10px 0 6px; }}
        div {{ display: flex; gap: 6px; }} figure {{ margin: 0; }} figcaption {{ text-align: center; }}
        img, i {{ display: block; width: {FRAME_PX}px; height: {FRAME_PX * DESK["height"] // DESK["width"]}px;
        border: 2px solid #ccc; background: #fff; }} .first img {{ border-color: #0a0; }}"""
    return f"<!doctype html><style>{style}</style>{rows}"


def _cells(one: Film) -> str:
    cells = []
    for number in count(1):
        passed_s = number * one.step_s
        is_first = passed_s - one.step_s < one.painted_s <= passed_s
        jpeg = one.at(passed_s)
        picture = f'<img src="data:image/jpeg;base64,{b64encode(jpeg).decode()}">' if jpeg else "<i></i>"
        caption = f"<figcaption>{passed_s:.2f} s</figcaption>"
        cells.append(f'<figure class="{"first" if is_first else ""}">{picture}{caption}</figure>')
        if passed_s > one.painted_s + AFTER_S:
            return "".join(cells)
    raise AssertionError


def take(browser: Browser, admin: NsqadminProcess) -> list[Film]:
    with SlowLink(admin.http_port, ROUND_TRIP_S, BYTES_A_SECOND) as link:
        slow_title = f"{ROUND_TRIP_S * 1000:.0f} ms and {BYTES_A_SECOND // 1000} kB/s"
        return [
            min((film(browser, port, title, step_s) for _ in range(LOADS)), key=lambda one: one.painted_s)
            for port, title, step_s in ((admin.http_port, "local", 0.1), (link.port, slow_title, 0.25))
        ]


def draw(browser: Browser, films: list[Film], path: Path) -> None:
    widest = max(int((one.painted_s + AFTER_S) / one.step_s) + 1 for one in films)
    width = widest * (FRAME_PX + 10) + 24
    with browser.new_context(viewport=ViewportSize(width=width, height=400)) as context:
        page = context.new_page()
        page.set_content(strip(films))
        page.screenshot(path=path, type="jpeg", quality=QUALITY, full_page=True)


def main(argv: list[str]) -> int:
    default = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{commit()}-first-paint.jpg"
    path = Path(argv[0]) if argv else default
    with tempfile.TemporaryDirectory() as folder, AdminCluster(Path(folder)) as cluster, chromium() as browser:
        for number in range(TOPICS):
            cluster.nsqds[0].create(f"topic-{number}", "archive")
        admin = cluster.admin()
        admin.wait_for_topic(f"topic-{TOPICS - 1}")
        films = take(browser, admin)
        draw(browser, films, path)
    for one in films:
        print(f"{one.title}: first rows after {one.painted_s:.2f} s, {len(one.frames)} frames")
    print(f"{path} ({path.stat().st_size // 1024} kB); load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
