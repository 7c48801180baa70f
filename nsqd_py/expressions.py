"""Regular expressions of users: RE2's, which take time in proportion to the text, whatever is written."""

from __future__ import annotations

from typing import Any

import re2  # type: ignore[import-untyped]  # it brings no types

from nsqd_py.errors import NsqdError


class BadExpression(NsqdError):
    """It is none; the text says why."""


def compiled(expression: str, *, ignore_case: bool = False) -> Any:
    """A pattern for texts and bytes alike. Raises BadExpression."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0]
        raise BadExpression(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
