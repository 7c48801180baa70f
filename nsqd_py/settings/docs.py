"""The texts that follow from a program's declaration: `--help`, reference and manual pages, example config files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nsqd_py.runtime.hidden import HIDDEN
from nsqd_py.settings.types import BOOL, INT, SIZE, ByTopic, Kind

if TYPE_CHECKING:
    from nsqd_py.settings.declaration import Options, Setting
    from nsqd_py.settings.program import Program

# What stands between a key and its value in an example config file.
FORMATS = {"toml": " = ", "yaml": ": "}

_HELP_WIDTH = 100
_EXAMPLE_WIDTH = 100
# Placeholders for defaults that differ from machine to machine.
_PLACEHOLDERS: dict[Kind[Any], Any] = {INT: 1}
_PLACEHOLDER = "nsq1.example.com"


# ---- --help


def help_text(program: Program[Any]) -> str:
    """Return the text of `--help`, laid out by click."""
    import click  # 20 ms; only --help needs it

    formatter = click.HelpFormatter(width=_HELP_WIDTH)
    arguments = f"[OPTIONS] [{program.argument.name.upper()}]..." if program.argument else "[OPTIONS]"
    formatter.write_usage(program.command, arguments)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(program.summary)
    for title, settings in program.groups.items():
        with formatter.section(title):
            formatter.write_dl([_help_row(setting) for setting in settings], col_max=36)
    for purpose, line, _ in program.examples:
        with formatter.section(purpose):
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
    return formatter.getvalue().rstrip("\n")


def _help_row(setting: Setting) -> tuple[str, str]:
    return setting.usage, f"{setting.full_help} [default: {setting.shown_default}]"


# ---- the reference page, in Markdown


def reference_page(program: Program[Any], command: str) -> str:
    """Return the reference page, which names the `command` that prints it."""
    return "\n".join([_page_introduction(program, command), *settings_tables(program)])


def settings_tables(program: Program[Any]) -> list[str]:
    """Return a titled table for each group of settings."""
    return [f"## {title}\n\n{_table(settings)}\n" for title, settings in program.groups.items()]


def _page_introduction(program: Program[Any], command: str) -> str:
    return f"""\
<!-- Printed by `{command}`; change the declarations, not this page. -->

# Options of {program.command}

A flag goes before the config file, and the config file before the default. Flags are written with one dash or
two, and their value follows after a space or `=`; a boolean flag alone means `true`. Durations have units:
`250ms`, `60s`, `1h30m`.

The file given with `--config` is TOML, or YAML where its name ends in `.yaml` or `.yml`. Its keys stand in
the table; in it, a duration may also be a number of milliseconds. A key may be spelt as its flag, and
keys that only older releases of NSQ had are ignored, both with a warning. Any other unknown key is an error.
{secrets_note(program)}"""


def secrets_note(program: Program[Any]) -> str:
    """Return the paragraph on the settings that may contain passwords or tokens; "" if there are none."""
    secrets = [setting for setting in program.settings if setting.kind.hide]
    if not secrets:
        return ""
    variable = f"{program.name}_{secrets[0].name}".upper().replace("-", "_")
    names = ", ".join(f"`--{setting.name}`" for setting in secrets)
    text = (
        f"These may contain passwords or tokens, which are hidden wherever a value is shown: {names}. To keep them out "
        "of the list of processes, write `@path` in place of the value, and it is read from that file; or set a "
        f"variable such as `{variable}` (a value a line), or `{variable}_FILE` with the name of a file."
    )
    return f"\n{textwrap.fill(text, 120, break_on_hyphens=False)}\n"


def _table(settings: Iterable[Setting]) -> str:
    rows = ["| flag | config key | default | what it does |", "|---|---|---|---|"]
    return "\n".join(rows + [_row(setting) for setting in settings])


def _row(setting: Setting) -> str:
    key = f"`{setting.key}`" if setting.key else ""
    default = setting.default_text or f"`{setting.shown_default}`"
    cells = (f"`{setting.usage}`", key, default, setting.full_help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# ---- example config files


def example(program: Program[Any], command: str, file_format: str) -> str:
    """Return an example config file: every key with its help, and its default commented out.

    The file names the `command` that prints it; `file_format` is a key of `FORMATS`.
    """
    parts = [
        f"# Settings of {program.command}, to be given with --config. Printed by `{command}`.\n"
        "# What is commented out is the default. A flag on the command line goes before this file.\n"
    ]
    for title, settings in program.groups.items():
        in_files = [setting for setting in settings if setting.key]
        if in_files:
            parts.append(f"# ---- {title}\n")
            parts += [_entry(setting, FORMATS[file_format]) for setting in in_files]
    return "\n".join(parts)


def _entry(setting: Setting, separator: str) -> str:
    text = setting.full_help
    if setting.default_text:
        text += f" Default: {setting.default_text}."
    comment = textwrap.fill(text, _EXAMPLE_WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    value = _PLACEHOLDERS.get(setting.kind, _PLACEHOLDER) if setting.default_text else setting.default
    return f"{comment}\n#{setting.key}{separator}{_literal(setting.kind, value)}\n"


def _literal(kind: Kind[Any], value: Any) -> str:
    """Return a value in a form that is both TOML and YAML."""
    if kind in (BOOL, INT, SIZE):
        return kind.show(value)
    if isinstance(value, ByTopic):
        shown = [one if isinstance(one, str) else kind.show(ByTopic(one)) for one in value.values]
        rules = [f"{pattern}={one}" for (pattern, _), one in zip(value.rules, shown[1:], strict=True)]
        value = [*rules, shown[0]] if rules else shown[0]
    elif not isinstance(value, str | tuple):
        value = kind.show(value)
    import json  # slow to import

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# ---- --print-config


def effective_config(options: Options) -> str:
    """Return the values of all settings that config files can contain, as one of TOML, without secrets."""
    parts = []
    for title, settings in options.groups.items():
        lines = [line for setting in settings if setting.key for line in _effective(setting, options)]
        parts += [f"# ---- {title}\n", *lines, ""] if lines else []
    return "\n".join(parts)


def _effective(setting: Setting, options: Options) -> Iterable[str]:
    value = getattr(options, setting.attribute)
    shown = setting.kind.shown(value)
    if setting.kind.hide and HIDDEN in str(shown):
        yield f"# {HIDDEN} hides a secret: replace it, or remove the line and use a flag or a variable."
    yield f"# {setting.key} is not set" if value is None else f"{setting.key} = {_literal(setting.kind, shown)}"


# ---- man(1); the macros are those of man(7)


def man_page(program: Program[Any], printed_by: str, exit_statuses: Sequence[tuple[int, str]]) -> str:
    """Return the page of section 1. It names the command that prints it."""
    argument = f" [\\fI{_roff(program.argument.name)}\\fR ...]" if program.argument else ""
    summary = program.summary[0].lower() + program.summary[1:].split(". ")[0].rstrip(".")
    parts = [
        f'.\\" Printed by `{printed_by}`; change the declarations, not this page.',
        f'.TH {program.command.upper()} 1 "" "nsqd-py" "NSQ in Python"',
        ".SH NAME",
        f"{_roff(program.command)} \\- {_roff(summary)}",
        ".SH SYNOPSIS",
        f"\\fB{_roff(program.command)}\\fR [\\fIoptions\\fR]{argument}",
        ".SH DESCRIPTION",
        _roff(program.summary),
        ".PP",
        "A flag overrides the config file (\\-\\-config), and the config file overrides the default.",
        "Durations have units: 250ms, 60s, 1h30m.",
        ".SH OPTIONS",
    ]
    for title, settings in program.groups.items():
        parts.append(f".SS {_roff(title)}")
        for setting in settings:
            default = setting.default_text or setting.shown_default
            parts += _man_entry(setting.usage, f"{setting.full_help} Default: {default or 'empty'}.")
    if program.examples:
        parts.append(".SH EXAMPLES")
        for purpose, line, _ in program.examples:
            parts += [".PP", _roff(f"{purpose}:"), ".PP", ".nf", _roff(line), ".fi"]
    if exit_statuses:
        parts.append(".SH EXIT STATUS")
        for status, meaning in exit_statuses:
            parts += _man_entry(str(status), meaning)
    return "\n".join(parts) + "\n"


def _man_entry(term: str, text: str) -> Iterable[str]:
    return ".TP", f"\\fB{_roff(term)}\\fR", _roff(text)


def _roff(text: str) -> str:
    """Return the text as roff shows it: backslashes, dashes, and dots and quotes at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in escaped.split("\n"))
