"""The paths under /debug: those of Go's NSQ, and some that only this project has.

All of them are admin paths: they show the inside of the process, and take time.
"""

from __future__ import annotations

import re
import sys
import tracemalloc
from collections.abc import Iterable
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import gevent
import gevent.lock

from nsqd_py.debug import memory
from nsqd_py.debug.census import Census, TypeRow
from nsqd_py.debug.collector import COLLECTIONS
from nsqd_py.debug.flame import draw, folded
from nsqd_py.debug.profile import PROFILER, Profile, ProfileUnderWay
from nsqd_py.debug.stacks import frame_of, greenlets_text, living_greenlets, threads_text
from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.router import Access, Request, Route, parse_int64
from nsqd_py.runtime.pacing import Pace
from nsqd_py.settings.flags import shown_words

if TYPE_CHECKING:
    from nsqd_py.settings.declaration import Setting

DEFAULT_PROFILE_S = 10
PROFILE_S = range(1, 121)
_TYPES_SHOWN = 100
_LINES_SHOWN = 50

# Browsers must neither guess another content type nor cache these pages.
_HEADERS = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_HTML = "text/html; charset=utf-8"
_SVG = "image/svg+xml"

_Request = Request[Any]

_FREEING = memory.Freeing()
# For handlers that go through all objects in slices: the slices of many handlers together would stall the loop.
_ONE_AT_A_TIME = gevent.lock.Semaphore()


def _text(body: str) -> Reply:
    return answers.plain(200, body, _HEADERS)


# ---- the index

_PAGES = (
    ("/debug/greenlets", "stacks of greenlets, equal ones counted (?debug=2: one by one), and of threads"),
    ("/debug/pprof/profile", "a flame graph of the next 10 s (?seconds=1 to 120, &format=svg or folded)"),
    ("/debug/pprof/heap", "objects by type, with their number and size"),
    ("/debug/gc", "counts of the garbage collector, and its last pauses"),
    ("/debug/pprof/threadcreate", "stacks of threads"),
    ("/debug/pprof/cmdline", "the command line, its words separated by NUL"),
)


def index(request: _Request) -> Reply:
    """List these pages."""
    rows = "".join(f'<dt><a href="{path}">{path}</a></dt><dd>{escape(what)}</dd>' for path, what in _PAGES)
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>/debug</title></head>'
        f"<body><h1>/debug</h1><dl>{rows}</dl>"
        "<p>And <code>POST /debug/freememory</code>: collect garbage, give unused memory back.</p></body></html>\n"
    )
    return Reply(200, _HEADERS, page.encode(), _HTML)


# ---- stacks


def greenlets(request: _Request) -> Reply:
    """Show all stacks; `debug=2` shows each greenlet separately, as Go does with goroutines."""
    each = request.params.get("debug") == "2"
    with _ONE_AT_A_TIME:
        pace = Pace()
        return _text(f"{greenlets_text(pace, each=each)}\n{threads_text(pace)}")


def threads(request: _Request) -> Reply:
    """Show the stacks of all threads."""
    return _text(threads_text(Pace()))


# ---- processor


def profile(request: _Request) -> Reply:
    """Profile the next seconds; answer with a flame graph, or with folded stacks."""
    seconds = _seconds(request)
    form = request.params.get("format", "svg")
    if form not in ("svg", "folded"):
        raise HttpError(400, "INVALID_ARG_FORMAT")
    try:
        taken = PROFILER.profile(seconds)
    except ProfileUnderWay:
        raise HttpError(409, "PROFILE_UNDER_WAY") from None
    if form == "folded":
        return _text(folded(taken.stacks))
    # In a thread: a picture of thousands of stacks takes 0.3 s.
    picture = gevent.get_hub().threadpool.apply(draw, (taken.stacks, _title(taken)))
    return Reply(200, _HEADERS, picture.encode("utf-8", "replace"), _SVG)


def _seconds(request: _Request) -> int:
    try:
        seconds = parse_int64(request.params.get("seconds", str(DEFAULT_PROFILE_S)))
    except ValueError:
        seconds = 0
    if seconds not in PROFILE_S:
        raise HttpError(400, "INVALID_ARG_SECONDS")
    return seconds


def _title(taken: Profile) -> str:
    used = f"{taken.cpu_s:.2f} s of processor time ({taken.cpu_s / taken.wall_s:.1%} of a core)"
    return f"{taken.samples} samples in {taken.wall_s:.1f} s; {used}"


# ---- memory


def heap(request: _Request) -> Reply:
    """Show objects by type, largest first; and memory by line, if tracemalloc runs."""
    with _ONE_AT_A_TIME:
        rows = _count_objects(request)
    lines = [
        f"objects: {sum(row.objects for row in rows)}, {sum(row.size_bytes for row in rows)} bytes",
        f"resident: {memory.resident_bytes()} bytes",
        f"\n{'bytes':>14} {'objects':>10}  type",
        *(f"{row.size_bytes:14} {row.objects:10}  {row.name}" for row in rows[:_TYPES_SHOWN]),
    ]
    if tracemalloc.is_tracing():
        lines += ["", "memory by the line that took it", *gevent.get_hub().threadpool.apply(_traced_lines)]
    return _text("\n".join((*lines, "")))


def _count_objects(request: _Request) -> list[TypeRow]:
    pace = Pace()
    census = Census(_roots(request, pace))
    while census.count_some() or census.forget_some():
        pace.rest_if_due()
    return census.rows()


def _roots(request: _Request, pace: Pace) -> list[object]:
    """Return objects from which all others are reachable: the program, its modules, variables of other greenlets."""
    roots: list[object] = [request.app, sys.modules]
    for one in living_greenlets(pace):
        frame = None if one is gevent.getcurrent() else frame_of(one)
        while frame is not None:
            roots.append(frame.f_locals)
            frame = frame.f_back
    return roots


def _traced_lines() -> list[str]:
    """Return the lines that allocated most. The snapshot stops all threads for a while: tracemalloc is for tests."""
    found = tracemalloc.take_snapshot().statistics("lineno")
    return [f"{line.size:14} {line.count:10}  {line.traceback}" for line in found[:_LINES_SHOWN]]


def collector(request: _Request) -> Reply:
    """Return the number and duration of garbage collections."""
    return answers.json(COLLECTIONS.report())


def free_memory(request: _Request) -> Reply:
    """Return unused memory to the system, and tell how much."""
    freed = _FREEING.free(gevent.get_hub().threadpool)
    return _text(f"collected {freed.collected} objects; resident {freed.before_bytes} bytes before, {freed.after_bytes} after\n")


# ---- paths of Go for which Python has no data


def command_line(request: _Request, secrets: Iterable[Setting] = ()) -> Reply:
    """Return the command line of the process; passwords and tokens in it are hidden."""
    return _text("\0".join(shown_words(sys.orig_argv, secrets)))


def symbol(request: _Request) -> Reply:
    """Tell pprof's tools that there are no addresses to look up."""
    return _text("num_symbols: 0\n")


def block(request: _Request) -> Reply:
    """Say that Python has no profile of blocking."""
    return _text("Python has no profile of blocking. /debug/greenlets shows where greenlets wait.\n")


def set_block_rate(request: _Request) -> Reply:
    """Answer 400: with Go's text if `rate` is not a number, else because there is no profile of blocking."""
    rate = request.params.get("rate", "")
    try:
        parse_int64(rate)
    except ValueError:
        return answers.plain(400, f'invalid block rate : strconv.Atoi: parsing "{rate}": {_parse_error(rate)}')
    return answers.plain(400, "Python has no profile of blocking; /debug/greenlets shows where greenlets wait")


def _parse_error(text: str) -> str:
    return "value out of range" if re.fullmatch("[+-]?[0-9]+", text) else "invalid syntax"


def debug_routes(secrets: Iterable[Setting] = ()) -> tuple[Route[Any], ...]:
    """Return the routes under /debug of one daemon, without the index. `secrets`: its settings with secrets."""
    paths = (
        ("GET", "/debug/greenlets", greenlets),
        ("GET", "/debug/pprof/goroutine", greenlets),
        ("GET", "/debug/pprof/threadcreate", threads),
        ("GET", "/debug/pprof/profile", profile),
        ("GET", "/debug/pprof/heap", heap),
        ("GET", "/debug/gc", collector),
        ("GET", "/debug/pprof/cmdline", partial(command_line, secrets=tuple(secrets))),
        ("GET", "/debug/pprof/symbol", symbol),
        ("POST", "/debug/pprof/symbol", symbol),
        ("GET", "/debug/pprof/block", block),
        ("PUT", "/debug/setblockrate", set_block_rate),
        ("POST", "/debug/freememory", free_memory),
    )
    return tuple(Route(method, path, handler, Access.ADMINISTER) for method, path, handler in paths)
