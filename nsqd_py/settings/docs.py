"""The texts that follow from a program's declaration: reference pages and example config files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.flags import literal
from nsqd_py.settings.program import Program
from nsqd_py.settings.types import INT, Kind

# What stands between a key and its value in an example config file.
FORMATS = {"toml": " = ", "yaml": ": "}

_EXAMPLE_WIDTH = 100
# Placeholders for defaults that differ from machine to machine.
_PLACEHOLDERS: dict[Kind[Any], Any] = {INT: 1}
_PLACEHOLDER = "nsq1.example.com"


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
    return f"{comment}\n#{setting.key}{separator}{literal(setting.kind, value)}\n"
