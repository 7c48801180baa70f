"""When to try again, and when to say so."""

from __future__ import annotations

from nsqd_py.runtime.logs.outages import Backoff, OutageLog


def delays(backoff: Backoff, count: int) -> list[float]:
    """What each of `count` failures in a row makes wait."""
    waits = []
    for _ in range(count):
        backoff.failed(1000.0)
        waits.append(round(backoff.wait_s(1000.0), 6))
    return waits


def test_delays_double_up_to_the_most() -> None:
    backoff = Backoff(0.1, 5.0, lambda: 0.0)
    assert backoff.wait_s(1000.0) == 0.0
    assert delays(backoff, 8) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    backoff.reset()
    assert delays(backoff, 2) == [0.1, 0.2]


def test_delays_are_up_to_a_quarter_shorter() -> None:
    assert delays(Backoff(0.1, 5.0, lambda: 1.0), 3) == [0.075, 0.15, 0.3]


def test_time_that_passed_counts() -> None:
    backoff = Backoff(0.1, 5.0, lambda: 0.0)
    backoff.failed(1000.0)
    assert round(backoff.wait_s(1000.0625), 6) == 0.0375
    assert backoff.wait_s(1001.0) == 0.0


class Lines:
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, text: str, *args: object) -> None:
        self.lines.append("ERROR " + text % args)

    def info(self, text: str, *args: object) -> None:
        self.lines.append("INFO " + text % args)


def test_an_outage_is_logged_once_a_minute_and_its_end() -> None:
    log = Lines()
    now_s = [0.0]
    outage = OutageLog(log, lambda: now_s[0])  # type: ignore[arg-type]
    outage.end("never said")
    for now_s[0] in (0.0, 1.0, 59.0, 60.0, 61.0):
        outage.report("at %d", now_s[0])
        assert outage.is_on
    outage.end("over")
    assert not outage.is_on
    now_s[0] = 62.0
    outage.report("again")
    assert log.lines == ["ERROR at 0", "ERROR at 60", "INFO over", "ERROR again"]
