"""Regular expressions that users write. RE2 matches them in time proportional to the text."""

from __future__ import annotations

from typing import Any

from nsqd_py.errors import missing_package


class BadExpression(ValueError):
    """The pattern is not a valid regular expression; str(error) says why."""


def compiled(expression: str | bytes, *, most_bytes: int = 0, captures: bool = True) -> Any:
    """Return a compiled pattern, for str and bytes. `most_bytes` limits its size. Raises BadExpression."""
    missing = missing_package("re2", "regex")
    if missing:
        raise BadExpression(missing)
    import re2  # type: ignore[import-untyped]  # it has no types, and may not be installed

    options = re2.Options()
    options.log_errors = False  # RE2 would write them to standard error
    options.never_capture = not captures
    if most_bytes:
        options.max_mem = most_bytes
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0]
        raise BadExpression(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
