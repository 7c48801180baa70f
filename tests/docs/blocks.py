"""The code blocks of a Markdown page, and the comments that say how the tests treat them.

A comment stands on a line of its own right before its block:

`<!-- not run: needs root -->`       the block is not run, for the reason given
`<!-- output -->`                    what the last block that was run has printed; `...` stands for anything
`<!-- from: tests/unit/x.py -->`     lines of that file, which must be there exactly so
`<!-- run: until="text" -->`         run until the output has this (a regular expression), then press Ctrl-C;
    `until-command="test -s a"`      or until this command succeeds;
    `then="y\\n"`                     type this in place of Ctrl-C: the block runs on a terminal;
    `background`                     leave it running until the end of the page, and go on;
    `repeat-next`                    run the next block in the meantime, again and again until `until` is true.

A `sh` or `python` block without a comment is run to its end. Every other block needs a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RUNNABLE = ("sh", "python")
_FENCE = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_COMMENT = re.compile(r" *<!-- (not run|output|from|run)(?:: (.*?))? -->")
_WORD = re.compile(r'([a-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?: |$)')
_RUN_WORDS = {"until", "until-command", "then", "background", "repeat-next"}


class BadPage(Exception):
    """The page has something that this module does not understand; the text says where and what."""


class Block(NamedTuple):
    """A block: `line` is that of its first line of code, `kind` one of run, output, from and not run."""

    page: str
    line: int
    language: str
    code: str
    kind: str
    text: str  # the reason, or the file
    words: dict[str, str]  # of a `run` comment

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        place = f"{page}:{number + 1}"
        if fence := _FENCE.fullmatch(lines[number]):
            end = _end_of(lines, number, fence, place)
            code = "".join(line.removeprefix(fence[1]) + "\n" for line in lines[number + 1 : end])
            yield _block(place, page, number + 2, fence[3].strip(), code, lines[number - 1] if number else "")
            number = end
        elif (
            lines[number].startswith("    ") and lines[number].strip() and _starts_a_paragraph(lines, number)
        ):
            raise BadPage(f"{place}: an indented block; write it between ``` fences, so that it is run")
        number += 1


def _end_of(lines: list[str], start: int, fence: re.Match[str], place: str) -> int:
    for number in range(start + 1, len(lines)):
        if lines[number].strip() == fence[2]:
            return number
    raise BadPage(f"{place}: this block has no end")


def _starts_a_paragraph(lines: list[str], number: int) -> bool:
    return number > 0 and not lines[number - 1].strip()


def _block(place: str, page: str, line: int, language: str, code: str, before: str) -> Block:
    comment = _COMMENT.fullmatch(before)
    if comment is None:
        if "<!--" in before and "Printed by" not in before:
            raise BadPage(f"{place}: the comment is not understood: {before.strip()}")
        if language not in RUNNABLE:
            raise BadPage(
                f"{place}: a block of {language or 'no language'} needs `<!-- output -->` or a reason"
            )
        return Block(page, line, language, code, "run", "", {})
    kind, text = comment[1], comment[2] or ""
    if (kind in ("not run", "from")) != bool(text) and kind != "run":
        raise BadPage(f"{place}: `{kind}` says {'nothing' if not text else 'too much'}")
    words = _words(place, text) if kind == "run" else {}
    if kind == "run" and language not in RUNNABLE:
        raise BadPage(f"{place}: only blocks of {' and '.join(RUNNABLE)} can be run")
    return Block(page, line, language, code, kind, text, words)


def _words(place: str, text: str) -> dict[str, str]:
    words = {
        match[1]: (match[2] or "").replace("\\n", "\n").replace('\\"', '"') for match in _WORD.finditer(text)
    }
    if not words or _WORD.sub("", text) or set(words) - _RUN_WORDS:
        raise BadPage(f"{place}: not understood: run: {text}")
    if not {"until", "until-command"} & set(words):
        raise BadPage(f"{place}: `run` needs until or until-command")
    return words


def page_names(root: Path) -> list[str]:
    """Return README.md, CONTRIBUTING.md and every page in docs, as paths below `root`."""
    paths = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [path.relative_to(root).as_posix() for path in paths]


def read_page(root: Path, name: str) -> list[Block]:
    """Return the blocks of a page. Raises BadPage for a block that no rule covers."""
    return list(_blocks(name, (root / name).read_text("utf-8").splitlines()))
