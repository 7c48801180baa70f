"""Regular expressions and paths in JSON that users write. RE2 takes time proportional to the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nsqd_py.errors import missing_package

ANY = object()  # the step to all elements and members
_STEP = re.compile(
    r"""\.(?P<name>[\w$@-]+)
      | \.?\[(?P<index>-?\d{1,9})\]
      | \.?\[(?P<quoted>"(?:[^"\\]|\\.)*")\]
      | \.?(?:\*|\[\*\])""",
    re.VERBOSE,
)


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
        raise BadExpression(
            reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        ) from None


# --- paths in JSON


def path_steps(text: str, position: int = 0) -> tuple[tuple[object, ...], int]:
    """Return the steps of a path, from a position of the text on, and the position behind them. Raises ValueError.

    .name and ["any name"] are members, [0] and [-1] elements; * and [*] are all of them.
    """
    steps: list[object] = []
    while (step := _STEP.match(text, position)) is not None:
        try:
            quoted = json.loads(step["quoted"] or "null")
        except ValueError:
            raise ValueError(f"{step['quoted']} is not a JSON string") from None
        if step["quoted"]:
            steps.append(quoted)
        elif step["index"]:
            steps.append(int(step["index"]))
        else:
            steps.append(step["name"] or ANY)
        position = step.end()
    return tuple(steps), position


def values_at(document: Any, steps: Sequence[object]) -> list[Any]:
    """Return the values to which a path leads. Each value is visited at most once per step."""
    found = [document]
    for step in steps:
        found = [value for parent in found for value in _below(parent, step)]
    return found


def _below(parent: Any, step: object) -> Iterator[Any]:
    if step is ANY:
        if isinstance(parent, dict):
            yield from parent.values()
        elif isinstance(parent, list):
            yield from parent
    elif isinstance(step, int):
        if isinstance(parent, list) and -len(parent) <= step < len(parent):
            yield parent[step]
    elif isinstance(parent, dict) and step in parent:
        yield parent[step]
