"""Values as users write them: each is read from the text of a flag, or from a value of a config file.

All functions that read a value raise ValueError with a text that says what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nsqd_py.settings.durations import MAX_NS, MILLISECOND_NS, MIN_NS

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)

# The words that Go's strconv.ParseBool takes.
TRUE_WORDS = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS = frozenset(("0", "f", "F", "false", "FALSE", "False"))

_SIZE = re.compile(r"([0-9]+)([kKmMgGtT])(i?)[bB]?")

# Units, and the decimals of each.
_SIZE_STEPS = (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))


# ---- texts


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


def parse_floats(text: str) -> tuple[float, ...]:
    """Return the numbers of a text with commas between them. Raises ValueError."""
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise ValueError("expected numbers, with commas between them") from None


def parse_float(value: object) -> float:
    """Return the number that a text writes, or that a config file has."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("expected a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError("expected a number") from None


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


# ---- values of a config file that are not strings


def int_from_native(value: Any) -> int:
    """Return a whole number of 64 bits."""
    if type(value) is not int:  # a bool is an int
        raise ValueError("expected a whole number")
    return _in_range(value, MIN_INT, MAX_INT)


def bool_from_native(value: Any) -> bool:
    """Return a boolean."""
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def duration_from_native(value: Any) -> int:
    """Return the nanoseconds of a number without a unit, which is in milliseconds, as Go's nsqd reads it."""
    if type(value) is not int:
        raise ValueError("expected a duration such as 60s, or a number of milliseconds")
    return _in_range(value * MILLISECOND_NS, MIN_NS, MAX_NS)


def strings_from_native(value: Any) -> tuple[str, ...]:
    """Return a list of strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("expected a list of strings")
    return tuple(value)


def floats_from_native(value: Any) -> tuple[float, ...]:
    """Return a list of numbers."""
    if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
        raise ValueError("expected a list of numbers")
    return tuple(float(item) for item in value)


def _in_range(value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise ValueError("the number is out of range")
    return value


# ---- how values are shown


def size_text(size_bytes: float) -> str:
    """Return the size with its unit: `512 B`, `1.5 MB`."""
    step = 0
    while size_bytes >= 999.5 and step < len(_SIZE_STEPS) - 1:
        size_bytes /= 1000
        step += 1
    unit, digits = _SIZE_STEPS[step]
    return f"{size_bytes:.{digits}f} {unit}"


def quoted(text: str) -> str:
    """Return a text in quotation marks."""
    return f'"{text}"'


def listed(values: Sequence[object]) -> str:
    """Return the values with commas between them; `none` if there are none."""
    return ",".join(str(value) for value in values) or "none"
