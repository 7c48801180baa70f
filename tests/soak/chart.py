"""Line charts of the samples as one SVG file: a panel for each figure, a line for each process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from statistics import median

from tests.soak.sampling import FIGURES, Series
from tests.soak.slopes import WARM_UP_SHARE

WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 900, 130, 60, 60, 34
POINTS = 200
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#e45756")


def draw(series: Series, title: str) -> str:
    """Return the SVG."""
    height = TOP + len(FIGURES) * (PANEL_HEIGHT + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
        *_legend(list(series.of)),
    ]
    for place, name in enumerate(FIGURES):
        lines += _panel(series, name, TOP + place * (PANEL_HEIGHT + GAP))
    return "\n".join([*lines, "</svg>"])


def _legend(processes: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(processes):
        x = LEFT + place * 125
        yield f'<line x1="{x}" y1="34" x2="{x + 20}" y2="34" stroke="{COLOURS[place]}" stroke-width="2"/>'
        yield f'<text x="{x + 25}" y="38">{escape(name)}</text>'


def _panel(series: Series, name: str, top: int) -> Iterator[str]:
    of_processes = [figures.get(name, []) for figures in series.of.values()]
    highest = max((value for samples in of_processes for value in samples if value is not None), default=0.0) or 1.0
    count = max(map(len, of_processes))
    bottom, right = top + PANEL_HEIGHT, WIDTH - 20
    warm = LEFT + WARM_UP_SHARE * (right - LEFT)
    minutes = count * series.interval_s / 60
    yield f'<text x="{LEFT}" y="{top - 5}">{escape(FIGURES[name].title)}</text>'
    yield f'<rect x="{LEFT}" y="{top}" width="{warm - LEFT:.0f}" height="{PANEL_HEIGHT}" fill="#eeeeee"/>'
    yield f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="#333333"/>'
    yield f'<text x="{LEFT - 5}" y="{top + 8}" text-anchor="end">{highest:.3g}</text>'
    yield f'<text x="{LEFT - 5}" y="{bottom}" text-anchor="end">0</text>'
    yield f'<text x="{right}" y="{bottom + 12}" text-anchor="end">{minutes:.3g} minutes</text>'
    for samples, colour in zip(of_processes, COLOURS, strict=False):
        for run in _runs(samples):
            points = " ".join(
                f"{LEFT + place / count * (right - LEFT):.1f},{bottom - value / highest * PANEL_HEIGHT:.1f}"
                for place, value in run
            )
            yield f'<polyline points="{points}" fill="none" stroke="{colour}"/>'


def _runs(samples: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Yield stretches without a gap as (place, value), each place standing for several samples."""
    size = max(1, -(-len(samples) // POINTS))
    run: list[tuple[int, float]] = []
    for start in range(0, len(samples), size):
        values = [value for value in samples[start : start + size] if value is not None]
        if values:
            run.append((start, median(values)))
        elif run:
            yield run
            run = []
    if run:
        yield run
