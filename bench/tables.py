"""The generated parts of docs/performance.md, as lines of Markdown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bench.peers.setups import IN_MEMORY, SETUPS
from bench.rows import PEER, SUBJECT, Row, Rows
from bench.sweeps import SECTIONS

_BUSY_MACHINE_CORES = 0.2
_LIMITS = ("limit", "limit, synced")
TITLES = {
    "nsqd": "nsqd", "neutral": "By another generator", "standby": "With a standby", "nsqlookupd": "nsqlookupd",
    "tools": "Terminal tools", "clients": "Client library", "nsqadmin": "nsqadmin", "spark": "Spark",
}  # fmt: skip


def number(value: float) -> str:
    """Return three digits: 1.52 M, 75.3 k, 412, 0.0362."""
    for step, prefix in ((1e6, " M"), (1e3, " k")):
        if value >= step:
            return f"{value / step:.3g}{prefix}" if value < 1000 * step else f"{value / step:,.0f}{prefix}"
    return f"{value:.3g}"


def with_unit(value: float, unit: str) -> str:
    """Return a figure with its unit; only rates get a prefix: 1.52 M msg/s, 8,590 ms."""
    return f"{value:,.0f} {unit}" if value >= 1000 and not unit.endswith("/s") else f"{number(value)} {unit}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table, and an empty line."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def sweep(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the section of a sweep: figures with ratios, then the processor time."""
    section, ours = SECTIONS[rows[0].section], rows[0].ours
    columns = list(dict.fromkeys(role for row in rows for role in row.roles))
    head = [section.axis or "load", *(ours if role == SUBJECT else role for role in columns)]

    def lines(cell: Callable[[Row, str], str]) -> Iterator[str]:
        yield from table(
            head, ([row.name, *(cell(row, role) if role in row.roles else "–" for role in columns)] for row in rows)
        )

    yield f"### {section.title}"
    yield ""
    yield f"{section.text} Figures: {section.value}. Ratios: how many times better {ours} is (lowest–highest)."
    yield ""
    yield from lines(_cell)
    yield from _marks(rows)
    if any(row.detail(SUBJECT, "age_p99_ms") for row in rows):
        yield "From nsqd's timestamp to the consumer, 50th / 99th percentile in ms; publishes a second meanwhile:"
        yield ""
        yield from lines(_ages)
    if any(row.cpu_us(SUBJECT) for row in rows):
        yield "Processor time of the server, in microseconds a message:"
        yield ""
        yield from lines(_cpu)
    if rows[0].entry["unit"] == "s":
        yield "Processor time of the server until then, in seconds:"
        yield ""
        yield from lines(lambda row, role: f"{row.median(role, 'server_cpu_s'):.2f}")
    if section.axis:
        yield f"![{section.title}](images/performance-{section.name}.svg)"
        yield ""
    yield from _failures(rows)
    yield _source(rows)


def own(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of one of our programs beside another."""

    def line(row: Row) -> list[str]:
        unit = row.entry["unit"]
        figures = [_marked(row, role, with_unit(row.median(role), unit)) if role in row.roles else ""
                   for role in (SUBJECT, PEER)]  # fmt: skip
        cpu = " / ".join(_cpu(row, role) for role in (SUBJECT, PEER) if role in row.roles and row.cpu_us(role))
        ratio = _spread(row, PEER) if PEER in row.roles else ""
        required = f"**{_required(row.entry)}**" if row.is_missed else _required(row.entry)
        return [f"`{row.name}`", row.text, *figures, ratio, cpu, required]

    head = ["row", "what is measured", "ours", "the other", "ratio", "processor time, µs a message", "required"]
    yield from table(head, (line(row) for row in rows))
    others = {row.program: row.peer_version for row in rows if PEER in row.roles and not row.is_ours(PEER)}
    if others:
        yield f"The others: {', '.join(f'{name} {version}'.strip() for name, version in others.items())}."
        yield ""
    if any(row.is_missed for row in rows):
        yield "In bold: required, and not reached."
        yield ""
    yield from _marks(rows)
    yield from _failures(rows)
    yield _source(rows)


def losses(rows: Rows) -> Iterator[str]:
    """Yield each row in which peers are better than ours, the worst first."""
    missed = [row for row in rows.values() if row.is_missed]
    if missed:
        names = ", ".join(f"`{row.name}` ({with_unit(row.median(SUBJECT), row.entry['unit'])})" for row in missed)
        yield f"Required below, and not reached: {names}."
        yield ""
    lost = [(row, peers) for row in rows.values() if (peers := _better_peers(row))]
    if not lost:
        yield "Nowhere."
        return

    def line(row: Row, peers: list[str]) -> list[str]:
        title = SECTIONS[row.section].title if row.section in SECTIONS else TITLES[row.section]
        ours = with_unit(row.median(SUBJECT), row.entry["unit"])
        return [f"{title}: {row.name}", ours, "; ".join(_loss(row, role) for role in peers)]

    lost.sort(key=lambda one: one[0].ratio(one[1][0]))
    yield f"{len(lost)} of {len(rows)} rows, the worst first. In bold: in every one of several rounds."
    yield ""
    yield from table(["row", "ours", "who is better"], (line(*one) for one in lost))


def setups(rows: Rows) -> Iterator[str]:
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


def newest(rows: Rows) -> Iterator[str]:
    """Yield which run most rows are from, and how long it took."""
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row.content["recorded_at"]] = counts.get(row.content["recorded_at"], 0) + 1
    if not counts:
        yield "Nothing is measured yet."
        return
    most = max(counts, key=lambda at: (counts[at], at))
    content = next(row.content for row in rows.values() if row.content["recorded_at"] == most)
    machine = content["machine"]
    took = f" It took {content['minutes']:.0f} minutes." if "minutes" in content else ""
    yield (
        f"{counts[most]} of {len(rows)} rows are from one run at commit {content['commit']}, {content['date']}: "
        f"`{content['command']}`, on {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, "
        f"{machine['python']}, {machine['kernel']}.{took}"
    )


# ---- cells


def _cell(row: Row, role: str) -> str:
    figure = number(row.median(role)) if row.detail(role, "p50_ms") is None else _percentiles(row, role)
    figure = _marked(row, role, figure)
    return figure if role == SUBJECT else f"{figure}; {_spread(row, role)}"


def _marked(row: Row, role: str, figure: str) -> str:
    return f"{figure} {'‡' if row.measures_program else '†'}" if row.is_held_back(role) else figure


def _percentiles(row: Row, role: str) -> str:
    values = (row.detail(role, f"{name}_ms") for name in ("p50", "p99", "p999"))
    return " / ".join(number(value) for value in values if value is not None)


def _spread(row: Row, role: str) -> str:
    ratios = row.ratios(role)
    range_ = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{row.ratio(role):.2f} ×{range_}"


def _ages(row: Row, role: str) -> str:
    values = [row.detail(role, name) for name in ("age_p50_ms", "age_p99_ms", "published_per_s")]
    if None in values:
        return "–"
    middle, late, published = (number(value) for value in values if value is not None)
    return f"{middle} / {late}; {published}"


def _cpu(row: Row, role: str) -> str:
    value = row.cpu_us(role)
    return "–" if value is None else number(value)


def _required(entry: dict[str, Any]) -> str:
    words = (("at_least", "≥", "×"), ("below", "<", entry["unit"]), ("above", "≥", entry["unit"]))
    return ", ".join(
        f"{sign} {with_unit(entry[key], unit)}" for key, sign, unit in words if entry[key] is not None
    )


def _better_peers(row: Row) -> list[str]:
    """Return the peers that are better than ours, the best first."""
    peers = [role for role in row.roles if role != SUBJECT and role not in _LIMITS and row.ratio(role) < 1]
    return sorted((role for role in peers if not row.is_ours(role)), key=row.ratio)


def _loss(row: Row, role: str) -> str:
    name = row.program if role == PEER else role
    if role in SETUPS and SETUPS[role].durability == IN_MEMORY:
        name += " (in memory)"
    is_certain = len(row.ratios(role)) > 1 and max(row.ratios(role)) < 1
    ratio = f"**{row.ratio(role):.2f} ×**" if is_certain else f"{row.ratio(role):.2f} ×"
    return f"{name} {number(row.median(role))}, {ratio}"


# ---- below a table


def _marks(rows: Sequence[Row]) -> Iterator[str]:
    if not any(row.is_held_back(role) for row in rows for role in row.roles):
        return
    if rows[0].measures_program:
        yield "‡ nsqd used its processor fully; the program alone could do more."
    elif rows[0].entry["unit"] == "ms":
        yield "† The generator was late, by more than half of the 99th percentile; the server alone could be faster."
    else:
        yield "† The generator used its processor fully; the server alone could do more."
    yield ""


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
    rounds = sorted({len(row.entry["runs"][SUBJECT]) for row in rows})
    counts = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}"
    others = sorted(row.others_cores for row in rows)[len(rows) // 2]
    busy = f" Other processes used {others:.1f} of the cores meanwhile." if others > _BUSY_MACHINE_CORES else ""
    return (
        f"*Commit {content['commit']}, {content['date']}, {machine['cpu']}, {machine['cores']} cores, medians of "
        f"{counts} alternating run{'s' * (rounds[-1] > 1)}: `{content['command']}`.{busy}*"
    )
