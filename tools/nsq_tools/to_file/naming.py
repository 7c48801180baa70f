"""Names of files. Pure.

A filename format contains the words <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV>. The first three are replaced once a
topic, <DATETIME> and <REV> for each file; <REV> counts the files that would otherwise have the same name.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

TOPIC, HOST, PID, DATETIME, REV = "<TOPIC>", "<HOST>", "<PID>", "<DATETIME>", "<REV>"
SHORT_HOST, HOSTNAME = "<SHORT_HOST>", "<HOSTNAME>"

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_Conversion = Callable[[datetime.datetime], str]

# The conversions of Go's nsq_to_file, in English in every locale.
_CONVERSIONS: dict[str, _Conversion] = {
    "A": lambda t: _DAYS[t.weekday()],
    "a": lambda t: _DAYS[t.weekday()][:3],
    "B": lambda t: _MONTHS[t.month - 1],
    "b": lambda t: _MONTHS[t.month - 1][:3],
    "d": lambda t: f"{t.day:02d}",
    "H": lambda t: f"{t.hour:02d}",
    "I": lambda t: f"{(t.hour - 1) % 12 + 1:02d}",
    "M": lambda t: f"{t.minute:02d}",
    "m": lambda t: f"{t.month:02d}",
    "p": lambda t: "AM" if t.hour < 12 else "PM",
    "S": lambda t: f"{t.second:02d}",
    "Y": lambda t: f"{t.year:04d}",
    "y": lambda t: f"{t.year % 100:02d}",
    "Z": lambda t: t.tzname() or "",
    "z": lambda t: t.strftime("%z"),
    "%": lambda t: "%",
}


def check_words(text: str, *known: str) -> None:
    """Raise ValueError for a word in angle brackets that is not known."""
    for word in re.findall(r"<\w+>", text):
        if word not in known:
            raise ValueError(f"{word} is unknown; known are {', '.join(known)}")


def check_datetime(text: str) -> None:
    """Raise ValueError for an unknown conversion in a --datetime-format."""
    for conversion in re.findall(r"%.?", text, re.DOTALL):
        if conversion[1:] not in _CONVERSIONS:
            raise ValueError(f"{conversion} is unknown; known are {', '.join(f'%{letter}' for letter in _CONVERSIONS)}")


def strftime(text: str, moment: datetime.datetime) -> str:
    """Replace the conversions in `text` with parts of `moment`, which has a time zone. Unknown ones stay."""
    parts = []
    position = 0
    while position < len(text):
        conversion = _CONVERSIONS.get(text[position + 1 : position + 2]) if text[position] == "%" else None
        parts.append(conversion(moment) if conversion else text[position])
        position += 2 if conversion else 1
    return "".join(parts)


def host_identifier(given: str, hostname: str) -> str:
    """Return the value of <HOST>: `given` with its words replaced, or the host name up to its first dot."""
    short = hostname.partition(".")[0]
    return given.replace(SHORT_HOST, short).replace(HOSTNAME, hostname) if given else short


def filename_template(filename_format: str, topic: str, host: str, pid: int, *, has_revisions: bool) -> str:
    """Replace all words but <DATETIME> and, if files have revisions, <REV>."""
    template = filename_format if has_revisions else filename_format.replace(REV, "")
    return template.replace(TOPIC, topic).replace(HOST, host).replace(PID, str(pid))


def with_suffix(name: str, suffix: str) -> str:
    return name if name.endswith(suffix) else name + suffix


def with_revision(name: str, revision: int) -> str:
    """Replace <REV>: `a<REV>.log` with revision 12 becomes `a-000012.log`."""
    return name.replace(REV, f"-{revision:06d}")
