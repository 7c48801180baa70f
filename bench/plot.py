"""Draw a recorded file: `python -m bench.plot bench/results/<name>.json` writes <name>.svg beside it.

A bar is the median ratio of a scenario, its line the lowest and highest pair, a tick its target.
"""

import json
import sys
from pathlib import Path
from typing import Any

_TICKS = (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def draw(record: Path) -> Path:
    """Write the plot and return its path; raises SystemExit without matplotlib or without ratios."""
    content = json.loads(record.read_text())
    entries = [entry for entry in content["results"] if entry["median_ratio"]]
    if not entries:
        raise SystemExit(f"{record}: no ratios in it; was it recorded without --peer-nsqd?")
    figure, axes = _subplots(len(entries))
    _bars(axes, entries)
    axes.set_title(f"{content['date']} {content['commit']}: {content['machine']['cpu']}", fontsize=9)
    path = record.with_suffix(".svg")
    figure.savefig(path, bbox_inches="tight")
    return path


def _subplots(bars: int) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("the plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("svg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(8, 0.45 * bars + 1))


def _bars(axes: Any, entries: list[dict[str, Any]]) -> None:
    places = range(len(entries))
    medians = [entry["median_ratio"] for entry in entries]
    below = [entry["median_ratio"] - min(entry["ratios"]) for entry in entries]
    above = [max(entry["ratios"]) - entry["median_ratio"] for entry in entries]
    axes.barh(
        places,
        [median - 1 for median in medians],
        left=1,
        xerr=[below, above],
        color="#4c78a8",
        ecolor="#333333",
        height=0.6,
    )
    for place, entry in zip(places, entries, strict=True):
        if entry["at_least"]:
            axes.plot([entry["at_least"]] * 2, [place - 0.38, place + 0.38], color="#e45756", linewidth=2)
        axes.annotate(f" {entry['median_ratio']:.2f}x", (max(entry["ratios"]), place), va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}x" for tick in _TICKS])
    axes.minorticks_off()
    axes.set_xlim(min(0.5, *medians) * 0.9, max(4, *(max(entry["ratios"]) for entry in entries)) * 1.4)
    axes.set_yticks(places, [entry["scenario"] for entry in entries])
    axes.invert_yaxis()
    axes.set_xlabel("times better than the peer (log scale; red: target)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m bench.plot bench/results/NAME.json")
    print(draw(Path(sys.argv[1])))
