"""Options as Spark gives them: texts, and their names in lower case. A name that is not known is refused: with a wrong one,
other messages would be read than were asked for.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from nsq_spark.archive.splits import ArchiveError, Names
from nsqd_py.settings.durations import SECOND_NS, parse_duration, parse_time

Texts: TypeAlias = Mapping[str, str]
TIME_ZONE = "timeZone"
PARALLELISM = "parallelism"
_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ][\d:.]+)?")
# What Spark itself adds, and an option of Kafka's source that may only be false.
_INCLUDE_HEADERS = "includeHeaders"
_SPARKS_OWN = (
    "path",
    "checkpointLocation",
    "queryName",
    "outputMode",
    TIME_ZONE,
    PARALLELISM,
    _INCLUDE_HEADERS,
)


class BadOption(ValueError):
    """An option that does not exist, is missing, or cannot have its value; the text names it."""


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Raise what checks of an option raise as BadOption, which names the option."""
    try:
        yield
    except BadOption:
        raise
    except (ArchiveError, ValueError) as error:
        raise BadOption(f"nsq: option {name}: {error}") from None


# ---- kinds of options: functions that parse a text, and raise ValueError or ArchiveError


def at_least_one(parse: Callable[[str], int]) -> Callable[[str], int]:
    def parse_checked(text: str) -> int:
        value = parse(text)
        if value < 1:
            raise ValueError("expected 1 or more")
        return value

    return parse_checked


def parse_seconds(text: str) -> float:
    return parse_duration(text) / SECOND_NS


def parse_list(text: str) -> Names:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_paths(text: str) -> Names:
    """Return the paths of `load([...])`, which Spark gives as JSON."""
    paths = json.loads(text)
    if not isinstance(paths, list):
        raise ValueError("expected a list in JSON")
    return tuple(map(str, paths))


@dataclass(frozen=True)
class Option:
    """An option. `default` is as a user would write it, "" for none; `aliases` are Kafka's names for it."""

    name: str
    parse: Callable[[str], Any]
    default: str
    meaning: str
    aliases: Names = ()


class Values:
    """Options by their documented names, parsed. Raises BadOption."""

    def __init__(self, given: Texts, declared: Sequence[Option], prefixes: Names) -> None:
        self._declared = {option.name: option for option in declared}
        self._given = {name.lower(): value for name, value in given.items()}
        for option in declared:
            for alias in option.aliases:
                value = self._given.pop(alias.lower(), None)
                if value is not None and self._given.setdefault(option.name.lower(), value) != value:
                    raise BadOption(
                        f"nsq: options {option.name} and {alias} are the same, but have two values"
                    )
        self._check_names(prefixes)

    def _check_names(self, prefixes: Names) -> None:
        known = {name.lower(): name for name in (*self._declared, *_SPARKS_OWN)}
        for name in self._given:
            if name not in known and not name.startswith(prefixes):
                near = difflib.get_close_matches(name, known, n=1)
                if near:
                    hint = f"; is it {known[near[0]]}?"
                else:
                    hint = f" (there are {', '.join(self._declared)})"
                raise BadOption(f"nsq: there is no option {name}{hint}")
        if self._given.get(_INCLUDE_HEADERS.lower(), "false").lower() != "false":
            raise BadOption(
                f"nsq: option {_INCLUDE_HEADERS}: NSQ's messages have no headers, so it may only be false"
            )

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option. If it is not given and has no default: None, or an empty list."""
        option = self._declared[name]
        text = self._given.get(name.lower(), option.default)
        if option.default and not text.strip():
            raise BadOption(f"nsq: option {name} is empty: leave it out for the default, {option.default}")
        with errors_of(f"{name} ({text!r})"):
            if text or option.parse is parse_list:
                return option.parse(text)
            return None

    def time(self, name: str, now_ns: int) -> int | None:
        text: str | None = self[name]
        with errors_of(name):
            if text:
                return parse_time(self._with_offset(text.strip()), now_ns)
            return None

    def _with_offset(self, text: str) -> str:
        """Return a time with the offset of the time zone, if it has none. Raises ValueError."""
        if not _WITHOUT_OFFSET.fullmatch(text):
            return text
        zone = self[TIME_ZONE]
        if zone is None:
            raise ValueError(f"{text!r} has no offset: append Z or +02:00, or set the option timeZone")
        if len(text) == len("2024-07-01"):
            text += "T00:00"
        return text + datetime.fromisoformat(text).replace(tzinfo=zone).isoformat()[-len("+02:00") :]

    def with_prefix(self, prefix: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self._given.items() if name.startswith(prefix)]
