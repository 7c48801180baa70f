"""Texts of other people's programs, for a log. Pure."""

from __future__ import annotations


def one_line(text: str) -> str:
    """With escapes for what would begin a new line, or does not print: the same text otherwise."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
