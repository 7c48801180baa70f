"""The time that a file name tells, as nsq_to_file writes it: 2024-01-31_13 is an hour, 2024-01-31 a day."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nsq_spark.archive.errors import ArchiveError

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
