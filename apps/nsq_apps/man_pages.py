"""Manual pages (`man nsq-tail`), made from the declarations of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.program import Program

# The groups of settings that all tools have. They come last.
COMMON = ("This program", "Log")
_EXIT_STATUSES = (
    (0, "Success."),
    (1, "A failure; standard error says why."),
    (2, "The command line or the config file is wrong."),
)
_ESCAPES = {"\\": "\\e", "-": "\\-", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def man_page(program: Program[Any]) -> str:
    """Return the page of a program for section 1 of the manual, in the macros of man(7)."""
    return "\n".join([*_head(program), *_options(program), *_examples(program), *_end(program), ""])


def _head(program: Program[Any]) -> Iterator[str]:
    words = f" [{program.argument}...]" if program.argument else ""
    summary = program.summary.partition(". ")[0].removesuffix(".")
    yield f'.TH "{program.command.upper()}" 1 "" "nsqd-py"'
    yield ".SH NAME"
    yield f"{_text(program.command)} \\- {_text(summary[0].lower() + summary[1:])}"
    yield ".SH SYNOPSIS"
    yield f".B {_text(program.command)}"
    yield _text(f"[options]{words}")
    yield ".SH DESCRIPTION"
    yield _text(program.summary)


def _options(program: Program[Any]) -> Iterator[str]:
    yield ".SH OPTIONS"
    yield "Flags are written with one dash or two. A flag goes before the environment, and that before the config file."
    for title in sorted(program.groups, key=COMMON.__contains__):
        yield f".SS {_text(title)}"
        for setting in program.groups[title]:
            yield from _option(setting, program.variables.get(setting.attribute, ""))


def _option(setting: Setting, variable: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_text(setting.usage)}\\fR"
    yield _text(setting.full_help)
    yield _text(f"Default: {setting.shown_default}." + (f" Variable: {variable}." if variable else ""))


def _examples(program: Program[Any]) -> Iterator[str]:
    if not program.examples:
        return
    yield ".SH EXAMPLES"
    for purpose, line, *_ in program.examples:
        yield from (".PP", _text(f"{purpose}:"), ".PP", ".RS 4", ".EX", _lines(line), ".EE", ".RE")


def _end(program: Program[Any]) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    statuses: Sequence[tuple[int, str]] = program.exit_statuses or _EXIT_STATUSES
    for status, meaning in statuses:
        yield from (".TP", str(status), _text(meaning))


def _lines(text: str) -> str:
    return "\n".join(map(_text, text.split("\n")))


def _text(text: str) -> str:
    """Return a line in which no character has a meaning for troff."""
    escaped = "".join(_ESCAPES.get(one) or (one if one.isascii() else f"\\[u{ord(one):04X}]") for one in text)
    if escaped.startswith((".", "'")):
        return f"\\&{escaped}"
    return escaped
