"""What tests that break things count, over all of them: shown at the end of the run, as `make torture` does.

    def test_it(tally: Tally) -> None:
        tally(kills=3, acknowledged=1000, lost=0, doubled=7)

The statistics travel with the report of a test, so they arrive from other processes too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Protocol

import pytest

COLUMNS = ("kills", "faults", "acknowledged", "lost", "doubled")
_PROPERTY = "tally"


class Tally(Protocol):
    """Adds to a test's statistics; may be called several times."""

    def __call__(
        self, *, kills: int = 0, faults: int = 0, acknowledged: int = 0, lost: int = 0, doubled: int = 0
    ) -> None: ...


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    def add(**statistics: int) -> None:
        assert statistics.keys() <= set(COLUMNS), statistics
        request.node.user_properties.append((_PROPERTY, statistics))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each test that counted, whatever its parameters, and the sum."""
    reports = [
        report for category in ("passed", "failed") for report in terminalreporter.getreports(category)
    ]
    rows: dict[str, Counter[str]] = {}
    for name, statistics in sorted(_counted(reports), key=itemgetter(0)):
        rows.setdefault(name, Counter()).update(statistics)
    if rows:
        terminalreporter.section("what was counted")
        for line in table(rows):
            terminalreporter.write_line(line)


def _counted(reports: Iterable[Any]) -> Iterator[tuple[str, dict[str, int]]]:
    for report in reports:
        name = report.nodeid.removeprefix("tests/").partition("[")[0]
        for key, statistics in report.user_properties:
            if key == _PROPERTY and report.when == "call":
                yield name, statistics


def table(rows: dict[str, Counter[str]]) -> Iterator[str]:
    """The lines of the summary."""
    total: Counter[str] = Counter()
    for statistics in rows.values():
        total.update(statistics)
    width = max(map(len, rows))
    yield _line(width, "", COLUMNS)
    for name, statistics in [*rows.items(), ("all", total)]:
        yield _line(width, name, [f"{statistics[column]:,}" for column in COLUMNS])


def _line(width: int, name: str, cells: Iterable[str]) -> str:
    return f"{name:{width}}" + "".join(f"{cell:>13}" for cell in cells)
