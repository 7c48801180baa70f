r"""Messages become the bytes to show: `--grep`, `--pick`, `--jsonl`, escaping for terminals. Pure.

Bodies are escaped on a terminal: without that, a message could clear the screen, overwrite lines, change the window's
title or send input. Line feeds and tabs stay; other control characters become `\x1b`, invalid UTF-8 `\xff`, and
characters that change the direction of text `\u202e`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from nsq_tools.messages import json_lines
from nsq_tools.tail.options import ShownOptions
from nsqd_py.runtime.command import is_terminal
from nsqd_py.settings.declaration import BadOptions, bad_options
from nsqd_py.settings.regex import ANY, compiled, path_steps, values_at

if TYPE_CHECKING:
    from nsq_tools.messages import Columns

_UNESCAPED = "\t\n"
_CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
# Direction marks, embeddings, overrides and isolates (Unicode TR 9), and the line separators.
_DIRECTIONS = [
    "\u061c",
    "\u200e",
    "\u200f",
    *map(chr, range(0x2028, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
]


_ESCAPES = {
    ord(one): f"\\x{ord(one):02x}" if one.isascii() else f"\\u{ord(one):04x}"
    for one in [*_CONTROLS, *_DIRECTIONS]
    if one not in _UNESCAPED
}
# As in jq's @tsv: tabs and line feeds in a value are escaped.
_IN_LINE = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NO_OPERATORS = re.compile(r"[\w \-:,;=/@#%&'\"<>!~]*")

Search = Callable[[bytes], Any]


def for_terminal(body: bytes) -> bytes:
    """Return the body as UTF-8 without characters that control the terminal."""
    return body.decode("utf-8", "backslashreplace").translate(_ESCAPES).encode()


def for_terminal_line(body: bytes) -> bytes:
    r"""Like `for_terminal`, with line feeds and tabs shown as `\n` and `\t`."""
    return for_terminal(body).replace(b"\n", b"\\n").replace(b"\t", b"\\t")


# --- paths


def parse_path(text: str) -> tuple[object, ...]:
    """Return the steps of a path in jq's syntax. Raises ValueError.

    Examples: `.`, `.user.name`, `.tags[0]`, `.[-1]`, `.["a key"]`
    """
    steps, end = path_steps(text)
    if not text.startswith(".") or (end < len(text) and text != ".") or ANY in steps:
        raise ValueError(
            f'{text!r} is not a path such as .user.name, .tags[0] or .["a key"] (see its byte {end})'
        )
    return steps


def in_line(value: Any) -> bytes:
    """Return a value for a column: a string without its quotes, any other value as JSON."""
    if isinstance(value, str):
        return value.translate(_IN_LINE).encode("utf-8", "surrogatepass")
    return orjson.dumps(value)


# --- messages


def compile_search(pattern: str) -> Search:
    """Return a function that searches a body for `pattern`, an RE2 expression. Raises BadExpression.

    A pattern without operators is searched as plain text, which takes 0.1 us a body, where RE2 takes 4.
    """
    if _NO_OPERATORS.fullmatch(pattern):
        literal = pattern.encode("utf-8", "surrogateescape")
        return lambda body: literal in body
    search: Search = compiled(pattern).search
    return search


class Renderer:
    """Turns messages into bytes.

    not_json_count  number of bodies without values for --pick, because they are not JSON
    """

    def __init__(self, options: ShownOptions, on_terminal: bool | None = None) -> None:
        """`on_terminal`: the output is a terminal; by default, find out."""
        self.not_json_count = 0
        self._search = compile_search(options.grep) if options.grep else None
        self._picks = [parse_path(path) for path in options.pick]
        self._as_objects = options.jsonl
        self._print_topic = options.print_topic
        if on_terminal is None:
            self._is_terminal = is_terminal(sys.stdout)
        else:
            self._is_terminal = on_terminal
        self._limit = MessageLimit(options.n)

    @property
    def is_over(self) -> bool:
        """True if all messages of `-n` are shown."""
        return self._limit.is_over

    def show(self, messages: Columns) -> tuple[bytes, int]:
        """Return the bytes to write for a batch, and the number of its messages to finish."""
        matching = self.matching(messages.bodies)
        indexes, seen = self._limit.take(matching, len(messages))
        return self.render(messages, indexes), seen

    def matching(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Return the indexes of the bodies to show."""
        search = self._search
        if search is None:
            return range(len(bodies))
        return [index for index, body in enumerate(bodies) if search(body)]

    def render(self, messages: Columns, indexes: Sequence[int]) -> bytes:
        """Return the messages at these indexes, each followed by a line feed."""
        if not indexes:
            return b""
        if self._as_objects:
            lines: Sequence[bytes] = [line[:-1] for line in json_lines(messages)]
        else:
            lines = messages.bodies
        if len(indexes) < len(lines):
            lines = [lines[index] for index in indexes]
        if self._picks:
            lines = list(map(self._picked, lines))
        elif self._is_terminal:
            lines = list(map(for_terminal, lines))
        prefix = b""
        if self._print_topic:
            prefix = messages.topic.encode() + b" | "
        return prefix + (b"\n" + prefix).join(lines) + b"\n"

    def _picked(self, body: bytes) -> bytes:
        """Return the values at the paths, in columns."""
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            self.not_json_count += 1
            document = None
        found = [next(iter(values_at(document, path)), None) for path in self._picks]
        columns = [in_line(value) for value in found]
        shown = map(for_terminal_line, columns) if self._is_terminal else columns
        return b"\t".join(shown)


def check_shown(options: ShownOptions) -> None:
    """Raise BadOptions for a pattern or a path that is not valid, and for options that contradict each other."""
    if options.jsonl and (options.pick or options.print_topic):
        raise BadOptions(f"use --jsonl or --{'pick' if options.pick else 'print-topic'} not both")
    checks = (("grep", compile_search, (options.grep,)), ("pick", parse_path, options.pick))
    for flag, parse, texts in checks:
        for text in texts:
            with bad_options(f"--{flag}: "):
                parse(text)


class MessageLimit:
    """The number of messages that are still to be shown, from `-n`; 0 or less means no limit."""

    def __init__(self, count: int) -> None:
        self._left = count if count > 0 else None

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def take(self, matching: Sequence[int], count: int) -> tuple[Sequence[int], int]:
        """Return the indexes to show from a batch of `count` messages, and the number of messages to finish.

        Messages after the last one that is shown are not finished, so that other consumers get them.
        """
        if self._left is None:
            return matching, count
        if len(matching) < self._left:
            self._left -= len(matching)
            return matching, count
        shown = matching[: self._left]
        self._left = 0
        return shown, shown[-1] + 1 if shown else 0
