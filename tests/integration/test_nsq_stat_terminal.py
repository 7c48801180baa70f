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

from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
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


def unmarked(line: str) -> str:
    """A line of the table without the letter of its problem."""
    return re.sub(r"^[EWi ] ", "", line)


def cells(terminal: Terminal, name: str) -> list[str]:
    """The cells of a row, without its name."""
    return unmarked(terminal.line_with(f" {name} ")).split()[1:]


def selected(terminal: Terminal) -> str:
    """The name in the selected line."""
    reversed_lines = [line for number, line in enumerate(terminal.lines) if terminal.is_reverse(number)]
    # The first one is the heading.
    return unmarked(reversed_lines[1]).split()[0] if len(reversed_lines) > 1 else ""


def wait_for_depth(terminal: Terminal, name: str, depth: int) -> None:
    terminal.wait_for(lambda: cells(terminal, name)[:1] == [str(depth)], f"a depth of {depth}")


def with_topics(nsqd: NsqdProcess) -> NsqdProcess:
    """It has two topics, of which one has channels."""
    nsqd.create("orders", "archive", "mail")
    nsqd.create("users")
    return nsqd


@pytest.fixture
def busy(nsqd) -> NsqdProcess:
    return with_topics(nsqd)


@pytest.fixture(scope="module")
def quiet(shared_nsqd) -> NsqdProcess:
    """It is only looked at, so one does for many tests."""
    return with_topics(shared_nsqd)


# --- what is seen


def test_the_table_follows_what_happens(busy):
    with shown(*of(busy)) as terminal, busy.connect() as client:
        terminal.wait_for_text("users")
        assert terminal.lines[0].startswith(
            "nsq-stat  nsqd: 1  topics: 2  channels: 2  every 100ms  by topic"
        )
        assert terminal.line_with("topic/channel").split() == ["topic/channel", *HEADS]
        assert [unmarked(line).split()[0] for line in terminal.lines[3:7]] == [
            "orders",
            "archive",
            "mail",
            "users",
        ]
        assert len(terminal.lines) == 24
        assert terminal.lines[23].startswith("q quit")
        assert not terminal.has_cursor

        wait_for_depth(terminal, "archive", 0)
        assert set(cells(terminal, "archive")[5]) == {BARS[0]}
        client.mpub("orders", [b"x"] * 5)
        wait_for_depth(terminal, "archive", 5)
        client.mpub("orders", [b"x"] * 15)
        wait_for_depth(terminal, "archive", 20)
        trend = cells(terminal, "archive")[5]
        assert trend == "".join(sorted(trend)), "the bars rise"
        assert trend[-1] == BARS[7] and BARS[2] in trend  # 5 of 20


def test_growth_and_time_outs_have_colours(busy):
    with shown(*of(busy)) as terminal, busy.connect() as client:
        terminal.wait_for_text("users")
        assert cell(terminal, "depth", "mail") == ("0", "default")

        def grows():
            client.mpub("orders", [b"x"])
            return cell(terminal, "depth", "mail")[1] == YELLOW

        terminal.wait_for(grows, "the colour of growth")
        assert cell(terminal, "trend", "mail") == (BARS[7], YELLOW)
        terminal.wait_for(
            lambda: cell(terminal, "depth", "mail")[1] == RED,
            "growth to end: only the missing consumer is left",
        )
        assert cell(terminal, "trend", "mail") == (BARS[7], GREEN)

        with busy.consumer("orders", "archive", 100, msg_timeout=1000):
            terminal.wait_for(
                lambda: cell(terminal, "t-out", "archive") == ("0", "default"), "the end of the problem"
            )
            terminal.wait_for(lambda: cell(terminal, "t-out", "archive")[1] == RED, "the colour of time-outs")
            assert cell(terminal, "t-out", "archive")[0] != "0"


def test_it_fits_the_size_and_follows_it(nsqd):
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
def with_deep_topics(columns: int, lines: int = 24, count: int = 200) -> Iterator[Terminal]:
    """Show that many topics, of which number 7 has a depth of 1007, and so on."""
    common = {"backend_depth": 0, "message_count": 0, "paused": 0, "channels": []}
    topics = [
        {**common, "topic_name": f"topic{number:03}", "depth": 1000 + number} for number in range(count)
    ]
    body = json.dumps({"start_time": 1, "topics": topics}).encode()
    with WebServer(lambda _: Reply(body=body)) as web:
        address = f"--nsqd-http-address=127.0.0.1:{web.port}"
        with shown(address, "--interval=60s", columns=columns, lines=lines) as terminal:
            yield terminal


@pytest.mark.parametrize(
    ("columns", "lines", "page"),
    [(20, 8, 3), (80, 24, 19), pytest.param(200, 60, 55, marks=pytest.mark.slow)],
)
def test_two_hundred_topics_scroll(columns, lines, page):
    down = max(0, 5 - page)  # the first row when the fifth one is selected
    keys = (  # what is typed, the selected row, and the first one
        ("\x1b[B", 1, 0),
        ("jj\x1b[B", 4, down),
        ("\x1b[A", 3, down),
        ("k", 2, down),
        ("\x1b[6~", 2 + page, down + page),
        ("\x1b[5~", 2, down),
        ("G", 199, 200 - page),
        ("\x1bOA", 198, 200 - page),
        ("g", 0, 0),
        ("\x1b[4~", 199, 200 - page),
        ("\x1b[5~", 199 - page, 200 - 2 * page),
        ("\x1bOH", 0, 0),
    )
    with with_deep_topics(columns, lines) as terminal:

        def shown_depths():
            rows = [unmarked(line).split() for line in terminal.lines if re.match(r"(W )?topic\d", line)]
            return [(cells[0], cells[1]) for cells in rows if len(cells) > 1]

        terminal.wait_for_text("topic000")
        for typed, index, first in keys:
            terminal.type(typed)
            expected = [(f"topic{number:03}", str(1000 + number)) for number in range(first, first + page)]
            terminal.wait_for(lambda expected=expected: shown_depths() == expected, f"topic {first} first")
            terminal.wait_for(
                lambda index=index: selected(terminal) == f"topic{index:03}", f"topic {index} to be selected"
            )


def test_no_figure_is_cut_where_it_is_narrow():
    depths = [str(1000 + number) for number in range(19)]
    with with_deep_topics(20) as terminal:

        def cells_at(place):
            return [(unmarked(line).split()[place:] or [""])[0] for line in terminal.lines[3:22]]

        terminal.wait_for(
            lambda: terminal.line_with("topic007").split() == ["topic007", "1007"], "1007 in 20 columns"
        )
        for columns in (14, 9, 8, 33, 21, 20):
            terminal.resize(columns, 24)
            terminal.wait_for(lambda: cells_at(1) == depths, f"whole depths in {columns} columns")
        terminal.resize(7, 24)
        terminal.wait_for(lambda: cells_at(0) == [f"top…{number:03}" for number in range(19)], "names only")


def test_without_colours_where_they_are_refused(quiet):
    with shown(*of(quiet), NO_COLOR="1") as terminal:
        terminal.wait_for_text("users")
        assert re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.output) is None


def test_who_fails_is_named_and_does_not_delay_the_rest(busy):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = f"127.0.0.1:{silent.getsockname()[1]}"
        failing = ("--nsqd-http-address=127.0.0.1:1", f"--nsqd-http-address={hangs}")
        flags = (*failing, "--http-client-request-timeout=1h")
        with shown(*of(busy), *flags, columns=120) as terminal:
            terminal.wait_for_text("failed: nsqd 127.0.0.1:1: Connection refused")
            terminal.wait_for_text(f"failed: nsqd {hangs}: no answer for ")
            terminal.wait_for_text("users")
            busy.mpub("orders", [b"x"] * 7)
            wait_for_depth(terminal, "archive", 7)


# --- keys, and the end


def test_keys_change_the_order_and_quit(quiet):
    with shown(*of(quiet), "--sort=depth") as terminal:
        terminal.wait_for_text("by depth")
        terminal.type("s", "by growth")
        terminal.type("r", "by -growth")
        terminal.type("xyz\x1b[[A\x1b[15~")  # means nothing
        terminal.type("q")
        assert terminal.wait() == 0
        assert_left_as_it_was(terminal)


def assert_left_as_it_was(terminal: Terminal) -> None:
    assert terminal.output.startswith(OTHER_SCREEN)
    assert terminal.output.rindex(SHOW_CURSOR) > terminal.output.rindex(HIDE_CURSOR)
    assert terminal.output.rindex(FIRST_SCREEN) > terminal.output.rindex(OTHER_SCREEN)
    assert terminal.has_cursor
    assert terminal.settings == terminal.settings_before


@pytest.mark.parametrize(
    ("how", "typed", "view"),
    [
        ("ctrl-c", "", "users"),
        ("SIGHUP", "/ord", "/ord"),
        ("SIGTERM", "\n", "topic orders"),
        ("SIGQUIT", "p", "no problems"),
        ("ctrl-c", "?", "Keys"),
    ],
)
def test_the_terminal_is_left_as_it_was(quiet, how, typed, view):
    with shown(*of(quiet)) as terminal:
        terminal.wait_for_text("users")
        assert terminal.settings != terminal.settings_before  # single keys, no echo
        terminal.type(typed, view)
        if how == "ctrl-c":
            terminal.type("\x03")
        else:
            os.kill(terminal.pid, signal.Signals[how])
        assert terminal.wait() == 0
        assert_left_as_it_was(terminal)


def test_the_filter_shows_what_is_typed(quiet):
    with shown(*of(quiet)) as terminal:
        terminal.wait_for_text("users")
        terminal.type("/MAIq")  # q is a letter here
        terminal.wait_for(lambda: terminal.lines[23] == "/MAIq", "the text")
        terminal.wait_for_text("no topic or channel matches the filter")
        terminal.type("\x7f", "orders/mail")
        assert not terminal.line_with("archive") and not terminal.line_with("users")
        terminal.type("\n", "filter MAI: 1 of 4 rows")
        terminal.type("/\x15u*\n", "filter u*: 1 of 4 rows")  # Ctrl-U; a pattern
        assert selected(terminal) == "users"
        terminal.type("\x1b", "archive")
        assert terminal.lines[23].startswith("q quit")
        terminal.type("/arch")
        terminal.wait_for(lambda: not terminal.line_with("users"), "the filter")
        terminal.type("\x1b")
        terminal.wait_for(
            lambda: terminal.line_with("users") and terminal.lines[23].startswith("q quit"), "no filter"
        )
        terminal.type("q")
        assert terminal.wait() == 0


def test_enter_opens_a_topic_with_its_channels_nsqds_and_clients(make_nsqd):
    nsqd, other = with_topics(make_nsqd()), make_nsqd()
    other.create("orders", "archive")
    with (
        nsqd.consumer("orders", "archive", 2, client_id="worker", user_agent="test/1"),
        nsqd.connect(client_id="shop") as publisher,
        shown(*of(nsqd, other), columns=120, lines=40) as terminal,
    ):
        publisher.mpub("orders", [b"x" * 1000] * 20)
        terminal.wait_for_text("users")
        terminal.type("j\n", "topic orders  nsqd: 2")  # the first channel of orders
        terminal.wait_for_text("worker")
        terminal.wait_for_text("E orders/mail: no consumer: 20 messages wait")
        size = terminal.line_with("disk").partition("disk ")[2].split()[:2]
        assert (20.0 < float(size[0]) < 30.0, size[1]) == (True, "kB")
        first, end = (
            terminal.lines.index(terminal.line_with(text)) for text in ("depth of the last", "topic/channel")
        )
        plot = terminal.lines[first:end]
        assert 3 < len(plot) <= 40 // 3
        assert all("█" in line for line in plot[1:-1])
        assert cells(terminal, "archive")[0] == "18"  # two are in flight
        depths = dict(line.split()[:2] for line in terminal.lines if line.startswith("127.0.0.1:"))
        assert depths == {f"127.0.0.1:{nsqd.http_port}": "38", f"127.0.0.1:{other.http_port}": "0"}
        assert terminal.line_with("worker").split()[:4] == ["worker", "archive", "2", "2"]
        assert "test/1" in terminal.line_with("worker")
        assert terminal.line_with("shop").split()[:3] == ["shop", "(publishes)", "20"]
        other.stop()
        terminal.wait_for_text(f"failed: nsqd 127.0.0.1:{other.http_port}")
        nsqd.post("/topic/delete?topic=orders")
        terminal.wait_for(
            lambda: not terminal.line_with(f"127.0.0.1:{nsqd.http_port} "), "the end of its part"
        )
        terminal.type("\x1b")
        terminal.wait_for(
            lambda: terminal.line_with("users") and not terminal.line_with("orders"), "the table"
        )


def test_problems_with_severity_advice_and_runbook(busy):
    with shown(*of(busy), NO_COLOR="1") as terminal, busy.connect() as client:
        terminal.wait_for_text("users")
        terminal.type("p", "no problems")
        client.mpub("orders", [b"x"] * 4)
        client.mpub("users", [b"x"] * 3)
        terminal.wait_for_text("problems: 2 errors, 1 warning")
        assert terminal.lines[2].split()[:4] == ["error", "orders/archive", "no", "consumer:"]
        assert terminal.lines[4].split()[:4] == ["warning", "users", "no", "channel:"]
        assert terminal.line_with("runbook: docs/runbooks.md#no_consumer")
        terminal.type("G", "runbook: docs/runbooks.md#no_channel")
        assert terminal.line_with("do: Subscribe a consumer.")
        terminal.type("\n", "topic users")
        terminal.type("qq", "2 errors, 1 warning")
        assert terminal.line_with("archive").startswith("E "), "the same without colours"
        assert terminal.line_with("users").startswith("W ")
        assert re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.output) is None
        terminal.type("q")
        assert terminal.wait() == 0


def test_a_row_has_the_colour_of_its_problem(busy):
    with shown(*of(busy)) as terminal, busy.connect() as client, busy.consumer("orders", "archive", 10):
        client.mpub("orders", [b"x"] * 4)
        client.mpub("users", [b"x"] * 3)
        terminal.wait_for(lambda: colour_of_name(terminal, "mail") == RED, "an error")
        terminal.wait_for(lambda: colour_of_name(terminal, "users") == YELLOW, "a warning")
        assert colour_of_name(terminal, "archive") == "default"


def colour_of_name(terminal: Terminal, name: str) -> str:
    row = terminal.lines.index(terminal.line_with(f" {name} "))
    return terminal.colour_at(row, terminal.lines[row].find(name))


def test_an_nsqd_that_is_gone_is_a_problem(make_nsqlookupd, make_nsqd):
    lookupd = make_nsqlookupd()
    lost = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    wait_until(lambda: len(lookupd.nodes()) == 1)
    with shown(f"--lookupd-http-address={lookupd.http_address}") as terminal:
        terminal.wait_for_text("nsqd: 1")
        terminal.type("p", "no problems")
        lost.kill()
        terminal.wait_for_text("gone: does not answer, and no nsqlookupd")
        assert terminal.line_with("gone: ").startswith(f"error   nsqd 127.0.0.1:{lost.http_port}"[:26])


def test_it_waits_for_a_cluster_that_is_away(make_nsqd):
    tcp_port, http_port = free_ports(2)
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{tcp_port}", f"--http-address=127.0.0.1:{http_port}")
    nsqd.create("orders", "archive")
    nsqd.stop()
    with shown(f"--nsqd-http-address=127.0.0.1:{http_port}") as terminal:
        terminal.wait_for_text("failed: nsqd")
        for typed, text in (
            ("p", "node_failed"),
            ("\n", "node_failed"),
            ("?", "Keys"),
            ("q", "node_failed"),
            ("q", "no topic"),
        ):
            terminal.type(typed, text)
        nsqd.start()
        terminal.wait_for_text("archive")
        terminal.wait_for(lambda: not terminal.line_with("failed"), "the failure to end")


def test_a_thousand_topics():
    with with_deep_topics(80, count=1000) as terminal:
        terminal.wait_for_text("… 981 more")
        terminal.type("G")
        terminal.wait_for(lambda: selected(terminal) == "topic999", "the last topic")
        terminal.type("/c5\x7f\x7f77", "topic777")
        terminal.type("\n" + "j" * 10 + "\n", "topic topic773")  # after 077, 177, … 677: 770, 771, 772, 773
        assert sum(psutil.Process(terminal.pid).cpu_times()[:2]) < 10.0
        terminal.resize(30, 9)
        terminal.wait_for(
            lambda: len(terminal.lines[8]) < 31 and terminal.lines[8].startswith("q back"), "the foot"
        )
        terminal.resize(1, 1)
        terminal.type("qq")
        assert terminal.wait() == 0
        assert_left_as_it_was(terminal)


def test_ctrl_z_gives_the_terminal_back_for_a_while(quiet):
    with shown(*of(quiet)) as terminal:
        terminal.wait_for_text("users")
        os.kill(terminal.pid, signal.SIGTSTP)  # no shell leads the session, so ctrl-z itself would be ignored
        terminal.wait_for(lambda: psutil.Process(terminal.pid).status() == psutil.STATUS_STOPPED, "a stop")
        terminal.wait_for(lambda: terminal.has_cursor, "the cursor")
        assert_left_as_it_was(terminal)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.wait_for(lambda: not terminal.has_cursor, "the table")
        terminal.type("s", "by channel")


def test_a_terminal_that_can_do_nothing_gets_lines(quiet):
    with shown(*of(quiet), "--count=1", TERM="dumb") as terminal:
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.output
        assert terminal.line_with("msgs clients | topic/channel")
