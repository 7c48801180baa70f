"""What a run prints: a line for each row, whenever a round of it is over."""

from collections.abc import Iterator

from bench.duel import SUBJECT, Result

_NOISY_CORES = 0.2


def line(result: Result) -> str:
    """Return the medians so far: the figure of ours, and how many times better it is than each peer."""
    scenario = result.scenario
    peers = ", ".join(f"{ratio:.2f} x {peer}" for peer in result.peers if (ratio := result.median_ratio(peer)))
    own = figure(result.median(SUBJECT), scenario.unit)
    parts = [f"{scenario.section}, {scenario.label}: {own}", peers, _target(result), _noise(result)]
    return "; ".join(filter(None, (*parts, *failures(result))))


def failures(result: Result) -> Iterator[str]:
    for role, text in result.failures.items():
        yield f"{role} FAILED: {text}"


def figure(value: float | None, unit: str) -> str:
    """Three digits and a unit that a reader can compare: 1.52 M msg/s, 75.3 k msg/s, 412 us."""
    if value is None:
        return "nothing"
    for step, prefix in ((1e6, "M "), (1e3, "k ")):
        if unit.endswith("/s") and value >= step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _target(result: Result) -> str:
    scenario = result.scenario
    least = "" if scenario.at_least is None else f">= {scenario.at_least:g} x"
    limit = "" if scenario.below is None else f"< {figure(scenario.below, scenario.unit)}"
    floor = "" if scenario.above is None else f">= {figure(scenario.above, scenario.unit)}"
    target = ", ".join(filter(None, (least, limit, floor)))
    return f"{target} {result.verdict}" if result.verdict and target else ""


def _noise(result: Result) -> str:
    noise = max((run.others_cpu_s / run.elapsed_s for runs in result.runs.values() for run in runs), default=0)
    return f"other processes used up to {noise:.1f} cores" if noise > _NOISY_CORES else ""
