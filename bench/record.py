"""Results as JSON files, `results/<date>-<commit>-<kind>.json`: every raw figure, and where it was measured."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from bench.duel import PEER, Result
from bench.machine import Machine
from bench.scenarios import SCENARIOS

_SECTIONS = {scenario.label: scenario.section for scenario in SCENARIOS}
RESULTS = Path(__file__).resolve().parent / "results"


def write(
    results: Sequence[Result],
    machine: Machine,
    commit: str,
    kind: str,
    command: str,
    directory: Path = RESULTS,
) -> Path:
    """Write a new file, never over an old one; returns its path. `command` measures the same again."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    today = now.date().isoformat()
    path = _unused(directory, f"{today}-{commit}-{kind}")
    content = {
        "date": today,
        "recorded_at": now.isoformat(timespec="seconds"),
        "commit": commit,
        "kind": kind,
        "command": command,
        "machine": asdict(machine),
        "results": [_entry(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def read_all(directory: Path = RESULTS) -> list[tuple[Path, dict[str, Any]]]:
    """Return the records and their contents, the newest first. Files of other measurements are left out."""
    found = [(path, read(path)) for path in directory.glob("*.json")]
    records = [(path, content) for path, content in found if "results" in content]
    return sorted(records, key=lambda one: (one[1]["recorded_at"], one[0].name), reverse=True)


def read(path: Path) -> dict[str, Any]:
    """Return the content of a record; of one that was written before there were kinds, as it would be written now."""
    content: dict[str, Any] = json.loads(path.read_text())
    if "kind" in content or "results" not in content:
        return content
    known = {"kind": "full", "command": "make bench", "recorded_at": f"{content['date']}T00:00:00+00:00"}
    return content | known | {"results": [_with_section(entry) for entry in content["results"]]}


def _with_section(entry: dict[str, Any]) -> dict[str, Any]:
    """Add what an entry of one subject and one peer did not have."""
    ratios = {PEER: entry["ratios"]} if entry["ratios"] else {}
    limits = dict.fromkeys(("at_least", "below", "above"))
    return limits | entry | {
        "section": _SECTIONS.get(entry["scenario"], ""),
        "place": None,
        "setups": {},
        "ratios": ratios,
        "median_ratios": {PEER: entry["median_ratio"]} if ratios else {},
        "failures": {PEER: entry["failure"]} if entry["failure"] else {},
    }


def _entry(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    return {
        "section": scenario.section,
        "scenario": scenario.label,
        "place": scenario.place,
        "unit": scenario.unit,
        "lower_is_better": scenario.lower_is_better,
        "at_least": scenario.at_least,
        "below": scenario.below,
        "above": scenario.above,
        "setups": {setup.name: setup.promise for setup in scenario.setups},
        "commands": {role: _portable(command) for role, command in result.commands.items()},
        "flags": result.flags,
        "versions": result.versions,
        "verdict": result.verdict,
        "failures": result.failures,
        "median_ratios": {peer: result.median_ratio(peer) for peer in result.peers},
        "ratios": {peer: result.ratios(peer) for peer in result.peers},
        "runs": {role: [asdict(run) for run in runs] for role, runs in result.runs.items()},
    }


def _portable(command: tuple[str, ...]) -> str:
    """The command without the directory it was found in, which says nothing on another machine."""
    return " ".join([Path(command[0]).name, *command[1:]])


def _unused(directory: Path, stem: str) -> Path:
    names = (directory / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json") for number in count(1))
    return next(path for path in names if not path.exists())
