"""Regular expressions of users: RE2's, which take time in proportion to the text, whatever is written."""

from __future__ import annotations

from typing import Any

import re2  # type: ignore[import-untyped]  # it brings no types


class BadExpression(ValueError):
    """It is none; the text says why."""


def compiled(expression: str | bytes, *, most_bytes: int = 0, captures: bool = True) -> Any:
    """A pattern for texts and bytes alike; of at most `most_bytes` when compiled. Raises BadExpression."""
    options = re2.Options()
    options.log_errors = False  # they would go to standard error, past every log
    options.never_capture = not captures
    if most_bytes:
        options.max_mem = most_bytes
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0]
        raise BadExpression(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
