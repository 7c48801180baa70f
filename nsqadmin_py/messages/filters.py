"""Which bodies are wanted: those with a text, a match of a regular expression, and a value at a JSON path.

The regular expressions are those of RE2, as in Go. RE2 needs time proportional to the body; a pathological expression
needs 2 s of a core for a body of 1 MiB, so the size of expressions and of the text that they see is limited. RE2 lets
other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from nsqadmin_py.messages.json_path import BadPath, parse_json_path
from nsqd_py.settings.regex import BadExpression, compiled

MOST_CHARACTERS = 1000
# The beginning of a body, in which an expression is looked for.
MOST_MATCHED_BYTES = 256 * 1024
# Larger bodies are not parsed as JSON.
MOST_PARSED_BYTES = 1024 * 1024
_EXPRESSION_BYTES = 256 * 1024


class BadFilter(ValueError):
    """A filter that cannot be used; `name` is that of its field, str(error) says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class MessageFilter:
    """Chooses bodies. Without any field, all of them are wanted."""

    def __init__(self, text: str = "", regex: str = "", path: str = "") -> None:
        """Raises BadFilter."""
        if len(text) > MOST_CHARACTERS:
            raise BadFilter("text", f"a text has at most {MOST_CHARACTERS} characters")
        self._text = text.encode("utf-8", "surrogateescape")
        self._tests: list[Callable[[bytes], bool]] = []
        if text:
            self._tests.append(self._has_text)
        if regex:
            self._tests.append(_regex_test(regex))
        if path:
            self._tests.append(_path_test(path))

    @property
    def is_empty(self) -> bool:
        return not self._tests

    def may_match(self, bodies: bytes) -> bool:
        """False if no part of these bytes can match: a text is then looked for in all messages of a batch at once."""
        return self._text in bodies

    def matches(self, body: bytes) -> bool:
        return all(test(body) for test in self._tests)

    def _has_text(self, body: bytes) -> bool:
        return self._text in body


def _regex_test(regex: str) -> Callable[[bytes], bool]:
    if len(regex) > MOST_CHARACTERS:
        raise BadFilter("regex", f"a regular expression has at most {MOST_CHARACTERS} characters")
    try:
        pattern = compiled(regex, most_bytes=_EXPRESSION_BYTES, captures=False)
    except (BadExpression, UnicodeEncodeError) as error:
        raise BadFilter("regex", str(error)) from error
    return lambda body: pattern.search(body[:MOST_MATCHED_BYTES]) is not None


def _path_test(text: str) -> Callable[[bytes], bool]:
    try:
        path = parse_json_path(text)
    except BadPath as error:
        raise BadFilter("path", str(error)) from error

    def test(body: bytes) -> bool:
        if len(body) > MOST_PARSED_BYTES:
            return False
        try:
            document: Any = orjson.loads(body)
        except ValueError:
            return False
        return path.matches(document)

    return test
