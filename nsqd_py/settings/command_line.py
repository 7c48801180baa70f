"""The flags of a command line, in the forms of Go's flag package.

`-name value`, `-name=value`, `--name=value`, and `-name` alone for a boolean. A value may begin with a dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.flags import suggestion

_HELP_FLAGS = ("help", "h")


class BadFlag(Exception):
    """A flag or an argument that the program does not take."""


class BadValue(Exception):
    """The value of a flag that is not of its kind."""


def read_flags(
    argv: Sequence[str], settings: Sequence[Setting], argument: Setting | None, removed: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the values of the flags, by attribute; None if there is `--help`. Raises BadFlag and BadValue.

    argument  the setting whose values are the words without a dash, if the program has one
    removed   what to use instead of flags that former versions had, by name
    """
    by_name = {one.name: one for one in settings}
    given: dict[Setting, list[Any]] = {}
    words = iter(argv)
    has_flags = True
    for word in words:
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        found = by_name.get(name)
        if word == "--" and has_flags:
            has_flags = False
            continue
        if not (has_flags and word.startswith("-")) or word == "-":
            if argument is None:
                raise BadFlag(f"Got unexpected extra argument ({word})")
            found, value = argument, word
        elif name in _HELP_FLAGS:
            return None
        elif name in removed:
            raise BadFlag(f"--{name} was removed: {removed[name]}")
        elif found is None:
            raise BadFlag(f"No such option '--{name}'{suggestion(name, by_name)}")
        elif not equals:
            bare = next(words, None) if found.kind.bare_value is None else found.kind.bare_value
            if bare is None:
                raise BadFlag(f"Option '--{name}' requires an argument.")
            value = bare
        try:
            given.setdefault(found, []).append(found.kind.parse(value))
        except ValueError as error:
            raise BadValue(f"Invalid value for '--{found.name}': \"{found.kind.shown(value)}\": {error}") from None
    return {one.attribute: one.kind.join(values) for one, values in given.items()}
