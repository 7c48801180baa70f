"""File names: patterns of paths, as a shell and Hadoop write them, and the time in a name.

`*` and `?` match within a name, `**` through directories, `[a-z]`, `[!a-z]`, `{one,other}`. As nsq_to_file writes it,
2024-01-31_13 is an hour and 2024-01-31 a day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nsq_spark.archive.damage import ArchiveError
from nsqd_py.settings.durations import SECOND_NS

_SPECIAL = re.compile(r"[*?\[{]")
_TOKEN = re.compile(r"\*\*/|\*\*|\[(?P<negation>[!^]?)(?P<characters>\]?[^\]]+)\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def is_glob(path: str) -> bool:
    return bool(_SPECIAL.search(path))


def base_of(pattern: str) -> str:
    """Return the directory that all matches are in."""
    match = _SPECIAL.search(pattern)
    return pattern[: pattern.rfind("/", 0, match.start()) + 1] if match else pattern


def compiled_glob(pattern: str) -> re.Pattern[str]:
    """Return an expression for the paths of files that the pattern names, and of all files in directories that it
    names.
    """
    parts, open_braces = [], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text in _WILDCARDS:
            parts.append(_WILDCARDS[text])
        elif token["characters"]:
            escaped = re.sub(r"([\\\[\]])", r"\\\1", token["characters"])
            parts.append(f"(?!/)[{'^' if token['negation'] else ''}{escaped}]")
        elif text == "{" and "}" in pattern[token.end() :]:
            parts.append("(?:")
            open_braces += 1
        elif text == "}" and open_braces:
            parts.append(")")
            open_braces -= 1
        else:
            parts.append("|" if text == "," and open_braces else re.escape(text))
    return re.compile(f"{''.join(parts)}{')' * open_braces}(?:/.*)?", re.DOTALL)


# ---- the time in a file name

_TIME = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)(?:[_T](\d\d)(?:[-_:]?(\d\d))?)?(?!\d)")


def zone_of(name: str) -> tzinfo:
    """Raises ArchiveError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such zone is a KeyError, and an OSError on some systems
        raise ArchiveError(f"{name!r} is no time zone; it has to be a name such as UTC or Europe/Rome") from None


def time_in(name: str, zone: tzinfo) -> tuple[int, int] | None:
    """Return (first, end) of the last time in a file name, in ns since the epoch, `end` not included; None if there is
    none.
    """
    for day, hour, minute in reversed(_TIME.findall(name)):
        try:
            begin = datetime.fromisoformat(f"{day}T{hour or '00'}:{minute or '00'}").replace(tzinfo=zone)
        except ValueError:
            continue
        if hour:
            end = begin.astimezone(UTC) + (timedelta(minutes=1) if minute else timedelta(hours=1))
        else:
            end = begin + timedelta(days=1)  # of 23 or 25 hours, when clocks change
        return int(begin.timestamp()) * SECOND_NS, int(end.timestamp()) * SECOND_NS
    return None
