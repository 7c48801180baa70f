"""Asks on the terminal whether it may begin."""

from __future__ import annotations

import sys
from contextlib import suppress

_YES = ("y", "yes")


def agreed(question: str) -> bool:
    """Whether the answer is yes; the end of input, and just Enter, are no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in _YES


def say(text: str) -> None:
    """To whoever runs it; data goes to standard output."""
    with suppress(OSError):  # nobody reads it any more, and the work goes on
        print(text, file=sys.stderr, flush=True)
