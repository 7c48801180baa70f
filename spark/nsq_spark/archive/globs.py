"""Patterns of paths, as a shell and Hadoop write them: `*` and `?` within a name, `**` through directories, `[a-z]`,
`[!a-z]`, `{one,other}`.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[*?\[{]")


def is_glob(path: str) -> bool:
    return bool(_SPECIAL.search(path))


def base_of(pattern: str) -> str:
    """The directory that everything which matches is in."""
    match = _SPECIAL.search(pattern)
    return pattern[: pattern.rfind("/", 0, match.start()) + 1] if match else pattern


def compiled(pattern: str) -> re.Pattern[str]:
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
