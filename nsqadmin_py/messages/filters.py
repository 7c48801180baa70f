"""Filters of messages by their bodies: a text, a regular expression, a value in JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from nsqadmin_py.messages.json_path import MOST_CHARACTERS, BadFilter, parse_json_path
from nsqd_py.settings.regex import BadExpression, compiled

# The beginning of a body, in which an expression is searched for.
MOST_MATCHED_BYTES = 256 * 1024
# Larger bodies are not parsed as JSON.
MOST_PARSED_BYTES = 1024 * 1024
_EXPRESSION_BYTES = 256 * 1024


class MessageFilter:
    """Chooses bodies. Without any field, all of them are chosen."""

    def __init__(self, text: str = "", regex: str = "", path: str = "") -> None:
        """Raises BadFilter."""
        if len(text) > MOST_CHARACTERS:
            raise BadFilter(f"a text has at most {MOST_CHARACTERS} characters", "text")
        self._text = text.encode("utf-8", "surrogateescape")
        self._tests: list[Callable[[bytes], bool]] = []
        if text:
            self._tests.append(self.may_match)
        if regex:
            self._tests.append(_regex_test(regex))
        if path:
            self._tests.append(_path_test(path))

    def may_match(self, bodies: bytes) -> bool:
        """False if no part of these bytes can match: a text is searched for in a whole batch at once."""
        return self._text in bodies

    def matches(self, body: bytes) -> bool:
        return all(test(body) for test in self._tests)


def _regex_test(regex: str) -> Callable[[bytes], bool]:
    if len(regex) > MOST_CHARACTERS:
        raise BadFilter(f"a regular expression has at most {MOST_CHARACTERS} characters", "regex")
    try:
        pattern = compiled(regex, most_bytes=_EXPRESSION_BYTES, captures=False)
    except (BadExpression, UnicodeEncodeError) as error:
        raise BadFilter(str(error), "regex") from error
    return lambda body: pattern.search(body[:MOST_MATCHED_BYTES]) is not None


def _path_test(text: str) -> Callable[[bytes], bool]:
    path = parse_json_path(text)

    def test(body: bytes) -> bool:
        if len(body) > MOST_PARSED_BYTES:
            return False
        try:
            document: Any = orjson.loads(body)
        except ValueError:
            return False
        return path.matches(document)

    return test
