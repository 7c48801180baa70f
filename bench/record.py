"""Results as JSON files, `results/<date>-<commit>-<kind>.json`: the figures of every run, and where it was measured."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from bench.duel import PEER, SUBJECT, Result
from bench.machine import Machine
from bench.scenarios import SCENARIOS

_SECTIONS = {scenario.label: scenario.section for scenario in SCENARIOS}
_LIMITS = ("place", "at_least", "below", "above")  # which few rows have
RESULTS = Path(__file__).resolve().parent / "results"


class Record:
    """A new file, never over an old one; each `write` replaces what it holds. `command` measures the same again."""

    def __init__(self, machine: Machine, commit: str, kind: str, command: str, directory: Path = RESULTS) -> None:
        self._directory = directory
        self._started_s = datetime.now(UTC)
        self._head = {
            "date": self._started_s.date().isoformat(), "recorded_at": self._started_s.isoformat(timespec="seconds"),
            "commit": commit, "kind": kind, "command": command, "machine": asdict(machine),
        }  # fmt: skip
        self.path = _unused(directory, f"{self._head['date']}-{commit}-{kind}")

    def write(self, results: Sequence[Result]) -> None:
        """Write all results so far: an interruption loses none of them."""
        minutes = round((datetime.now(UTC) - self._started_s).total_seconds() / 60, 1)
        self._directory.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(to_json({**self._head, "minutes": minutes, "results": [_entry(one) for one in results]}))
        part.replace(self.path)


def to_json(content: dict[str, Any]) -> str:
    """Return a record as text, with a line for each row."""
    head = json.dumps(content | {"results": []}, indent=1).rpartition("[]")[0]
    rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in content["results"])
    return f"{head}[\n{rows}\n]\n}}\n"


def read_all(directory: Path = RESULTS) -> list[tuple[Path, dict[str, Any]]]:
    """Return the records and their contents, the newest first. Files of other measurements are left out."""
    found = [(path, read(path)) for path in directory.glob("*.json")]
    records = [(path, content) for path, content in found if "results" in content]
    return sorted(records, key=lambda one: (one[1]["recorded_at"], one[0].name), reverse=True)


def read(path: Path) -> dict[str, Any]:
    """Return the content of a record, with the ratios of its runs."""
    content: dict[str, Any] = json.loads(path.read_text())
    if "results" not in content:
        return content
    known = {"kind": "full", "command": "make bench", "recorded_at": f"{content.get('date')}T00:00:00+00:00"}
    return known | content | {"results": [_read_entry(entry) for entry in content["results"]]}


def _read_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with all that it may leave out. The oldest records had one subject and one peer."""
    entry = {**dict.fromkeys(_LIMITS), "section": _SECTIONS.get(entry["scenario"], ""), "setups": {}, **entry}
    if "failures" not in entry:
        entry["failures"] = {PEER: entry["failure"]} if entry.get("failure") else {}
    runs = {role: _read_runs(some) for role, some in entry["runs"].items()}
    ratios = {role: _ratios(entry, runs[SUBJECT], runs[role]) for role in runs if role != SUBJECT and SUBJECT in runs}
    ratios = {role: values for role, values in ratios.items() if values}
    medians = {role: statistics.median(values) for role, values in ratios.items()}
    return entry | {"runs": runs, "ratios": ratios, "median_ratios": medians}


def _ratios(entry: dict[str, Any], subject: list[dict[str, Any]], peer: list[dict[str, Any]]) -> list[float]:
    ratios = (ours["value"] / other["value"] for ours, other in zip(subject, peer, strict=False))
    return [1 / ratio if entry["lower_is_better"] else ratio for ratio in ratios]


def _read_runs(runs: Any) -> list[dict[str, Any]]:
    """Return a dictionary for each run, from the columns that are written or from the list of older records."""
    if isinstance(runs, list):
        return runs
    details = runs["details"]
    return [
        {name: values[number] for name, values in runs.items() if name != "details"}
        | {"details": {name: values[number] for name, values in details.items()}}
        for number in range(len(runs["value"]))
    ]


def _entry(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    limits = {name: value for name in _LIMITS if (value := getattr(scenario, name)) is not None}
    return {
        "section": scenario.section,
        "scenario": scenario.label,
        "unit": scenario.unit,
        **limits,
        "lower_is_better": scenario.lower_is_better,
        "setups": [setup.name for setup in scenario.setups],
        "commands": {} if scenario.setups else {role: _portable(words) for role, words in result.commands.items()},
        "flags": {role: flags for role, flags in result.flags.items() if flags},
        "versions": result.versions,
        "failures": result.failures,
        "runs": {role: columns([asdict(run) for run in runs]) for role, runs in result.runs.items()},
    }


def columns(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all runs by name, with five digits."""
    names = [name for name in runs[0] if name != "details"]
    details = [name for name in runs[0]["details"] if all(name in run["details"] for run in runs)]
    return {
        **{name: [_digits(run[name]) for run in runs] for name in names},
        "details": {name: [_digits(run["details"][name]) for run in runs] for name in details},
    }


def _digits(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _portable(command: tuple[str, ...]) -> str:
    """The command without the directory it was found in, which says nothing on another machine."""
    return " ".join([Path(command[0]).name, *command[1:]])


def _unused(directory: Path, stem: str) -> Path:
    names = (directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json") for number in count(1))
    return next(path for path in names if not path.exists())
