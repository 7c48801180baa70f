"""nsq-stat's filters and orders, and the checks of its options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsq_tools.stat.options import form_of
from nsq_tools.stat.program import PROGRAM
from nsq_tools.stat.reports import check as check_options
from nsq_tools.stat.rows import BadPattern, Filter, Name, Order, Row, TypedFilter, select_live
from nsqd_py.cluster.counts import Rates
from tests.unit.tools.stat_rows import row

# --- filters


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("orders", {"orders", "orders/archive", "orders/mail"}),
        ("o*", {"orders", "orders/archive", "orders/mail"}),
        ("archive", {"orders/archive", "users/archive"}),
        ("*/archive", {"orders/archive", "users/archive"}),
        ("orders/*", {"orders/archive", "orders/mail"}),
        ("u[rs]ers", {"users", "users/archive"}),
        ("*", {"orders", "orders/archive", "orders/mail", "users", "users/archive"}),
        ("/^o.*e$/", {"orders/archive"}),
        ("/^mail$/", {"orders/mail"}),
        ("/s/a/", {"orders/archive", "users/archive"}),
        ("ORDERS", set()),
        ("rder", set()),
    ],
)
def test_patterns_match_topics_channels_or_both(pattern: str, shown: set[str]) -> None:
    names = [
        Name("orders"),
        Name("orders", "archive"),
        Name("orders", "mail"),
        Name("users"),
        Name("users", "archive"),
    ]
    assert {str(name) for name in names if Filter([pattern]).shows(name)} == shown


def test_a_bad_expression_is_refused() -> None:
    with pytest.raises(BadPattern, match=r"/x\(/ is not a regular expression"):
        Filter(["/x(/"])


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("rder", {"orders", "orders/Mail"}),
        ("MAIL", {"orders/Mail", "users/mail"}),
        ("s/m", {"orders/Mail", "users/mail"}),
        ("u*", {"users", "users/mail"}),
        ("/^o/", {"orders", "orders/Mail"}),
        ("/x(/", set()),  # not yet an expression
        ("/", {"orders/Mail", "users/mail"}),
        ("x", set()),
    ],
)
def test_a_typed_filter_is_a_part_or_a_pattern(typed: str, shown: set[str]) -> None:
    names = [Name("orders"), Name("orders", "Mail"), Name("users"), Name("users", "mail")]
    assert {str(name) for name in names if TypedFilter(typed).shows(name)} == shown


# --- order


def names(rows: list[Row]) -> list[str]:
    return [str(row.name) for row in rows]


def test_names_go_from_a_to_z_and_numbers_from_the_largest() -> None:
    rows = [row("b", "x", depth=1), row("a", "z", depth=3), row("b", depth=2)]
    assert names(Order.parse("topic").arrange(rows)) == ["a/z", "b", "b/x"]
    assert names(Order.parse("-topic").arrange(rows)) == ["b/x", "b", "a/z"]
    assert names(Order.parse("channel").arrange(rows)) == ["b", "b/x", "a/z"]
    assert names(Order.parse("depth").arrange(rows)) == ["a/z", "b", "b/x"]
    assert names(Order.parse("-depth").arrange(rows)) == ["b/x", "b", "a/z"]


def test_rates_that_are_not_known_come_last() -> None:
    rows = [row("new"), row("slow", rates=Rates(messages=1)), row("fast", rates=Rates(messages=9))]
    assert names(Order.parse("in").arrange(rows)) == ["fast", "slow", "new"]


def test_disk_is_a_size_in_the_live_table_and_a_count_in_reports() -> None:
    rows = [
        replace(row("small", backend_depth=9), log_bytes=1),
        replace(row("large", backend_depth=1), log_bytes=2),
        row("large", "channel", backend_depth=5),
    ]
    assert names(select_live(rows, Filter(), "", Order.parse("disk"))) == ["large", "small", "large/channel"]
    assert names(Order.parse("disk").arrange(rows)) == ["small", "large/channel", "large"]
    assert names(select_live(rows, Filter(["large"]), "CHAN", Order())) == ["large/channel"]


# --- options


NSQD = "--nsqd-http-address=127.0.0.1:4151"


def test_gos_command_line_is_read() -> None:
    argv = "-topic t -channel c -interval 3s -count 5 -nsqd-http-address a:1 -nsqd-http-address b:2"
    options = PROGRAM.read(argv.split())
    check_options(options)
    assert (options.topic, options.channel, options.interval_ns, options.count) == (
        "t",
        "c",
        3_000_000_000,
        5,
    )
    assert options.nsqd_http_address == ("a:1", "b:2")
    assert options.http_client_connect_timeout_ns == 2_000_000_000
    assert options.http_client_request_timeout_ns == 5_000_000_000


@pytest.mark.parametrize(
    ("argv", "on_terminal", "form"),
    [
        ([], True, "live"),
        ([], False, "go"),
        (["--once"], True, "table"),
        (["--once"], False, "table"),
        (["--format=csv"], True, "csv"),
        (["--once", "--format=JSON"], False, "json"),
    ],
)
def test_the_form_of_reports_follows_the_place(argv: list[str], on_terminal: bool, form: str) -> None:
    assert form_of(PROGRAM.read([NSQD, *argv]), on_terminal=on_terminal) == form
