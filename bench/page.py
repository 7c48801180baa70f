"""docs/performance.md and its plots: generated parts from the newest records, between markers.

`python -m bench.page` writes them again without a measurement. The text around the markers is written by hand.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import plot, record, tables
from bench.rows import SUBJECT, Row, in_section, newest_rows
from bench.scenarios import SCENARIOS
from bench.sweeps import SECTIONS, SWEEPS

_ROOT = Path(__file__).resolve().parent.parent
PAGE = _ROOT / "docs" / "performance.md"
IMAGES = PAGE.parent / "images"
MARKED = re.compile(r"(<!-- bench: ([\w-]+) -->\n).*?(<!-- end of bench -->)", re.DOTALL)


class PageError(Exception):
    """The page has a marker that nothing is generated for."""


def parts(records: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, str]:
    """Return the generated text of each marker."""
    rows = newest_rows(records)
    whole = {"newest": tables.newest, "lose": tables.losses, "setups": tables.setups}
    texts = {name: "\n".join(lines(rows)).rstrip() for name, lines in whole.items()}
    for shown, scenarios in ((tables.sweep, SWEEPS), (tables.own, SCENARIOS)):
        for section in dict.fromkeys(scenario.section for scenario in scenarios):
            found = in_section(rows, section, scenarios)
            texts[section] = "\n".join(shown(found)) if found else "*Not measured yet.*"
    return texts


def fill(page: str, texts: dict[str, str]) -> str:
    """Return the page with each marked part replaced. Raises PageError at a marker without a text."""

    def replaced(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        if name not in texts:
            raise PageError(f"docs/performance.md has a marker {name!r}; known are {', '.join(sorted(texts))}")
        return f"{start}\n{texts[name]}\n\n{end}"

    return MARKED.sub(replaced, page)


def _plots(records: Sequence[tuple[Path, dict[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Yield a plot for each section with an axis."""
    rows = newest_rows(records)
    for section in SECTIONS.values():
        found = [row for row in in_section(rows, section.name, SWEEPS) if row.entry["place"] is not None]
        if found:
            yield IMAGES / f"performance-{section.name}.svg", plot.lines(_series(found), section.axis, section.value)


def _series(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    roles = dict.fromkeys(role for row in rows for role in row.roles)
    return {
        (rows[0].ours if role == SUBJECT else role): [
            (row.entry["place"], row.median(role)) for row in rows if role in row.roles
        ]
        for role in roles
    }


def write() -> None:
    """Write the page and its plots from the records in bench/results."""
    records = record.read_all()
    PAGE.write_text(fill(PAGE.read_text(), parts(records)))
    for path, svg in _plots(records):
        path.write_text(svg)


if __name__ == "__main__":
    write()
