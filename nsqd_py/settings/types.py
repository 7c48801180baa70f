"""Kinds of settings: how a value is read from a flag and from a config file, and how it is shown.

All functions that read a value raise ValueError with a text that says what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from nsqd_py.runtime.logs.hidden import (
    hidden_option,
    hidden_path,
    hidden_spark_setting,
    hidden_url,
    hidden_value,
)
from nsqd_py.settings.durations import (
    MAX_NS,
    MILLISECOND_NS,
    MIN_NS,
    format_duration,
    parse_duration,
    parse_period,
)

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)

# The words that Go's strconv.ParseBool takes.
TRUE_WORDS = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS = frozenset(("0", "f", "F", "false", "FALSE", "False"))

T = TypeVar("T")

Strings = tuple[str, ...]  # the values of a flag that may be given several times


def _last(values: Sequence[Any]) -> Any:
    return values[-1]


class Kind(NamedTuple, Generic[T]):
    """One kind of setting, whose values are of the type T.

    word: the placeholder of the value in `--help`.
    parse: read the text of one flag. A config file may contain the same text instead of a native value, as in Go.
    from_native: read a value of a config file that is not a string.
    show: write a value as a user would.
    join: combine the values of a flag that is given several times.
    bare_value: the text that the flag means without a value; None if it needs one.
    attribute_suffix: the unit at the end of the attribute's name, such as `_ns`.
    choices: all valid words, if there are few; used by completion.
    hide: for a text, or several, that must not be shown as it is: return it without its secrets.
    """

    word: str
    parse: Callable[[str], Any]
    from_native: Callable[[Any], T]
    show: Callable[[T], str]
    join: Callable[[Sequence[Any]], T] = _last
    bare_value: str | None = None
    attribute_suffix: str = ""
    choices: tuple[str, ...] = ()
    hide: Callable[[str], str] | None = None

    def shown(self, value: Any) -> Any:
        """Return a value without its secrets, of the same type."""
        if self.hide is None:
            return value
        return self.hide(value) if isinstance(value, str) else tuple(map(self.hide, value))

    def from_config(self, value: object) -> T:
        """Return the value that a config file gives: a string, or a native value."""
        if isinstance(value, str):
            return self.join([self.parse(value)])
        return self.from_native(value)


def choice(words: Mapping[str, T], *, word: str, from_native: Callable[[Any], T] | None = None) -> Kind[T]:
    """Return a kind that takes a fixed set of words, in upper or lower case. `words` maps them to values."""

    def parse(text: str) -> T:
        try:
            return words[text.lower()]
        except KeyError:
            raise ValueError(f"expected one of {', '.join(known)}") from None

    def show(value: T) -> str:
        return next((name for name, meant in words.items() if meant == value and name), "")

    known = tuple(filter(None, words))
    return Kind(word, parse, from_native or _refuse(f"one of {', '.join(known)}"), show, choices=known)


def _refuse(expected: str) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        raise ValueError(f"expected {expected}")

    return refuse


def _quoted(text: str) -> str:
    return f'"{text}"'


def parse_bool(text: str) -> bool:
    """Return the boolean that `text` writes, as Go's flags do. Raises ValueError."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError("expected true or false")


def parse_int(text: str) -> int:
    """Return a whole number of 64 bits. 0x1f, 0o17, 017, 0b1 and 1_000 are numbers too. Raises ValueError."""
    digits = text.lstrip("+-")
    is_old_octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_"
    try:
        value = int(text, 8 if is_old_octal else 0)
    except ValueError:
        raise ValueError("expected a whole number") from None
    return _in_range(value, MIN_INT, MAX_INT)


_SIZE = re.compile(r"([0-9]+)([kKmMgGtT])(i?)[bB]?")


def parse_size(text: str) -> int:
    """Return a number of bytes: 1000, 64k or 10MB (powers of 1000), 64KiB or 1GiB (of 1024). Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        try:
            return parse_int(text)
        except ValueError:
            raise ValueError("expected a number of bytes such as 1000, 10MB or 1GiB, in range") from None
    number, unit, binary = match.groups()
    return _in_range(
        int(number) * (1024 if binary else 1000) ** ("kmgt".index(unit.lower()) + 1), MIN_INT, MAX_INT
    )


# Units, and the decimals of each.
_SIZE_STEPS = (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))


def size_text(size_bytes: float) -> str:
    """Return the size with its unit: `512 B`, `1.5 MB`."""
    step = 0
    while size_bytes >= 999.5 and step < len(_SIZE_STEPS) - 1:
        size_bytes /= 1000
        step += 1
    unit, digits = _SIZE_STEPS[step]
    return f"{size_bytes:.{digits}f} {unit}"


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


def _strings_from_native(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("expected a list of strings")
    return tuple(value)


class _Strings(Kind[tuple[str, ...]]):
    """A list of strings. A string in a config file is split at commas; the value of a flag is not."""

    def from_config(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(map(self.parse, value.split(","))) if value else ()
        return tuple(map(self.parse, self.from_native(value)))


def _parse_floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise ValueError("expected numbers, with commas between them") from None


def _floats_from_native(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
        raise ValueError("expected a list of numbers")
    return tuple(float(item) for item in value)


def _listed(values: Sequence[object]) -> str:
    return ",".join(str(value) for value in values) or "none"


class ByTopic(NamedTuple, Generic[T]):
    """A value that can differ by topic.

    otherwise: the value of topics that no rule matches.
    rules: pairs of a pattern and a value, in the order in which they were given; the first match decides.
        A pattern is a topic name in which `*` stands for any characters and `?` for one.
    """

    otherwise: T
    rules: tuple[tuple[str, T], ...] = ()

    def of(self, topic: str) -> T:
        """Return the value for a topic."""
        for pattern, value in self.rules:
            if fnmatchcase(topic, pattern):
                return value
        return self.otherwise

    @property
    def values(self) -> tuple[T, ...]:
        """All values, without their patterns."""
        return (self.otherwise, *(value for _, value in self.rules))


def by_topic(kind: Kind[T], otherwise: T) -> Kind[ByTopic[T]]:
    """Return a kind whose values can differ by topic: a value for all topics, `PATTERN=VALUE` for some."""

    def parse(text: str) -> tuple[str, T]:
        pattern, equals, value = text.rpartition("=")
        if equals and not pattern:
            raise ValueError("expected a topic name or pattern before the =")
        return pattern, kind.parse(value)

    def join(given: Sequence[tuple[str, T]]) -> ByTopic[T]:
        plain = [value for pattern, value in given if not pattern]
        return ByTopic(plain[-1] if plain else otherwise, tuple(rule for rule in given if rule[0]))

    def from_native(value: Any) -> ByTopic[T]:
        items = value if isinstance(value, list) else [value]
        return join(
            [parse(item) if isinstance(item, str) else ("", kind.from_native(item)) for item in items]
        )

    def show(value: ByTopic[T]) -> str:
        rules = [f"{pattern}={kind.show(one)}" for pattern, one in value.rules]
        return ",".join([*rules, kind.show(value.otherwise)])

    word = f"[topic=]{kind.word} ..."
    return Kind(word, parse, from_native, show, join=join, attribute_suffix=kind.attribute_suffix)


def read_secret(text: str) -> str:
    """Return the text, or, for `@path`, the content of that file. Raises ValueError.

    White space at the ends of a file is left out, and so is a byte order mark, with which editors on Windows begin a file.
    """
    if not text.startswith("@"):
        return text
    try:
        with open(text[1:], encoding="utf-8-sig") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {text[1:]}: {getattr(error, 'strerror', None) or error}") from error


def _secret(hide: Callable[[str], str]) -> Kind[str]:
    return Kind("string", read_secret, _refuse("a string"), lambda value: _quoted(hide(value)), hide=hide)


def _secrets(hide: Callable[[str], str]) -> Kind[tuple[str, ...]]:
    return _Strings(
        "string ...",
        read_secret,
        _strings_from_native,
        lambda values: _listed(list(map(hide, values))),
        join=tuple,
        hide=hide,
    )


STRING: Kind[str] = Kind("string", str, _refuse("a string"), _quoted)
INT: Kind[int] = Kind("int", parse_int, _int_from_native, str)
SIZE: Kind[int] = Kind("size", parse_size, _int_from_native, str)
BOOL: Kind[bool] = Kind(
    "[=bool]", parse_bool, _bool_from_native, lambda value: str(value).lower(), bare_value="true"
)
DURATION: Kind[int] = Kind(
    "duration", parse_duration, _duration_from_native, format_duration, attribute_suffix="_ns"
)
PERIOD: Kind[int] = Kind(
    "duration", parse_period, _duration_from_native, format_duration, attribute_suffix="_ns"
)
STRINGS = _Strings("string ...", str, _strings_from_native, _listed, join=tuple)
# Values that may contain secrets. They are hidden wherever they are shown, and may be read from a file: `@path`.
URL = _secret(hidden_url)
WEBHOOK = _secret(hidden_path)
URLS = _secrets(hidden_url)
NAMED_SECRETS = _secrets(hidden_value)
SPARK_SETTINGS = _secrets(hidden_spark_setting)
CLIENT_OPTIONS = _secrets(hidden_option)
# Largest first: the order in which Go's nsqd shows percentiles in /stats.
FLOATS: Kind[tuple[float, ...]] = Kind(
    "float,...",
    _parse_floats,
    _floats_from_native,
    _listed,
    lambda values: tuple(sorted(chain(*values), reverse=True)),
)
# OpenSSL's security levels. From a native value as text, so that true is not 1.
OPENSSL_DEFAULT = -1
TLS_LEVELS = {"default": OPENSSL_DEFAULT, **{str(level): level for level in range(6)}}
TLS_LEVEL: Kind[int] = choice(TLS_LEVELS, word="level", from_native=lambda value: TLS_LEVEL.parse(str(value)))
