"""JSON for people and for lines. Only the space between tokens changes: numbers and texts stay as they came."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import orjson

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+').findall
_INDENT = b"  "
_NEST = 64  # indented no further than this; deeper ones stay flat

Paint = Callable[[bytes, bytes], bytes]

# By what they are for: codes of ECMA-48.
KEY = b"34;1"
TEXT = b"32"
NUMBER = b"36"
WORD = b"35"  # true, false, null


def is_json(body: bytes) -> bool:
    """Whether the whole of it is one document."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def compact(body: bytes) -> bytes:
    """A document in one line."""
    return b"".join(_TOKENS(body))


def coloured(token: bytes, colour: bytes) -> bytes:
    return b"\x1b[%bm%b\x1b[0m" % (colour, token)


def plain(token: bytes, colour: bytes) -> bytes:
    return token


def pretty(body: bytes, paint: Paint = plain) -> bytes:
    """A document in many lines, two spaces a level."""
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
