"""Kinds of settings: how a value is read from a flag and from a config file, and how it is shown.

A kind is a `Kind`; `choice` and `secret` make some. `by_topic` makes a kind of values that differ by topic, `ByTopic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeVar

from nsqd_py.settings.values import listed, quoted, read_secret, strings_from_native

T = TypeVar("T")


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
    attribute_suffix: the unit at the end of the attribute's name, such as _ns.
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
        if isinstance(value, str):
            return self.hide(value)
        return tuple(map(self.hide, value))

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
        names = (name for name, meant in words.items() if meant == value and name)
        return next(names, "")

    known = tuple(filter(None, words))
    return Kind(word, parse, from_native or refuse(f"one of {', '.join(known)}"), show, choices=known)


def refuse(expected: str) -> Callable[[Any], Any]:
    """Return a function that refuses any native value."""

    def fail(value: Any) -> Any:
        raise ValueError(f"expected {expected}")

    return fail


class StringList(Kind[tuple[str, ...]]):
    """A list of strings. A string in a config file is split at commas; the value of a flag is not."""

    def from_config(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            if value:
                return tuple(map(self.parse, value.split(",")))
            return ()
        return tuple(map(self.parse, self.from_native(value)))


def secret(hide: Callable[[str], str]) -> Kind[str]:
    """Return a kind of texts that `hide` shows without their secrets, and that may be read from a file: `@path`."""
    return Kind("string", read_secret, refuse("a string"), lambda value: quoted(hide(value)), hide=hide)


def secrets(hide: Callable[[str], str]) -> Kind[tuple[str, ...]]:
    """Return a kind of lists of such texts."""
    return StringList(
        "string ...",
        read_secret,
        strings_from_native,
        lambda values: listed(list(map(hide, values))),
        join=tuple,
        hide=hide,
    )


# ---- values that can differ by topic


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
        rules = tuple(rule for rule in given if rule[0])
        return ByTopic(plain[-1] if plain else otherwise, rules)

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
