"""Records as `bench.record` writes them, with what the tests need."""

import statistics
from typing import Any

MACHINE: dict[str, Any] = {"cpu": "EPYC", "cores": 2, "memory_gb": 8, "python": "CPython 3.11", "kernel": "Linux"}


def run(value: float, **details: float) -> dict[str, Any]:
    figures = {"messages": 1000, "elapsed_s": 2.0, "client_cpu_s": 0.4, "server_cpu_s": 0.5, "others_cpu_s": 1.2}
    given = {name: details.pop(name) for name in figures if name in details}
    return {"value": value, **figures, **given, "details": details}


def entry(
    section: str, row: str, ratios: dict[str, list[float]], *, ours: float = 100.0, unit: str = "msg/s",
    place: float | None = None, **details: float,
) -> dict[str, Any]:  # fmt: skip
    """A row in which ours has the value `ours` in each run, and each peer what makes these ratios."""
    longest = max((len(values) for values in ratios.values()), default=1)
    lower_is_better = not unit.endswith("/s")

    def peer_value(ratio: float) -> float:
        return ours * ratio if lower_is_better else ours / ratio

    return {
        "section": section, "scenario": row, "unit": unit, "place": place, "lower_is_better": lower_is_better,
        "at_least": None, "below": None, "above": None, "failures": {},
        "setups": {"nsqd-py": "written"} | dict.fromkeys(ratios, "kept"),
        "versions": {"subject": "1.3.0"} | dict.fromkeys(ratios, "7.0"),
        "ratios": ratios,
        "median_ratios": {peer: statistics.median(values) for peer, values in ratios.items()},
        "runs": {"subject": [run(ours, **details)] * longest}
        | {peer: [run(peer_value(ratio), **details) for ratio in values] for peer, values in ratios.items()},
    }  # fmt: skip


def recorded(
    *entries: dict[str, Any], kind: str = "full", at: str = "2026-01-01T00:00:00+00:00", commit: str = "abc1234"
) -> dict[str, Any]:
    return {
        "date": at[:10], "recorded_at": at, "commit": commit, "kind": kind, "command": "python -m bench",
        "machine": MACHINE, "results": list(entries),
    }  # fmt: skip
