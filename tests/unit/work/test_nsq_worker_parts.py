"""The pure parts of nsq-worker: words, pauses, reports, verdicts."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from nsq_tools.worker.child import Link
from nsq_tools.worker.pauses import ENOUGH_S, FIRST_S, MOST_S, RestartPause
from nsq_tools.worker.reports import BOUNDS_S, MOST_LINE_BYTES, HandlerCounts, Lines, Report, add_counts
from nsq_tools.worker.verdict import STUCK_S, Board, ProcessState, problems_of
from nsq_tools.worker.words import parse_words

HANDLER = "shop.bill of orders/billing"
SOME = HandlerCounts(
    "shop.bill", "orders", "billing", 7, 3, 2, 1, 1, 4, 2, 1.5, (5, *[0] * (len(BOUNDS_S) - 1), 5)
)


# ---- words


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ("shop:app", ("run", "shop:app", ())),
        ("check shop.work:app", ("check", "shop.work:app", ())),
        ("run-once shop:api.app bill", ("run-once", "shop:api.app", ("bill",))),
        ("dead list shop:app", ("list", "shop:app", ())),
        ("dead show shop:app 0123456789abcdef", ("show", "shop:app", ("0123456789abcdef",))),
    ],
)
def test_words_ask_for_a_task(words: str, task: tuple[str, str, tuple[str, ...]]) -> None:
    assert parse_words(words.split()) == task


def test_all_takes_the_place_of_ids() -> None:
    assert parse_words(["dead", "replay", "shop:app"], takes_all=True) == ("replay", "shop:app", ())


# ---- pauses


def test_pauses_double_up_to_a_limit() -> None:
    pause = RestartPause()
    pauses = [pause.after(0.1) for _ in range(9)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert (pauses[0], pauses[-1]) == (FIRST_S, MOST_S)


def test_a_process_that_ran_for_a_while_starts_again_soon() -> None:
    pause = RestartPause()
    for _ in range(9):
        pause.after(ENOUGH_S - 0.1)
    assert pause.after(ENOUGH_S - 0.1) == MOST_S
    assert pause.after(ENOUGH_S) == FIRST_S
    assert pause.after(0.1) == 2 * FIRST_S


# ---- reports


def test_a_report_is_read_as_it_was_written() -> None:
    report = Report({HANDLER: SOME}, (HANDLER,), "no\nway", ("shop.mail of mails/shop",), ("no entry",))
    line = report.encode()
    assert line.count(b"\n") == 1
    assert Report.decode(line) == report


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"[1, 2, 3, 4, 5]", b'[{"a": [1]}, [], "", [], []]', b'[{"a": []}, [], "", [], []]', b"{"],
)
def test_what_is_no_report_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        Report.decode(line)


def test_lines_come_in_any_pieces() -> None:
    whole = b"first\n\nthird\nrest"
    for size in range(1, len(whole) + 1):
        lines = Lines()
        found = [line for at in range(0, len(whole), size) for line in lines.feed(whole[at : at + size])]
        assert found == [b"first", b"", b"third"]


def test_a_line_without_an_end_is_refused() -> None:
    lines = Lines()
    lines.feed(b"x" * MOST_LINE_BYTES)
    with pytest.raises(ValueError, match="a line has more than"):
        lines.feed(b"x")


def test_counts_add_up_and_those_of_an_ended_process_stay() -> None:
    sums = add_counts([{HANDLER: SOME.ended()}, {HANDLER: SOME}, {"other": SOME}])
    both = sums[HANDLER]
    assert both[:3] == SOME[:3]
    assert (both.handled, both.failed, both.retried, both.dead_letters, both.timed_out) == (14, 6, 4, 2, 2)
    assert (both.in_flight, both.connections, both.total_s) == (4, 2, 3.0)
    assert (both.durations[0], both.durations[-1], sum(both.durations)) == (10, 10, 20)
    assert sums["other"] == SOME


def test_reports_that_the_parent_does_not_take_are_left_out_as_a_whole() -> None:
    parent, its_end = socket.socketpair()
    with parent, its_end:
        its_end.settimeout(5)  # a link that waited would fail
        link = Link(its_end)
        for number in range(2000):
            link.send(Report({str(number): SOME}, (), "x" * 1000))
        parent.setblocking(False)
        lines = Lines()
        found = lines.feed(received(parent))
        link.send(Report({}, (), "the end of one that has left in part"))
        link.send(Report({}, (), "the last one"))
        found += lines.feed(received(parent))
        assert 10 < len(found) < 2000
        assert [Report.decode(line).failure for line in found] == ["x" * 1000] * (len(found) - 1) + [
            "the last one"
        ]
        assert [int(next(iter(Report.decode(line).handlers))) for line in found[:-1]] == list(
            range(len(found) - 1)
        )


def received(sock: socket.socket) -> bytes:
    data = b""
    with suppress(BlockingIOError):
        while True:
            data += sock.recv(1 << 20)
    return data


def test_a_link_takes_orders_and_sees_the_end_of_the_parent() -> None:
    parent, its_end = socket.socketpair()
    with its_end:
        link = Link(its_end)
        assert link.orders() == []
        parent.send(b'{"stop": 45.0}\n{"stop": 0}\n{"st')
        assert link.orders() == [45.0, 0.0]
        parent.close()
        assert link.orders() is None


# ---- verdicts


def state(**changes: object) -> ProcessState:
    running = ProcessState(2, 123, "", 100.0, Report({HANDLER: SOME}))
    return running._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, []),
        (
            {"pid": 0, "why": "(pid 9) was ended by SIGKILL after 3.0 s"},
            ["process 2 does not run: (pid 9) was ended by SIGKILL after 3.0 s"],
        ),
        ({"reported_s": None}, ["process 2 (pid 123) is starting"]),
        (
            {"reported_s": 100.0 - STUCK_S - 2},
            ["process 2 (pid 123) has not reported for 7 s: it hangs, or has no processor time"],
        ),
        ({"reported_s": 100.0 - STUCK_S}, []),
        (
            {"report": Report({}, (HANDLER,))},
            ["process 2 (pid 123): the consumer of shop.bill of orders/billing has stopped"],
        ),
        (
            {"report": Report({}, (), "", (HANDLER,))},
            [
                "process 2 (pid 123): calls over their time limit take all places of "
                "shop.bill of orders/billing"
            ],
        ),
        ({"report": Report({}, (), "no more")}, ["process 2 (pid 123): no more"]),
    ],
)
def test_a_process_is_healthy_or_the_reason_is_said(changes: dict[str, object], says: list[str]) -> None:
    board = Board((state(number=1), state(**changes)))
    assert problems_of(board, 100.0) == says


def test_a_worker_that_starts_or_stops_is_not_healthy() -> None:
    assert problems_of(Board(), 100.0) == ["the worker is starting"]
    assert problems_of(Board((state(),), is_stopping=True), 100.0) == ["the worker is stopping"]
