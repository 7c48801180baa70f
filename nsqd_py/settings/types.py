"""Kinds of settings: how a value is read from a flag and from a config file, and how it is shown.

All readers raise ValueError with a text that says what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsqd_py.runtime.logs import JSON, LEVELS, TEXT, level_word, parse_level
from nsqd_py.settings.durations import MAX_NS, MILLISECOND_NS, MIN_NS, format_duration, parse_duration
from nsqd_py.settings.literals import parse_bool

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)


def last(values: Sequence[Any]) -> Any:
    return values[-1]


@dataclass(frozen=True)
class Kind:
    """One kind of setting.

    word: stands for the value in `--help`.
    parse: reads the text of one flag, which a config file may have too in place of a native value, as in Go.
    from_native: reads a value of a config file that is no text.
    show: writes a value for people, as it would be given.
    join: makes one value of those of a flag that was repeated.
    bare_value: what the flag means without a value; None where it needs one.
    choices: all values that there are, where they can be counted; for completion in a shell.
    """

    word: str
    parse: Callable[[str], Any]
    from_native: Callable[[Any], Any]
    show: Callable[[Any], str]
    join: Callable[[Sequence[Any]], Any] = last
    bare_value: str | None = None
    attribute_suffix: str = ""
    choices: tuple[str, ...] = ()

    def from_config(self, value: object) -> Any:
        if isinstance(value, str):
            return self.join([self.parse(value)])
        return self.from_native(value)


def choice(words: Mapping[str, Any], *, word: str, from_native: Callable[[Any], Any] | None = None) -> Kind:
    """A kind with one value for each of some words, in upper or lower case."""

    def parse(text: str) -> Any:
        try:
            return words[text.lower()]
        except KeyError:
            raise ValueError(f"expected one of {', '.join(known)}") from None

    def show(value: Any) -> str:
        return next((name for name, meant in words.items() if meant == value and name), "")

    known = tuple(filter(None, words))
    return Kind(word, parse, from_native or _refuse(f"one of {', '.join(known)}"), show, choices=known)


def _refuse(expected: str) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        raise ValueError(f"expected {expected}")

    return refuse


def _quoted(text: str) -> str:
    return f'"{text}"'


def parse_int(text: str) -> int:
    """A whole number of 64 bits, also as 0x1f, 0o17, 017, 0b1 and 1_000."""
    digits = text.lstrip("+-")
    is_old_octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_"
    try:
        value = int(text, 8 if is_old_octal else 0)
    except ValueError:
        raise ValueError("expected a whole number") from None
    return _in_range(value, MIN_INT, MAX_INT)


def _int_from_native(value: Any) -> int:
    if type(value) is not int:  # a bool is an int
        raise ValueError("expected a whole number")
    return _in_range(value, MIN_INT, MAX_INT)


def _in_range(value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise ValueError("the number is out of range")
    return value


def _bool_from_native(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def _duration_from_native(value: Any) -> int:
    # A number without a unit is in milliseconds, as Go's nsqd reads it.
    if type(value) is not int:
        raise ValueError("expected a duration such as 60s, or a number of milliseconds")
    return _in_range(value * MILLISECOND_NS, MIN_NS, MAX_NS)


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _strings_from_native(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("expected a list of strings")
    return tuple(value)


def _all_strings(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(values)


class _Strings(Kind):
    """In a config file, one text holds several values; a flag holds one, as it may contain commas."""

    def from_config(self, value: object) -> Any:
        return _split(value) if isinstance(value, str) else self.from_native(value)


def _parse_floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise ValueError("expected numbers, with commas between them") from None


def _floats_from_native(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
        raise ValueError("expected a list of numbers")
    return tuple(float(item) for item in value)


def _all_floats(values: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    # The largest first, as clients of Go's nsqd see the percentiles in /stats.
    return tuple(sorted((item for group in values for item in group), reverse=True))


def _listed(values: Sequence[object]) -> str:
    return ",".join(str(value) for value in values) or "none"


STRING = Kind("string", str, _refuse("a string"), _quoted)
INT = Kind("int", parse_int, _int_from_native, str)
BOOL = Kind("[=bool]", parse_bool, _bool_from_native, lambda value: str(value).lower(), bare_value="true")
DURATION = Kind("duration", parse_duration, _duration_from_native, format_duration, attribute_suffix="_ns")
STRINGS = _Strings("string ...", str, _strings_from_native, _listed, join=_all_strings)
FLOATS = Kind("float,...", _parse_floats, _floats_from_native, _listed, join=_all_floats)
LOG_LEVEL = Kind("level", parse_level, _refuse(f"one of {', '.join(LEVELS)}"), level_word, choices=tuple(LEVELS))
LOG_FORMAT = choice({TEXT: TEXT, JSON: JSON}, word="format")
