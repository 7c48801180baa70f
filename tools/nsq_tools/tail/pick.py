"""Values out of JSON documents, by paths as jq has them: `.`, `.user.name`, `.tags[0]`, `.[-1]`, `.["a key"]`."""

from __future__ import annotations

import re
from typing import Any

import orjson

Path = tuple[str | int, ...]

_STEP = re.compile(r'\.?\[(?P<index>-?\d+)\]|\.?\[(?P<quoted>"(?:[^"\\]|\\.)*")\]|\.(?P<key>[A-Za-z_$@][\w$@-]*)')
# As in jq's @tsv: a picked text stays in its column and its line.
_IN_LINE = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def parse_path(text: str) -> Path:
    """The keys and indexes of a path. Raises ValueError."""
    steps: list[str | int] = []
    position = len(text) if text == "." else 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            break
        steps.append(_step(step))
        position = step.end()
    if not text.startswith(".") or position < len(text):
        raise ValueError(f'{text!r} is no path such as .user.name, .tags[0] or .["a key"] (see its byte {position})')
    return tuple(steps)


def _step(step: re.Match[str]) -> str | int:
    if step["index"]:
        return int(step["index"])
    try:
        return step["key"] or str(orjson.loads(step["quoted"]))
    except orjson.JSONDecodeError:
        raise ValueError(f"{step['quoted']} is no text of JSON") from None


def pick(document: Any, path: Path) -> Any:
    """What stands there, or None."""
    value = document
    for step in path:
        value = _item(value, step) if isinstance(step, int) else _member(value, step)
    return value


def _item(value: Any, index: int) -> Any:
    is_there = isinstance(value, list) and -len(value) <= index < len(value)
    return value[index] if is_there else None


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def in_line(value: Any) -> bytes:
    """A picked value for a column: a text without its quotes, anything else as JSON."""
    if isinstance(value, str):
        return value.translate(_IN_LINE).encode("utf-8", "surrogatepass")
    return orjson.dumps(value)
