"""Comparing what a page shows with what was printed."""

from __future__ import annotations

import re

# What differs from run to run. Both sides are rewritten in this way before they are compared.
_CHANGING = (
    (re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b\d{8}T\d{6}Z"), "<time>"),
    (re.compile(r"\b1\d{18}\b"), "<nanoseconds>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<id>"),
    (re.compile(r"\b\d+(\.\d+)? [KMG]B\b"), "<size>"),
    (re.compile(r"\b\d{1,3}(,\d{3})+ bytes"), "<size>"),  # on the disk: a file system may need a block more
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
)
# On a line of its own it stands for any number of lines.
_ANYTHING = re.compile(r"^(?:\.\.\.|…)\n|\.\.\.|…", re.MULTILINE)


def same_output(shown: str, printed: str) -> bool:
    """True if both are the same but for times, ids, sizes and spaces at line ends; `...` in `shown` is anything."""
    pieces = _ANYTHING.split(_steady(shown))
    return re.fullmatch(".*".join(map(re.escape, pieces)), _steady(printed), re.DOTALL) is not None


def _steady(text: str) -> str:
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return "".join(line.rstrip() + "\n" for line in text.strip("\n").splitlines())
