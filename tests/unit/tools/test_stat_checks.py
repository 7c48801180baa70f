"""What `nsq-stat --check` reports."""

from __future__ import annotations

import pytest

from nsq_tools.stat.rows import Filter, Name, problems_of
from tests.unit.tools.stat_rows import row

ROWS = [
    row("orders", depth=3),
    row("orders", "archive", depth=2),
    row("orders", "billing", depth=9, clients=1),
    row("orders", "idle"),
    row("orders", "mail", depth=4, is_paused=True),
    row("alone", depth=1),
    row("held", is_paused=True),
]


@pytest.mark.parametrize(
    ("patterns", "problems"),
    [
        (
            [],
            [
                "orders/archive: no consumer, 2 waiting",
                "orders/mail: paused, 4 waiting",
                "alone: no channel, 1 waiting",
                "held: paused, 0 waiting",
                "lost: listed by an nsqlookupd, but no nsqd has it",
            ],
        ),
        (["orders/*"], ["orders/archive: no consumer, 2 waiting", "orders/mail: paused, 4 waiting"]),
        (["lost"], ["lost: listed by an nsqlookupd, but no nsqd has it"]),
        (["billing", "idle"], []),
    ],
)
def test_what_is_paused_without_consumer_or_gone(patterns: list[str], problems: list[str]) -> None:
    assert list(problems_of(ROWS, [Name("lost")], Filter(patterns))) == problems


def test_each_nsqd_is_checked_by_itself() -> None:
    rows = [row("t", "c", node="a:1", depth=1, clients=1), row("t", "c", node="b:1", depth=2), row("t", node="b:1", depth=5)]
    assert list(problems_of(rows, [], Filter())) == ["t/c on b:1: no consumer, 2 waiting"]
