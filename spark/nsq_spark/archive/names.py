"""File names: patterns of paths, as a shell and Hadoop write them, and the time in a name.

`*` and `?` match within a name, `**` through directories, `[a-z]`, `[!a-z]`, `{one,other}`. As nsq_to_file writes it,
2024-01-31_13 is an hour and 2024-01-31 a day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nsq_spark.archive.damage import ArchiveError

_SPECIAL = re.compile(r"[*?\[{]")


def is_glob(path: str) -> bool:
    return bool(_SPECIAL.search(path))


def base_of(pattern: str) -> str:
    """The directory that everything which matches is in."""
    match = _SPECIAL.search(pattern)
    return pattern[: pattern.rfind("/", 0, match.start()) + 1] if match else pattern


def compiled_glob(pattern: str) -> re.Pattern[str]:
    """Matches the paths of files that the pattern names, and of all files in directories that it names."""
    translated, _ = _translated(pattern, 0, end="")
    return re.compile(rf"{translated}(?:/.*)?", re.DOTALL)


def _translated(pattern: str, position: int, end: str) -> tuple[str, int]:
    """From `position` up to one of the characters `end`, in words of `re`; and where that is."""
    parts = []
    while position < len(pattern) and pattern[position] not in end:
        part, position = _next_part(pattern, position)
        parts.append(part)
    return "".join(parts), position


def _next_part(pattern: str, position: int) -> tuple[str, int]:
    rest = pattern[position:]
    if rest.startswith("**/"):
        return "(?:.*/)?", position + 3
    if rest.startswith("**"):
        return ".*", position + 2
    if rest[0] == "*":
        return "[^/]*", position + 1
    if rest[0] == "?":
        return "[^/]", position + 1
    if rest[0] == "[" and (match := re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest)):
        return _characters(match[1], match[2]), position + match.end()
    if rest[0] == "{" and "}" in rest:
        return _choice(pattern, position + 1)
    return re.escape(rest[0]), position + 1


def _characters(negation: str, characters: str) -> str:
    escaped = characters.replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    return f"(?!/)[{'^' if negation else ''}{escaped}]"


def _choice(pattern: str, position: int) -> tuple[str, int]:
    choices = []
    while True:
        choice, position = _translated(pattern, position, end=",}")
        choices.append(choice)
        if position >= len(pattern) or pattern[position] == "}":
            return f"(?:{'|'.join(choices)})", position + 1
        position += 1


# ---- the time in a file name

_TIME = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?:[_T](\d\d)(?:[-_:]?(\d\d))?)?(?!\d)")
_SECOND_NS = 1_000_000_000


def zone_of(name: str) -> tzinfo:
    """Raises ArchiveError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such zone is a KeyError, and an OSError on some systems
        raise ArchiveError(f"{name!r} is no time zone; it has to be a name such as UTC or Europe/Rome") from None


def time_in(name: str, zone: tzinfo) -> tuple[int, int] | None:
    """(first, end) of the last time in a file name, in ns since the epoch, end not included; None where it has none."""
    for match in reversed(list(_TIME.finditer(name))):
        year, month, day, hour, minute = (None if text is None else int(text) for text in match.groups())
        width = timedelta(days=1) if hour is None else timedelta(hours=1) if minute is None else timedelta(minutes=1)
        try:
            begin = datetime(year or 0, month or 0, day or 0, hour or 0, minute or 0, tzinfo=zone)
        except ValueError:
            continue
        end = begin + width if hour is None else begin.astimezone(UTC) + width
        return int(begin.timestamp()) * _SECOND_NS, int(end.timestamp()) * _SECOND_NS
    return None
