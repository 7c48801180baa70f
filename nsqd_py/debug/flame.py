"""Draws sampled stacks as a flame graph (an SVG without scripts), or writes them as folded lines.

A box is a function. Its width is its share of all samples; the functions that it called are drawn on top of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from html import escape

# Outermost function first.
Stack = tuple[str, ...]

WIDTH = 1200
_ROW_HEIGHT = 17
_TITLE_HEIGHT = 30
_TEXT_SIZE = 12
_CHARACTER_WIDTH = 7.3
_SMALLEST_WIDTH = 0.4  # narrower boxes are left out, with all boxes on top of them

# Hue by the first package of a function's name: this project, the event loop; others have _OTHER_HUE.
_HUES = {"nsqd_py": 24, "nsqlookupd_py": 24, "nsq_apps": 24, "gevent": 130, "greenlet": 130}
_OTHER_HUE = 205


class _Frame:
    """A function, called through the functions below it."""

    __slots__ = ("callees", "name", "samples")

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples = 0
        self.callees: dict[str, _Frame] = {}

    def callee(self, name: str) -> _Frame:
        found = self.callees.get(name)
        if found is None:
            found = self.callees[name] = _Frame(name)
        return found

    @property
    def height(self) -> int:
        """The number of rows of boxes, including this one."""
        return 1 + max((box.height for box in self.callees.values()), default=0)


def folded(stacks: Mapping[Stack, int]) -> str:
    """Return the stacks as lines `outer;inner 12`, which other flame-graph programs read."""
    lines = [f"{';'.join(map(_folded_name, stack))} {samples}\n" for stack, samples in sorted(stacks.items())]
    return "".join(lines)


def _folded_name(name: str) -> str:
    return "_".join(name.replace(";", ":").split())


def draw(stacks: Mapping[Stack, int], title: str) -> str:
    """Return the flame graph as SVG. The title of a box shows its function, samples and share."""
    root = _tree(stacks)
    height = _TITLE_HEIGHT + root.height * _ROW_HEIGHT
    boxes = _draw_box(root, 0.0, height - _ROW_HEIGHT, root.samples) if root.samples else ()
    return "\n".join((*_beginning(height, title), *boxes, "</svg>\n"))


def _tree(stacks: Mapping[Stack, int]) -> _Frame:
    root = _Frame("all")
    for stack, samples in stacks.items():
        box = root
        box.samples += samples
        for name in stack:
            box = box.callee(name)
            box.samples += samples
    return root


def _beginning(height: int, title: str) -> tuple[str, ...]:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        f' font-family="monospace" font-size="{_TEXT_SIZE}">',
        "<style>g:hover rect { stroke: black } text { pointer-events: none }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fffdf7"/>',
        f'<text x="{WIDTH // 2}" y="20" text-anchor="middle" font-size="15">{escape(title)}</text>',
    )


def _draw_box(box: _Frame, left: float, top: int, total: int) -> Iterator[str]:
    """Yield a box, and the boxes on top of it from left to right, ordered by name."""
    width = WIDTH * box.samples / total
    if width < _SMALLEST_WIDTH:
        return
    share = f"{box.name}: {box.samples} samples, {box.samples / total:.1%}"
    yield (
        f"<g><title>{escape(share)}</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_ROW_HEIGHT - 1}" fill="{_colour(box.name)}"/>'
        f"{_label(box.name, left, top, width)}</g>"
    )
    for _, callee in sorted(box.callees.items()):
        yield from _draw_box(callee, left, top - _ROW_HEIGHT, total)
        left += WIDTH * callee.samples / total


def _label(name: str, left: float, top: int, width: float) -> str:
    """Return the text of a box: the end of the name, as much as fits. Its beginning, packages, is common."""
    room = int((width - 6) / _CHARACTER_WIDTH)
    if room < 3:
        return ""
    shown = name if len(name) <= room else f"\u2026{name[1 - room :]}"
    return f'<text x="{left + 3:.1f}" y="{top + 12}">{escape(shown)}</text>'


def _colour(name: str) -> str:
    """Return the colour of a function: always the same, and similar within a package."""
    hue = _HUES.get(name.partition(".")[0], _OTHER_HUE)
    shade = zlib.crc32(name.encode("utf-8", "replace"))
    return f"hsl({hue + shade % 21 - 10},{70 + shade // 21 % 20}%,{64 + shade // 420 % 14}%)"
