"""Records: `results/<date>-<commit>.json` has every run, and where it was measured. Tables and plots come from one."""

import json
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from bench import plot

OURS, OTHER = "subject", "peer"
RESULTS = Path(__file__).resolve().parent / "results"


def new(commit: str, directory: Path) -> Path:
    """Return the path of a new record, which replaces no earlier one."""
    stem = f"{datetime.now(UTC).date().isoformat()}-{commit}"
    names = (directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json") for number in count(1))
    return next(path for path in names if not path.exists())


def write(path: Path, record: dict[str, Any]) -> None:
    """Write all results so far, with a line for each row: an interruption loses none of them."""
    head = json.dumps(record | {"results": []}, indent=1).rpartition("[]")[0]
    rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in record["results"])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(f"{head}[\n{rows}\n]\n}}\n")
    part.replace(path)


def read_all(directory: Path = RESULTS) -> list[tuple[Path, dict[str, Any]]]:
    """Return the records and their contents, the newest first; not the records of other programs."""
    found = [(path, json.loads(path.read_text())) for path in directory.glob("*.json")]
    records = [(path, content) for path, content in found if isinstance(content.get("results"), list)]
    return sorted(
        records, key=lambda one: (one[1].get("recorded_at", one[1]["date"]), one[0].name), reverse=True
    )


def columns(runs: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return the values of all runs by name, with five digits."""
    return {name: [float(f"{run[name]:.5g}") for run in runs] for name in runs[0]}


def ratios(entry: dict[str, Any], role: str = OTHER) -> list[float]:
    """Return how many times better ours was, for each pair of runs; nothing if one side has no runs."""
    sides = [entry["runs"].get(one) for one in (OURS, role)]
    if not all(isinstance(side, dict) for side in sides):  # none; or a record of the first days
        return []
    pairs = zip(*(side["value"] for side in sides), strict=False)
    return [other / ours if entry["lower_is_better"] else ours / other for ours, other in pairs]


def short(value: float, unit: str) -> str:
    """Return a value with three digits and its unit: 1.52 M msg/s, 75.3 k msg/s, 0.412 s."""
    for step, prefix in ((1e6, "M "), (1e3, "k ")):
        if unit.endswith("/s") and value >= step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def tables(record: dict[str, Any]) -> Iterator[str]:
    """Yield a Markdown table for each section, the rows with the worst ratio first."""
    entries = record["results"]
    for section in dict.fromkeys(entry["section"] for entry in entries):
        yield f"\n{section}\n\n| row | what | nsqd-py | the other | ratio | server CPU, µs a message (loop) |\n{'|---' * 6}|"
        some = [entry for entry in entries if entry["section"] == section]
        yield from map(line, sorted(some, key=lambda entry: statistics.median(ratios(entry) or [1e9])))


def line(entry: dict[str, Any]) -> str:
    """Return a row of a table: medians, with the lowest and the highest ratio."""
    sides = [entry["runs"].get(role) for role in (OURS, OTHER)]
    values = [short(statistics.median(side["value"]), entry["unit"]) if side else "" for side in sides]
    cpu = [_cpu(side) for side in sides if side and "server_cpu_us" in side]
    found = ratios(entry)
    ratio = f"{statistics.median(found):.2f} × ({min(found):.2f}–{max(found):.2f})" if found else ""
    failures = "; ".join(f"{role} failed: {text}" for role, text in entry["failures"].items())
    cells = (f"`{entry['scenario']}`", f"{entry['text']} {failures}".strip(), *values, ratio, " / ".join(cpu))
    return f"| {' | '.join(cells)} |"


def _cpu(side: dict[str, list[float]]) -> str:
    """Return microseconds of processor a message: of all threads, and of the event loop alone."""
    text = f"{statistics.median(side['server_cpu_us']):.3g}"
    if "loop_cpu_us" in side:
        text += f" ({statistics.median(side['loop_cpu_us']):.3g})"
    return text


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw messages a second by the number of connections that wait, from the rows pub-N."""
    series: dict[str, list[tuple[float, float]]] = {}
    for entry in record["results"]:
        name, _, connections = entry["scenario"].partition("-")
        if name == "pub" and connections.isdecimal():
            for role, label in ((OURS, "nsqd-py"), (OTHER, "the other nsqd")):
                if role in entry["runs"]:
                    value = statistics.median(entry["runs"][role]["value"])
                    series.setdefault(label, []).append((float(connections), value))
    path.write_text(plot.lines(series, "connections", "messages a second"))
