"""What a tool's standard streams are connected with, and what may be shown there."""

from __future__ import annotations

import os
import sys
from typing import IO, Any


def is_terminal(stream: IO[Any]) -> bool:
    """Somebody looks at it. False for a closed stream."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def wants_colour(stream: IO[Any] | None = None) -> bool:
    """A terminal that can show colours, whose user has not refused them (https://no-color.org)."""
    return (
        is_terminal(sys.stdout if stream is None else stream)
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("NO_COLOR")
    )
