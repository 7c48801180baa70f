"""Manual pages for man(1), from a program's declaration. The macros are those of man(7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.settings.program import Program


def man_page(program: Program[Any], printed_by: str, exit_statuses: Sequence[tuple[int, str]]) -> str:
    """Return the page of section 1. It names the command that prints it."""
    argument = f" [\\fI{_escaped(program.argument.name)}\\fR ...]" if program.argument else ""
    summary = program.summary[0].lower() + program.summary[1:].split(". ")[0].rstrip(".")
    parts = [
        f'.\\" Printed by `{printed_by}`; change the declarations, not this page.',
        f'.TH {program.command.upper()} 1 "" "nsqd-py" "NSQ in Python"',
        ".SH NAME",
        f"{_escaped(program.command)} \\- {_escaped(summary)}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(program.command)}\\fR [\\fIoptions\\fR]{argument}",
        ".SH DESCRIPTION",
        _escaped(program.summary),
        ".PP",
        "A flag overrides the config file (\\-\\-config), and the config file overrides the default.",
        "Durations have units: 250ms, 60s, 1h30m.",
        ".SH OPTIONS",
    ]
    for title, settings in program.groups.items():
        parts.append(f".SS {_escaped(title)}")
        for setting in settings:
            default = setting.default_text or setting.shown_default
            parts += _entry(setting.usage, f"{setting.full_help} Default: {default or 'empty'}.")
    if program.examples:
        parts.append(".SH EXAMPLES")
        for purpose, line, _ in program.examples:
            parts += [".PP", _escaped(f"{purpose}:"), ".PP", ".nf", _escaped(line), ".fi"]
    if exit_statuses:
        parts.append(".SH EXIT STATUS")
        for status, meaning in exit_statuses:
            parts += _entry(str(status), meaning)
    return "\n".join(parts) + "\n"


def _entry(term: str, text: str) -> Iterable[str]:
    return ".TP", f"\\fB{_escaped(term)}\\fR", _escaped(text)


def _escaped(text: str) -> str:
    """Return the text as roff shows it: backslashes, dashes, and dots and quotes at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in escaped.split("\n"))
