"""nsq-stat's live table, as one sees it on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.terminal import Terminal, on_terminal
from tests.support.web_server import Reply, WebServer

FAST = "--interval=100ms"
HEADS = ["depth", "in/s", "out/s", "t-out", "age", "trend", "flight", "defer", "requ"]
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
OTHER_SCREEN, FIRST_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
# pyte's names; it calls yellow so.
GREEN, YELLOW, RED = "green", "brown", "red"
BARS = "▁▂▃▄▅▆▇█"


def of(*nsqds: NsqdProcess) -> list[str]:
    return [f"--nsqd-http-address=127.0.0.1:{nsqd.http_port}" for nsqd in nsqds]


def cell(terminal: Terminal, title: str, name: str) -> tuple[str, str]:
    """The last character of a cell, and its colour."""
    return terminal.cell_below("topic/channel", title, name)


@contextlib.contextmanager
def shown(*flags: str, columns: int = 80, lines: int = 24, **environment: str) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "nsq_apps", "nsq_stat", FAST, *flags]
    with on_terminal(command, columns, lines, **environment) as terminal:
        terminal.wait_for_text("topic/channel")
        yield terminal


def cells(terminal: Terminal, name: str) -> list[str]:
    """The cells of a row, without its name."""
    return terminal.line_with(name).split()[1:]


def depth_of(terminal: Terminal, name: str) -> str:
    found = cells(terminal, name)
    return found[0] if found else ""


def with_topics(nsqd: NsqdProcess) -> NsqdProcess:
    """It has two topics, of which one has channels."""
    nsqd.create("orders", "archive", "mail")
    nsqd.create("users")
    return nsqd


@pytest.fixture
def busy(nsqd: NsqdProcess) -> NsqdProcess:
    return with_topics(nsqd)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """It is only looked at, so one does for many tests."""
    process = NsqdProcess(tmp_path_factory.mktemp("quiet") / "nsqd")
    yield with_topics(process.start())
    process.destroy()


# --- what is seen


def test_the_table_follows_what_happens(busy: NsqdProcess) -> None:
    with shown(*of(busy)) as terminal, busy.connect() as client:
        terminal.wait_for_text("users")
        assert terminal.lines[0].startswith("nsq-stat  nsqd: 1  topics: 2  channels: 2  every 100ms  by topic")
        assert terminal.line_with("topic/channel").split() == ["topic/channel", *HEADS]
        assert [line.split()[0] for line in terminal.lines[3:7]] == ["orders", "archive", "mail", "users"]
        assert len(terminal.lines) == 24
        assert terminal.lines[23].startswith("q quit")
        assert not terminal.has_cursor

        terminal.wait_for(lambda: depth_of(terminal, "archive") == "0", "a depth of 0")
        assert set(cells(terminal, "archive")[5]) == {BARS[0]}
        client.mpub("orders", [b"x"] * 5)
        terminal.wait_for(lambda: depth_of(terminal, "archive") == "5", "a depth of 5")
        client.mpub("orders", [b"x"] * 15)
        terminal.wait_for(lambda: depth_of(terminal, "archive") == "20", "a depth of 20")
        trend = cells(terminal, "archive")[5]
        assert trend == "".join(sorted(trend)), "the bars rise"
        assert trend[-1] == BARS[7] and BARS[2] in trend  # 5 of 20


def test_growth_and_time_outs_have_colours(busy: NsqdProcess) -> None:
    with shown(*of(busy)) as terminal, busy.connect() as client:
        terminal.wait_for_text("users")
        assert cell(terminal, "depth", "mail") == ("0", "default")

        def grows() -> bool:
            client.mpub("orders", [b"x"])
            return cell(terminal, "depth", "mail")[1] == YELLOW

        terminal.wait_for(grows, "the colour of growth")
        assert cell(terminal, "trend", "mail") == (BARS[7], YELLOW)
        terminal.wait_for(lambda: cell(terminal, "depth", "mail")[1] == "default", "growth to end")
        assert cell(terminal, "trend", "mail") == (BARS[7], GREEN)

        with busy.connect(msg_timeout=1000) as consumer:
            consumer.sub("orders", "archive", 100)
            terminal.wait_for(lambda: cell(terminal, "t-out", "archive")[1] == RED, "the colour of time-outs")
            assert cell(terminal, "t-out", "archive")[0] != "0"


def test_it_fits_the_size_and_follows_it(nsqd: NsqdProcess) -> None:
    for number in range(40):
        nsqd.create(f"topic{number:02}", "archive")
    with shown(*of(nsqd), "--interval=60s") as terminal:  # no report comes between
        terminal.wait_for_text("… 61 more")
        assert terminal.lines[22] == "… 61 more"
        terminal.resize(200, 50)
        terminal.wait_for_text("… 35 more")
        more = ["conn", "drain", "disk", "total"]
        assert terminal.line_with("topic/channel").split() == ["topic/channel", *HEADS, *more]
        assert len(terminal.line_with("topic/channel")) > 150
        terminal.resize(40, 6)
        terminal.wait_for_text("… 79 more")
        assert terminal.line_with("topic/channel").split() == ["topic/channel", "depth", "in/s", "out/s"]
        assert terminal.lines[4] == "… 79 more"


@contextlib.contextmanager
def with_deep_topics(columns: int, lines: int = 24) -> Iterator[Terminal]:
    """Show 200 topics, of which number 7 has a depth of 1007, and so on."""
    names = ("backend_depth", "message_count", "paused")
    topics = [
        {**dict.fromkeys(names, 0), "topic_name": f"topic{number:03}", "depth": 1000 + number, "channels": []}
        for number in range(200)
    ]
    body = json.dumps({"start_time": 1, "topics": topics}).encode()
    with WebServer(lambda _: Reply(body=body)) as web:
        address = f"--nsqd-http-address=127.0.0.1:{web.port}"
        with shown(address, "--interval=60s", columns=columns, lines=lines) as terminal:
            yield terminal


def first_row(terminal: Terminal) -> str:
    """The name in the line below the head of the table."""
    head = next(number for number, line in enumerate(terminal.lines) if line.startswith(("topic/", "topic…")))
    return (terminal.lines[head + 1].split() or [""])[0]


@pytest.mark.parametrize(
    ("columns", "lines", "page"), [(20, 8, 3), (80, 24, 19), pytest.param(200, 60, 55, marks=pytest.mark.slow)]
)
def test_two_hundred_topics_scroll(columns: int, lines: int, page: int) -> None:
    keys = (
        ("\x1b[B", 1),
        ("\x1b[B" * 3, 4),
        ("\x1b[A", 3),
        ("\x1b[6~", 3 + page),
        ("\x1b[5~", 3),
        ("\x1b[F", 200 - page),
        ("\x1bOA", 199 - page),
        ("\x1b[1~", 0),
        ("\x1b[4~", 200 - page),
        ("\x1b[5~", 200 - 2 * page),
        ("\x1bOH", 0),
    )
    with with_deep_topics(columns, lines) as terminal:

        def shown_depths() -> list[tuple[str, str]]:
            rows = [line.split() for line in terminal.lines if re.match(r"topic\d", line)]
            return [(cells[0], cells[1]) for cells in rows if len(cells) > 1]

        terminal.wait_for(lambda: first_row(terminal) == "topic000", "the first topic")
        for typed, first in keys:
            terminal.type(typed)
            expected = [(f"topic{number:03}", str(1000 + number)) for number in range(first, first + page)]
            terminal.wait_for(lambda expected=expected: shown_depths() == expected, f"topic {first} first")


def test_no_figure_is_cut_where_it_is_narrow() -> None:
    depths = [str(1000 + number) for number in range(19)]
    with with_deep_topics(20) as terminal:

        def cells_at(place: int) -> list[str]:
            return [(line.split()[place:] or [""])[0] for line in terminal.lines[3:22]]

        terminal.wait_for(lambda: terminal.line_with("topic007").split() == ["topic007", "1007"], "1007 in 20 columns")
        for columns in (14, 9, 8, 33, 21, 20):
            terminal.resize(columns, 24)
            terminal.wait_for(lambda: cells_at(1) == depths, f"whole depths in {columns} columns")
        terminal.resize(7, 24)
        terminal.wait_for(lambda: cells_at(0) == [f"top…{number:03}" for number in range(19)], "names only")


def test_without_colours_where_they_are_refused(quiet: NsqdProcess) -> None:
    with shown(*of(quiet), NO_COLOR="1") as terminal:
        terminal.wait_for_text("users")
        assert re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.output) is None


def test_who_fails_is_named_and_does_not_delay_the_rest(busy: NsqdProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = f"127.0.0.1:{silent.getsockname()[1]}"
        failing = ("--nsqd-http-address=127.0.0.1:1", f"--nsqd-http-address={hangs}")
        flags = (*failing, "--http-client-request-timeout=1h")
        with shown(*of(busy), *flags, columns=120) as terminal:
            terminal.wait_for_text("failed: nsqd 127.0.0.1:1: Connection refused")
            terminal.wait_for_text(f"failed: nsqd {hangs}: no answer for ")
            terminal.wait_for_text("users")
            with busy.connect() as client:
                client.mpub("orders", [b"x"] * 7)
            terminal.wait_for(lambda: depth_of(terminal, "archive") == "7", "news")


# --- keys, and the end


def test_keys_change_the_order_and_quit(quiet: NsqdProcess) -> None:
    with shown(*of(quiet), "--sort=depth") as terminal:
        terminal.wait_for_text("by depth")
        terminal.type("s")
        terminal.wait_for_text("by growth")
        terminal.type("r")
        terminal.wait_for_text("by -growth")
        terminal.type("xyz")  # means nothing
        terminal.type("q")
        assert terminal.wait() == 0
        assert_left_as_it_was(terminal)


def assert_left_as_it_was(terminal: Terminal) -> None:
    assert terminal.output.startswith(OTHER_SCREEN)
    assert terminal.output.rindex(SHOW_CURSOR) > terminal.output.rindex(HIDE_CURSOR)
    assert terminal.output.rindex(FIRST_SCREEN) > terminal.output.rindex(OTHER_SCREEN)
    assert terminal.has_cursor
    assert terminal.settings == terminal.settings_before


@pytest.mark.parametrize("how", ["ctrl-c", "SIGHUP"])
def test_the_terminal_is_left_as_it_was(quiet: NsqdProcess, how: str) -> None:
    with shown(*of(quiet)) as terminal:
        terminal.wait_for_text("users")
        assert terminal.settings != terminal.settings_before  # single keys, no echo
        if how == "ctrl-c":
            terminal.type("\x03")
        else:
            os.kill(terminal.pid, signal.Signals[how])
        assert terminal.wait() == 0
        assert_left_as_it_was(terminal)


def test_ctrl_z_gives_the_terminal_back_for_a_while(quiet: NsqdProcess) -> None:
    with shown(*of(quiet)) as terminal:
        terminal.wait_for_text("users")
        os.kill(terminal.pid, signal.SIGTSTP)  # no shell leads the session, so ctrl-z itself would be ignored
        terminal.wait_for(lambda: psutil.Process(terminal.pid).status() == psutil.STATUS_STOPPED, "a stop")
        terminal.wait_for(lambda: terminal.has_cursor, "the cursor")
        assert_left_as_it_was(terminal)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.wait_for(lambda: not terminal.has_cursor, "the table")
        terminal.type("s")
        terminal.wait_for_text("by channel")


def test_a_terminal_that_can_do_nothing_gets_lines(quiet: NsqdProcess) -> None:
    with shown(*of(quiet), "--count=1", TERM="dumb") as terminal:
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.output
        assert terminal.line_with("msgs clients | topic/channel")
