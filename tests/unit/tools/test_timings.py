"""Status lines of nsq-to-http and nsq-to-nsq."""

from __future__ import annotations

import os

import pytest

from nsq_tools.timings import TimingsByHost, percentile, status_line
from nsqd_py.runtime.logs import Log


def lines_of(read_end: int) -> list[str]:
    return os.read(read_end, 65536).decode().splitlines()


@pytest.fixture
def log_pipe() -> tuple[int, Log]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    return read_end, Log("", descriptor=write_end)


def test_the_line_is_that_of_gos_tools() -> None:
    took_s = [number / 1000 for number in range(1, 101)]
    line = "[aggregate]: finished 100 - 99th: 100.00ms - 95th: 97.00ms - avg: 50.50ms"
    assert status_line("[aggregate]", list(reversed(took_s))) == line


@pytest.mark.parametrize(
    ("count", "percent", "place"), [(1, 99, 0), (2, 50, 1), (10, 50, 6), (100, 95, 96), (250, 95, 238), (250, 99, 248)]
)
def test_percentiles_take_the_place_that_go_takes(count: int, percent: float, place: int) -> None:
    assert percentile(percent, range(count)) == place


def test_a_line_for_each_host_and_one_for_all(log_pipe: tuple[int, Log]) -> None:
    read_end, log = log_pipe
    timings = TimingsByHost(("a", "b"), 100, log)
    for _ in range(100):
        timings.add("a", 0.001)
        timings.add("b", 0.003)
    starts = [line.partition("INFO: ")[2].partition(" - ")[0] for line in lines_of(read_end)]
    all_hosts = "[aggregate]: finished 100"
    assert starts == [all_hosts, "[a]: finished 100", "[b]: finished 100", all_hosts]


def test_one_host_has_no_line_of_its_own_and_few_values_are_warned_of(log_pipe: tuple[int, Log]) -> None:
    read_end, log = log_pipe
    timings = TimingsByHost(("a",), 2, log)
    for _ in range(3):
        timings.add("a", 0.001)
    warning, line = lines_of(read_end)
    assert "use more than 100 status values for accurate percentiles (configured with 2)" in warning
    assert "[aggregate]: finished 2 -" in line


def test_0_is_silence(log_pipe: tuple[int, Log]) -> None:
    read_end, log = log_pipe
    timings = TimingsByHost(("a", "b"), 0, log)
    timings.add("a", 0.001)
    with pytest.raises(BlockingIOError):
        lines_of(read_end)
