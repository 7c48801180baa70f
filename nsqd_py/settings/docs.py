"""The reference page of a program's settings, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from nsqd_py.settings.declaration import Program, Setting


def reference_page(program: Program, command: str) -> str:
    """The page, with the `command` that prints it."""
    return "\n".join([_introduction(program, command), *settings_tables(program)])


def settings_tables(program: Program) -> list[str]:
    """A titled table for each group of settings."""
    return [f"## {title}\n\n{_table(settings)}\n" for title, settings in program.groups.items()]


def _introduction(program: Program, command: str) -> str:
    return f"""\
<!-- Printed by `{command}`; change the declarations, not this page. -->

# Options of {program.command}

A flag goes before the config file, and the config file before the default. Flags are written with one dash or
two, and their value follows after a space or `=`; a boolean flag alone means `true`. Durations have units:
`250ms`, `60s`, `1h30m`.

The file given with `--config` is TOML, or YAML where its name ends in `.yaml` or `.yml`. Its keys stand in
the table; in it, a duration may also be a number of milliseconds. An unknown key is an error.
"""


def _table(settings: Iterable[Setting]) -> str:
    rows = ["| flag | config key | default | what it does |", "|---|---|---|---|"]
    return "\n".join(rows + [_row(setting) for setting in settings])


def _row(setting: Setting) -> str:
    key = f"`{setting.key}`" if setting.key else ""
    default = setting.default_text or f"`{setting.shown_default}`"
    cells = (f"`{setting.usage}`", key, default, setting.full_help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

