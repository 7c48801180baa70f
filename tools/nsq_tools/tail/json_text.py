"""JSON in one line or in many, and values from JSON documents. Pure.

Formatting changes only the space between tokens: numbers and strings stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+').findall
_INDENT = b"  "
_NEST = 64  # maximum depth of indentation

Paint = Callable[[bytes, bytes], bytes]

# Colours by kind of token: codes of ECMA-48.
KEY = b"34;1"
TEXT = b"32"
NUMBER = b"36"
WORD = b"35"  # true, false, null


def is_json(body: bytes) -> bool:
    """True if the body is one JSON document."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def compact(body: bytes) -> bytes:
    """Return the document in one line."""
    return b"".join(_TOKENS(body))


def coloured(token: bytes, colour: bytes) -> bytes:
    return b"\x1b[%bm%b\x1b[0m" % (colour, token)


def plain(token: bytes, colour: bytes) -> bytes:
    return token


def pretty(body: bytes, paint: Paint = plain) -> bytes:
    """Return the document in many lines, indented by two spaces a level."""
    return b"".join(_laid_out(_TOKENS(body), paint))


def _laid_out(tokens: list[bytes], paint: Paint) -> Iterator[bytes]:
    depth = 0
    followers = [*tokens[1:], b""]
    for token, follower in zip(tokens, followers, strict=True):
        if token in (b"{", b"["):
            depth += 1
            yield token if follower in (b"}", b"]") else token + _line(depth)
        elif token in (b"}", b"]"):
            depth -= 1
            yield token
        elif token == b",":
            yield token + _line(depth)
        elif token == b":":
            yield b": "
        else:
            yield paint(token, KEY if follower == b":" else _colour(token))
        if follower in (b"}", b"]") and token not in (b"{", b"["):
            yield _line(depth - 1)


def _line(depth: int) -> bytes:
    return b"\n" + _INDENT * min(depth, _NEST)


def _colour(token: bytes) -> bytes:
    if token.startswith(b'"'):
        return TEXT
    return WORD if token in (b"true", b"false", b"null") else NUMBER


Path = tuple[str | int, ...]

_STEP = re.compile(r'\.?\[(?P<index>-?\d+)\]|\.?\[(?P<quoted>"(?:[^"\\]|\\.)*")\]|\.(?P<key>[A-Za-z_$@][\w$@-]*)')
# As in jq's @tsv: tabs and line feeds in a value are escaped.
_IN_LINE = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def parse_path(text: str) -> Path:
    """Return the keys and indexes of a path in jq's syntax. Raises ValueError.

    Examples: `.`, `.user.name`, `.tags[0]`, `.[-1]`, `.["a key"]`
    """
    steps: list[str | int] = []
    position = len(text) if text == "." else 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            break
        steps.append(_step(step))
        position = step.end()
    if not text.startswith(".") or position < len(text):
        raise ValueError(f'{text!r} is not a path such as .user.name, .tags[0] or .["a key"] (see its byte {position})')
    return tuple(steps)


def _step(step: re.Match[str]) -> str | int:
    if step["index"]:
        return int(step["index"])
    try:
        return step["key"] or str(orjson.loads(step["quoted"]))
    except orjson.JSONDecodeError:
        raise ValueError(f"{step['quoted']} is not a JSON string") from None


def pick(document: Any, path: Path) -> Any:
    """Return the value at the path, or None."""
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
    """Return a value for a column: a string without its quotes, any other value as JSON."""
    if isinstance(value, str):
        return value.translate(_IN_LINE).encode("utf-8", "surrogatepass")
    return orjson.dumps(value)
