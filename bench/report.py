"""The table of results, as plain columns in a pipe and by rich on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.duel import PEER, SUBJECT, Result
from bench.run import Run

COLUMNS = ("scenario", "subject", "", "peer", "ratio", "min–max", "us CPU/op", "target", "")
_NOISY_CORES = 0.2
_STYLES = {"met": "green", "missed": "red", "failed": "bold red"}


def show(results: Sequence[Result], console: Console) -> None:
    rows = [row for result in results for row in _rows(result)]
    if console.is_terminal:
        console.print(_table(rows))
    else:
        console.out("\n".join(_plain(rows)), highlight=False)
    for result in results:
        for line in _remarks(result):
            console.out(line, highlight=False)


def figure(value: float | None, unit: str) -> str:
    """Three digits and a unit that a reader can compare: 1.52 M msg/s, 75.3 k msg/s, 412 us."""
    if value is None:
        return "–"
    for step, prefix in ((1e6, "M "), (1e3, "k ")):
        if unit.endswith("/s") and value >= step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def target(result: Result) -> str:
    scenario = result.scenario
    least = "" if scenario.at_least is None else f"≥ {scenario.at_least:g}x"
    limit = "" if scenario.below is None else f"< {figure(scenario.below, scenario.unit)}"
    floor = "" if scenario.above is None else f"≥ {figure(scenario.above, scenario.unit)}"
    return " ".join(filter(None, (least, limit, floor)))


def _rows(result: Result) -> list[list[str]]:
    """A row for each peer; or one, without a peer."""
    unit = result.scenario.unit
    rows = []
    for peer in result.peers or [PEER]:
        ratios, ratio = result.ratios(peer), result.median_ratio(peer)
        rows.append(
            [
                _name(result),
                figure(result.median(SUBJECT), unit),
                "" if peer == PEER else peer,
                figure(result.median(peer), unit),
                f"{ratio:.2f}x" if ratio is not None else "–",
                f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–",
                _cpu_per_message(result),
                target(result),
                result.verdict,
            ]
        )
    return rows


def _name(result: Result) -> str:
    """Return the label; rows of a sweep have the same in several sections."""
    scenario = result.scenario
    return f"{scenario.section}: {scenario.label}" if scenario.setups else scenario.label


def _cpu_per_message(result: Result) -> str:
    """Of the last subject run: client + server, in us. A client dearer than its server measures itself."""
    runs: list[Run] = result.runs.get(SUBJECT, [])
    if not runs or not result.scenario.unit.endswith("/s"):
        return ""
    run = runs[-1]
    return f"{run.client_cpu_s / run.messages * 1e6:.2f} + {run.server_cpu_s / run.messages * 1e6:.2f}"


def _remarks(result: Result) -> list[str]:
    remarks = [f"{_name(result)}, {role}: {text}" for role, text in result.failures.items()]
    for role, runs in result.runs.items():
        for name in result.scenario.details:
            values = sorted(run.details[name] for run in runs)
            remarks.append(f"{_name(result)}, {role}: {name} {_digits(values[0])}–{_digits(values[-1])}")
    noise = max((run.others_cpu_s / run.elapsed_s for runs in result.runs.values() for run in runs), default=0)
    if noise > _NOISY_CORES:
        remarks.append(f"{_name(result)}: other processes used up to {noise:.1f} cores during a run")
    return remarks


def _plain(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    for row in rows:
        style = _STYLES.get(row[-1], "")
        table.add_row(*row[:-1], f"[{style}]{row[-1]}[/]" if style else row[-1])
    return table
