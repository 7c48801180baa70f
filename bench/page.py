"""The generated parts of docs/performance.md: tables from the newest records, between markers.

`python -m bench.page` writes them again without a measurement. The text around the markers is written by hand. A row is
taken from the newest full record that has it; from a quick one only if no full one has it.
"""

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import plot, record
from bench.peers.setups import IN_MEMORY, SETUPS
from bench.scenario import Scenario
from bench.scenarios import SCENARIOS
from bench.sweeps import SECTIONS, SWEEPS

_ROOT = Path(__file__).resolve().parent.parent
PAGE = _ROOT / "docs" / "performance.md"
IMAGES = PAGE.parent / "images"

SUBJECT, PEER = "subject", "peer"
MARKED = re.compile(r"(<!-- bench: ([\w-]+) -->\n).*?(<!-- end of bench -->)", re.DOTALL)
_BUSY_GENERATOR_CORES = 0.9
_BUSY_MACHINE_CORES = 0.2
_LIMITS = ("limit", "limit, synced")
_TITLES = {"neutral": "By another generator"}
_OTHER_LIBRARIES = ("ansq", "gnsq", "pynsq")


class PageError(Exception):
    """The page has a marker that nothing is generated for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a record, and the record."""

    entry: dict[str, Any]
    content: dict[str, Any]

    @property
    def roles(self) -> list[str]:
        """The subject, then its peers in the order of the setups."""
        order = [SUBJECT, *list(self.entry["setups"])[1:], PEER]
        return [role for role in order if self.entry["runs"].get(role)]

    @property
    def ours(self) -> str:
        return next(iter(self.entry["setups"]), "ours")

    def median(self, role: str) -> float:
        return float(statistics.median(run["value"] for run in self.entry["runs"][role]))

    def detail(self, role: str, name: str) -> float | None:
        """Return the median of a detail of the runs; None if they do not have it."""
        values = [run["details"][name] for run in self.entry["runs"].get(role, ()) if name in run["details"]]
        return statistics.median(values) if values else None

    def ratio(self, role: str) -> float:
        return float(self.entry["median_ratios"][role])

    def spread(self, role: str) -> str:
        ratios = self.entry["ratios"][role]
        return f"{self.ratio(role):.2f} × ({min(ratios):.2f}–{max(ratios):.2f})"

    @property
    def name(self) -> str:
        return str(self.entry["scenario"])

    @property
    def section(self) -> str:
        return str(self.entry["section"])


Rows = dict[tuple[str, str], Row]


def newest_rows(records: Sequence[tuple[Path, dict[str, Any]]]) -> Rows:
    """Return the newest row of each scenario, of records that are sorted with the newest first."""
    found: Rows = {}
    known = {(scenario.section, scenario.label) for scenario in (*SWEEPS, *SCENARIOS)}
    full_ones_first = sorted((content for _, content in records), key=lambda content: content["kind"] != "full")
    for content in full_ones_first:
        for entry in content["results"]:
            name = (entry["section"], entry["scenario"])
            if name in known and entry["runs"].get(SUBJECT):
                found.setdefault(name, Row(entry, content))
    return found


def in_section(rows: Rows, section: str, scenarios: Iterable[Scenario]) -> list[Row]:
    """Return the section's rows in the order of the scenarios."""
    names = [scenario.label for scenario in scenarios if scenario.section == section]
    return [rows[section, name] for name in names if (section, name) in rows]


def number(value: float) -> str:
    """Return three digits: 1.52 M, 75.3 k, 412, 0.0362."""
    for step, prefix in ((1e6, " M"), (1e3, " k")):
        if value >= step:
            return f"{value / step:.3g}{prefix}" if value < 1000 * step else f"{value / step:,.0f}{prefix}"
    return f"{value:.3g}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return the roles of all rows, the subject first."""
    return list(dict.fromkeys(role for row in rows for role in row.roles))


def _sweep(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the section of a sweep: figures with ratios, then the processor time."""
    section = SECTIONS[rows[0].section]
    columns = _columns(rows)
    names = [rows[0].ours if role == SUBJECT else role for role in columns]
    yield f"### {section.title}"
    yield ""
    yield f"{section.text} The figures are {section.value}; the ratio says how many times better {rows[0].ours} is."
    yield ""
    head = [section.axis or "load", *names]
    yield from table(head, ([row.name, *(_cell(row, role) for role in columns)] for row in rows))
    yield ""
    if any(_is_held_back(row, role) for row in rows for role in columns):
        yield "† The generator used its processor fully; the server alone could do more."
        yield ""
    late_ms = [late for row in rows for role in columns if (late := row.detail(role, "generator_late_p99_ms"))]
    if late_ms:
        yield f"99 % of the requests left at most {number(max(late_ms))} ms late, which the latencies contain."
        yield ""
    if any(row.detail(SUBJECT, "age_p99_ms") for row in rows):
        yield "From nsqd's timestamp to the consumer, 50th / 99th percentile in ms, and publishes a second meanwhile:"
        yield ""
        yield from table(head, ([row.name, *(_ages(row, role) for role in columns)] for row in rows))
        yield ""
    if any(row.detail(SUBJECT, "server_cpu_us") for row in rows):
        yield "Processor time of the server, user and system, in microseconds a message:"
        yield ""
        yield from table(head, ([row.name, *(_cpu(row, role) for role in columns)] for row in rows))
        yield ""
    if rows[0].entry["unit"] == "s":
        yield "Processor time of the server until then, user and system, in seconds:"
        yield ""
        yield from table(head, ([row.name, *(_cpu_s(row, role) for role in columns)] for row in rows))
        yield ""
    if section.axis:
        yield f"![{section.title}](images/performance-{section.name}.svg)"
        yield ""
    yield from _failures(rows)
    yield _source(rows)


def _cell(row: Row, role: str) -> str:
    if role not in row.roles:
        return "–"
    figure = number(row.median(role)) if row.detail(role, "p50_ms") is None else _percentiles(row, role)
    if _is_held_back(row, role):
        figure += " †"
    return figure if role == SUBJECT else f"{figure}; {row.spread(role)}"


def _percentiles(row: Row, role: str) -> str:
    values = (row.detail(role, f"{name}_ms") for name in ("p50", "p99", "p999"))
    return " / ".join(number(value) for value in values if value is not None)


def _ages(row: Row, role: str) -> str:
    values = [row.detail(role, name) for name in ("age_p50_ms", "age_p99_ms", "published_per_s")]
    if None in values:
        return "–"
    middle, late, published = (number(value) for value in values if value is not None)
    return f"{middle} / {late}; {published}"


def _cpu(row: Row, role: str) -> str:
    value = row.detail(role, "server_cpu_us")
    return "–" if value is None else number(value)


def _cpu_s(row: Row, role: str) -> str:
    runs = row.entry["runs"].get(role)
    return f"{statistics.median(run['server_cpu_s'] for run in runs):.2f}" if runs else "–"


def _is_held_back(row: Row, role: str) -> bool:
    """True if the generator used its processor fully, and the server did not."""
    generator, server = row.detail(role, "generator_cores"), row.detail(role, "server_cores")
    return generator is not None and server is not None and generator > _BUSY_GENERATOR_CORES > server


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for role, text in row.entry["failures"].items():
            yield f"- {row.name}, {role}: {text}"
    if any(row.entry["failures"] for row in rows):
        yield ""


def _source(rows: Sequence[Row]) -> str:
    """Return where the figures come from, in a paragraph for each record."""
    records: dict[str, list[Row]] = {}
    for row in rows:
        records.setdefault(row.content["recorded_at"], []).append(row)
    return "\n\n".join(map(_record_line, records.values()))


def _record_line(rows: Sequence[Row]) -> str:
    """Return where the rows of one record come from, and whether the machine had other work."""
    content, machine = rows[0].content, rows[0].content["machine"]
    rounds = max(len(row.entry["runs"][SUBJECT]) for row in rows)
    others = statistics.median(_others_cores(row) for row in rows)
    busy = f" Other processes used {others:.1f} of the cores meanwhile." if others > _BUSY_MACHINE_CORES else ""
    return (
        f"*Commit {content['commit']}, {content['date']}, {machine['cpu']}, {machine['cores']} cores, medians of "
        f"{rounds} alternating run{'s' * (rounds > 1)}: `{content['command']}`.{busy}*"
    )


def _others_cores(row: Row) -> float:
    """Return how many processors other processes used during the runs, as a median."""
    runs = [run for some in row.entry["runs"].values() for run in some]
    return float(statistics.median(run["others_cpu_s"] / run["elapsed_s"] for run in runs))


def _own(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of one of our programs beside another."""

    def line(row: Row) -> list[str]:
        unit = row.entry["unit"]
        figures = [f"{number(row.median(role))} {unit}" if role in row.roles else "" for role in (SUBJECT, PEER)]
        return [f"`{row.name}`", *figures, row.spread(PEER) if PEER in row.roles else "", _limits(row.entry)]

    yield from table(["row", "ours", "the other", "ratio", "required"], (line(row) for row in rows))
    yield ""
    yield from _failures(rows)
    yield _source(rows)


def _limits(entry: dict[str, Any]) -> str:
    words = (("at_least", "≥ {} ×"), ("below", "< {} {}"), ("above", "≥ {} {}"))
    return ", ".join(text.format(number(entry[key]), entry["unit"]) for key, text in words if entry[key] is not None)


def _losses(rows: Rows) -> Iterator[str]:
    """Yield each row in which peers are better than ours, the worst first."""
    lost = [(row, peers) for row in rows.values() if (peers := _better_peers(row))]
    if not lost:
        yield "Nowhere."
        return

    def line(row: Row, peers: list[str]) -> list[str]:
        title = SECTIONS[row.section].title if row.section in SECTIONS else _TITLES.get(row.section, row.section)
        ours = f"{number(row.median(SUBJECT))} {row.entry['unit']}"
        return [f"{title}: {row.name}", ours, "; ".join(_loss(row, role) for role in peers)]

    lost.sort(key=lambda one: one[0].ratio(one[1][0]))
    yield "In bold: in every round."
    yield ""
    yield from table(["row", "ours", "who is better"], (line(*one) for one in lost))


def _better_peers(row: Row) -> list[str]:
    """Return the peers that are better than ours, the best first."""
    peers = [role for role in row.roles if role != SUBJECT and role not in _LIMITS and row.ratio(role) < 1]
    return sorted((role for role in peers if not _is_ours(row, role)), key=row.ratio)


def _is_ours(row: Row, role: str) -> bool:
    """True if the peer is our own program in another setting."""
    return role == PEER and _program(row) not in _OTHER_LIBRARIES and not _program(row).startswith("Go")


def _program(row: Row) -> str:
    """Return the name of the peer in a row of one subject and one peer: a library, or one of Go's programs."""
    words = row.entry["commands"][PEER].split()
    return str(words[-1]) if words[0].startswith("python") else f"Go's {words[0]}"


def _loss(row: Row, role: str) -> str:
    name = _program(row) if role == PEER else role
    if role in SETUPS and SETUPS[role].durability == IN_MEMORY:
        name += " (in memory)"
    is_certain = max(row.entry["ratios"][role]) < 1
    ratio = f"**{row.ratio(role):.2f} ×**" if is_certain else f"{row.ratio(role):.2f} ×"
    return f"{name} {number(row.median(role))}, {ratio}"


def _setups(rows: Rows) -> Iterator[str]:
    """Yield what an answer of each server means."""
    versions: dict[str, str] = {}
    for row in rows.values():
        for role, version in row.entry["versions"].items():
            versions.setdefault(row.ours if role == SUBJECT else role, version)

    def line(name: str) -> list[str]:
        setup = SETUPS[name]
        flags = " ".join(setup.flags)
        return [name, versions[name], setup.durability, setup.promise, f"`{flags}`" if flags else ""]

    yield from table(
        ["server", "version", "class", "an answer means: the message is", "flags"],
        (line(name) for name in SETUPS if name in versions),
    )


def parts(records: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, str]:
    """Return the generated text of each marker."""
    rows = newest_rows(records)
    texts = {"lose": "\n".join(_losses(rows)), "setups": "\n".join(_setups(rows))}
    for section in SECTIONS:
        found = in_section(rows, section, SWEEPS)
        texts[section] = "\n".join(_sweep(found)) if found else "*Not measured yet.*"
    for section in dict.fromkeys(scenario.section for scenario in SCENARIOS):
        found = in_section(rows, section, SCENARIOS)
        texts[section] = "\n".join(_own(found)) if found else "*Not measured yet.*"
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
            lines = {
                (found[0].ours if role == SUBJECT else role): [
                    (row.entry["place"], row.median(role)) for row in found if role in row.roles
                ]
                for role in _columns(found)
            }
            yield IMAGES / f"performance-{section.name}.svg", plot.lines(lines, section.axis, section.value)


def write() -> None:
    """Write the page and its plots from the records in bench/results."""
    records = record.read_all()
    PAGE.write_text(fill(PAGE.read_text(), parts(records)))
    for path, svg in _plots(records):
        path.write_text(svg)


if __name__ == "__main__":
    write()
