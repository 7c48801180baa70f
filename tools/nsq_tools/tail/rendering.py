r"""Messages become the bytes to show: `--grep`, `--pick`, `--json`, `--format`, escaping for terminals. Pure.

Bodies are escaped on a terminal: without that, a message could clear the screen, overwrite lines, change the window's
title or send input. Line feeds and tabs stay; other control characters become `\x1b`, invalid UTF-8 `\xff`, and
characters that change the direction of text `\u202e`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from nsq_tools.columns import Columns
from nsq_tools.tail import json_text
from nsq_tools.tail.json_text import Path, in_line, pick
from nsq_tools.tail.template import Template, iso_times
from nsqd_py.settings.regex import compiled

_KEPT = "\t\n"
_CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
# Direction marks, embeddings, overrides and isolates (Unicode TR 9), and the line separators.
_DIRECTIONS = ["\u061c", "\u200e", "\u200f", *map(chr, range(0x2028, 0x202F)), *map(chr, range(0x2066, 0x206A))]


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


_ESCAPES = str.maketrans({c: _shown(c) for c in [*_CONTROLS, *_DIRECTIONS] if c not in _KEPT})


def for_terminal(body: bytes) -> bytes:
    """Return the body as UTF-8 without characters that control the terminal."""
    return body.decode("utf-8", "backslashreplace").translate(_ESCAPES).encode()


def for_terminal_line(body: bytes) -> bytes:
    r"""Like `for_terminal`, with line feeds and tabs shown as `\n` and `\t`."""
    return for_terminal(body).replace(b"\n", b"\\n").replace(b"\t", b"\\t")


_NO_OPERATORS = re.compile(r"[\w \-:,;=/@#%&'\"<>!~]*")
_TOPIC_COLOUR = b"36"

Transform = Callable[[bytes], bytes]
Search = Callable[[bytes], Any]


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

    def __init__(
        self,
        *,
        search: Search | None = None,
        picks: Sequence[Path] = (),
        as_json: bool = False,
        template: Template | None = None,
        print_topic: bool = False,
        is_terminal: bool = False,
        has_colour: bool = False,
    ) -> None:
        self.not_json_count = 0
        self._search = search
        self._picks = picks
        self._template = template
        self._print_topic = print_topic
        self._is_terminal = is_terminal
        self._has_colour = has_colour
        self._transforms = self._choose_transforms(as_json)

    # --- selection

    def matching(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Return the indexes of the bodies to show."""
        search = self._search
        if search is None:
            return range(len(bodies))
        return [index for index, body in enumerate(bodies) if search(body)]

    # --- layout

    def render(self, messages: Columns, indexes: Sequence[int]) -> bytes:
        """Return the messages at these indexes, each followed by a line feed."""
        if not indexes:
            return b""
        bodies = self._bodies(_chosen(messages.bodies, indexes))
        if self._template is not None:
            columns = [self._column(field, messages, indexes, bodies) for field in self._template.fields]
            bodies = self._template.lines(columns) if columns else self._template.lines_without_fields(len(indexes))
        prefix = self._prefix(messages.topic)
        return prefix + (b"\n" + prefix).join(bodies) + b"\n"

    def _bodies(self, bodies: Sequence[bytes]) -> list[bytes]:
        shown: Iterable[bytes] = bodies
        for transform in self._transforms:
            shown = map(transform, shown)
        return list(shown)

    def _choose_transforms(self, as_json: bool) -> list[Transform]:
        transforms: list[Transform] = []
        if self._picks:
            transforms.append(self._picked_document if as_json else self._picked_columns)
        if as_json:
            transforms.append(self._json)
        elif self._is_terminal and not self._picks:
            transforms.append(for_terminal)
        return transforms

    def _picked_columns(self, body: bytes) -> bytes:
        columns = map(in_line, self._picked(body))
        return b"\t".join(map(for_terminal_line, columns) if self._is_terminal else columns)

    def _picked_document(self, body: bytes) -> bytes:
        values = self._picked(body)
        return orjson.dumps(values if len(values) > 1 else values[0])

    def _picked(self, body: bytes) -> list[Any]:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            self.not_json_count += 1
            document = None
        return [pick(document, path) for path in self._picks]

    def _json(self, body: bytes) -> bytes:
        """Return JSON in many lines for a terminal and in one line for a pipe, and other bodies as without --json."""
        if not json_text.is_json(body):
            return for_terminal(body) if self._is_terminal else body
        return json_text.pretty(body, self._paint) if self._is_terminal else json_text.compact(body)

    def _paint(self, token: bytes, colour: bytes) -> bytes:
        shown = for_terminal(token)
        return json_text.coloured(shown, colour) if self._has_colour else shown

    def _prefix(self, topic: str) -> bytes:
        if not self._print_topic:
            return b""
        name = topic.encode()
        return (json_text.coloured(name, _TOPIC_COLOUR) if self._has_colour else name) + b" | "

    def _column(self, field: str, messages: Columns, indexes: Sequence[int], bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Return the value of a template field for each message."""
        if field == "body":
            return bodies
        if field in _OF_ALL:
            return [for_terminal_line(_OF_ALL[field](messages).encode())] * len(indexes)
        values = _chosen(_OF_EACH[field](messages), indexes)
        return [for_terminal_line(value) for value in values] if self._is_terminal and field == "id" else values


_OF_ALL: dict[str, Callable[[Columns], str]] = {
    "topic": lambda messages: messages.topic,
    "channel": lambda messages: messages.channel,
    "nsqd": lambda messages: messages.nsqd,
}
_OF_EACH: dict[str, Callable[[Columns], Sequence[bytes]]] = {
    "id": lambda messages: messages.ids,
    "attempts": lambda messages: [b"%d" % attempts for attempts in messages.attempts],
    "timestamp": lambda messages: iso_times(messages.timestamps_ns),
    "timestamp_ns": lambda messages: [b"%d" % timestamp_ns for timestamp_ns in messages.timestamps_ns],
}


def _chosen(column: Sequence[bytes], indexes: Sequence[int]) -> Sequence[bytes]:
    return column if len(indexes) == len(column) else [column[index] for index in indexes]


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
