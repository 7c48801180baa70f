"""Line plots as SVG, with logarithmic axes. One series for each server."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 160, 20, 50
_LINE_HEIGHT = 18
_COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#f58518", "#b279a2", "#79706e")
_FIRST_WIDTH, _OTHER_WIDTH = 3, 1.5


class Axis:
    """A logarithmic axis that maps values to pixels, with a tick at each power of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        """`start` and `end` are the pixels of the lowest and the highest tick. Values must be above 0."""
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._start = start
        self._pixels = (end - start) / (self._high - self._low)

    def position(self, value: float) -> float:
        return self._start + (math.log10(value) - self._low) * self._pixels

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def lines(series: Mapping[str, Points], across: str, up: str) -> str:
    """Return an SVG: a line for each name, and the names of both axes. It leaves out points that are not above 0."""
    drawn = {name: [point for point in points if min(point) > 0] for name, points in series.items()}
    points = [point for some in drawn.values() for point in some]
    if not points:
        raise ValueError("nothing to draw")
    x = Axis([point[0] for point in points], _LEFT, _WIDTH - _RIGHT)
    y = Axis([point[1] for point in points], _HEIGHT - _BOTTOM, _TOP)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            *_grid(x, y, across, up),
            *_curves(drawn, x, y),
            "</svg>\n",
        )
    )


def _grid(x: Axis, y: Axis, across: str, up: str) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    right = _WIDTH - _RIGHT
    for tick in x.ticks:
        position = x.position(tick)
        yield f'<line x1="{position:.1f}" y1="{_TOP}" x2="{position:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{position:.1f}" y="{bottom + _LINE_HEIGHT}" text-anchor="middle">{_short(tick)}</text>'
    for tick in y.ticks:
        position = y.position(tick)
        yield f'<line x1="{_LEFT}" y1="{position:.1f}" x2="{right}" y2="{position:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{position + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(across)}</text>'
    height = (_TOP + bottom) / 2
    yield f'<text transform="translate(16 {height:.1f}) rotate(-90)" text-anchor="middle">{escape(up)}</text>'


def _curves(series: Mapping[str, Points], x: Axis, y: Axis) -> Iterator[str]:
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        width = _OTHER_WIDTH if number else _FIRST_WIDTH
        positions = [(x.position(across), y.position(up)) for across, up in points]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in positions)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for across, up in positions:
            yield f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>'
        legend = _TOP + (number + 1) * _LINE_HEIGHT
        left = _WIDTH - _RIGHT + 14
        yield f'<rect x="{left}" y="{legend - 6}" width="18" height="3" fill="{colour}"/>'
        yield f'<text x="{left + 24}" y="{legend}">{escape(name)}</text>'


def _short(value: float) -> str:
    """Return a power of ten as a person writes it: 0.01, 100, 10 k, 1 M."""
    for step, prefix in ((1e6, " M"), (1e3, " k")):
        if value >= step:
            return f"{value / step:g}{prefix}"
    return f"{value:g}"
