"""The times of a schedule."""

from __future__ import annotations

import builtins
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nsqd_py.work import App
from nsqd_py.work.timed.occurrences import BadSchedule, Cron, Every

ZURICH = "Europe/Zurich"
NOON_S = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp())


def local(seconds: int, tz: str = ZURICH) -> str:
    return datetime.fromtimestamp(seconds, ZoneInfo(tz)).strftime("%m-%d %H:%M:%S %Z")


def times(cron: Cron, year: int, month: int, day: int, count: int) -> list[str]:
    """Return the local times of the next occurrences after midnight UTC of this day, each of which follows the one before."""
    found_s = [int(datetime(year, month, day, tzinfo=UTC).timestamp())]
    for _ in range(count):
        found_s.append(cron.next_after(found_s[-1]))
    assert all(cron.includes(each_s) for each_s in found_s[1:])
    return [local(each_s) for each_s in found_s[1:]]


def test_an_interval_is_aligned_to_the_epoch() -> None:
    every = Every(timedelta(minutes=5))
    assert every.next_after(NOON_S) == NOON_S + 300
    assert every.next_after(NOON_S - 0.001) == NOON_S
    assert every.next_after(NOON_S + 299.9) == NOON_S + 300
    assert every.includes(NOON_S)
    assert not every.includes(NOON_S + 60)


@pytest.mark.parametrize("seconds", [0, -5, 0.5, 1.5])
def test_an_interval_is_whole_seconds(seconds: float) -> None:
    with pytest.raises(BadSchedule, match=r"must be whole seconds, at least 1, got"):
        Every(timedelta(seconds=seconds))


def test_cron_is_in_its_time_zone() -> None:
    assert times(Cron("0 3 * * *", ZURICH), 2026, 6, 1, 2) == ["06-01 03:00:00 CEST", "06-02 03:00:00 CEST"]
    cron = Cron("*/20 * * * * *", "UTC")
    assert cron.next_after(NOON_S) == NOON_S + 20
    assert not cron.includes(NOON_S + 1)


def test_a_time_that_the_clocks_skip_runs_at_the_end_of_the_gap() -> None:
    assert times(Cron("30 2 * * *", ZURICH), 2026, 3, 28, 3) == [
        "03-28 02:30:00 CET",
        "03-29 03:00:00 CEST",
        "03-30 02:30:00 CEST",
    ]


def test_a_time_that_comes_twice_runs_once() -> None:
    assert times(Cron("30 2 * * *", ZURICH), 2026, 10, 24, 3) == [
        "10-24 02:30:00 CEST",
        "10-25 02:30:00 CEST",
        "10-26 02:30:00 CET",
    ]
    second_s = int(datetime(2026, 10, 25, 2, 10, tzinfo=ZoneInfo(ZURICH), fold=1).timestamp())
    assert local(Cron("30 2 * * *", ZURICH).next_after(second_s)) == "10-26 02:30:00 CET"


def test_each_half_hour_runs_in_both_hours_that_come_twice() -> None:
    assert times(Cron("*/30 * * * *", ZURICH), 2026, 10, 25, 5) == [
        "10-25 02:30:00 CEST",
        "10-25 02:00:00 CET",
        "10-25 02:30:00 CET",
        "10-25 03:00:00 CET",
        "10-25 03:30:00 CET",
    ]


@pytest.mark.parametrize("tz", [ZURICH, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"])
@pytest.mark.parametrize(
    "expression", ["0 */2 * * *", "15,45 1-3 * * *", "*/7 * * * *", "0 0 1 * *", "30 2 * * SUN"]
)
def test_the_next_occurrence_is_the_same_from_any_time_before_it(tz: str, expression: str) -> None:
    cron = Cron(expression, tz)
    found_s = NOON_S
    for _ in range(250):
        next_s = cron.next_after(found_s)
        assert next_s > found_s
        for between_s in (found_s + 1, (found_s + next_s) // 2, next_s - 1):
            assert cron.next_after(between_s) == next_s, (local(between_s, tz), local(next_s, tz))
        found_s = next_s


@pytest.mark.parametrize("expression", ["", "61 * * * *", "* * * *", "0 0 30 2 *"])
def test_an_expression_that_cannot_be_is_refused(expression: str) -> None:
    with pytest.raises(BadSchedule, match="cron expression "):
        Cron(expression, "UTC")


@pytest.mark.parametrize("tz", ["Europe/Nowhere", "", "../etc/passwd"])
def test_a_time_zone_that_does_not_exist_is_refused(tz: str) -> None:
    with pytest.raises(BadSchedule, match="there is no time zone .*give a name as Europe/Zurich"):
        Cron("* * * * *", tz)


def test_without_cronsim_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **named: Any) -> Any:
        if name == "cronsim":
            raise ImportError(name)
        return real_import(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'nsqd-py\[work\]'"):
        Cron("* * * * *", "UTC")


# ---- declared by an app


def test_an_app_declares_schedules_under_the_names_of_their_functions() -> None:
    app = App(nsqd_tcp_addresses="127.0.0.1:4150")

    @app.every(minutes=5)
    def other() -> None: ...

    @app.cron("0 4 * * *")
    async def clean() -> None: ...

    assert list(app.schedules) == [f"{__name__}.{function.__qualname__}" for function in (other, clean)]


def test_two_schedules_of_one_name_are_refused() -> None:
    app = App(nsqd_tcp_addresses="127.0.0.1:4150")

    def make(seconds: int) -> None:
        @app.every(seconds=seconds)
        def clean() -> None: ...

    make(1)
    with pytest.raises(BadSchedule, match="clean: there is one with this name already: rename a function"):
        make(2)


def test_a_schedule_takes_no_arguments_and_has_an_ascii_name() -> None:
    app = App(nsqd_tcp_addresses="127.0.0.1:4150")
    with pytest.raises(BadSchedule, match=r"clean: it is called without arguments, and needs \(day"):

        @app.every(seconds=1)
        def clean(day: int) -> None: ...

    with pytest.raises(BadSchedule, match="is in a header, which is ASCII: rename the function"):

        @app.every(seconds=1)
        def größer() -> None: ...
