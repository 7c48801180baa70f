"""The reference page of a program, in Markdown, that follows from its declaration."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable
from typing import Any

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.program import Program


def reference_page(program: Program[Any], command: str) -> str:
    """Return the reference page, which names the `command` that prints it."""
    introduction = f"""\
<!-- Printed by `{command}`; change the declarations, not this page. -->

# Options of {program.command}

A flag goes before the config file, and the config file before the default. Flags are written with one dash or
two, and their value follows after a space or `=`; a boolean flag alone means `true`. Durations have units:
`250ms`, `60s`, `1h30m`.

The file given with `--config` is TOML, or YAML where its name ends in `.yaml` or `.yml`. A key is the name of the
flag with `_` in place of `-`, unless the table names another one; in the file, a duration may also be a number of
milliseconds. Keys that only older releases of NSQ had are ignored with a warning; any other unknown key is an error.
{secrets_note(program)}"""
    return "\n".join([introduction, *settings_tables(program)])


def settings_tables(program: Program[Any], left_out: Collection[str] = ()) -> list[str]:
    """Return a titled table for each group of settings but those `left_out`."""
    return [f"## {title}\n\n{_table(settings)}\n" for title, settings in program.groups.items() if title not in left_out]


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
    rows = ["| flag | default | what it does |", "|---|---|---|"]
    return "\n".join(rows + [_row(setting) for setting in settings])


def _row(setting: Setting) -> str:
    has_other_key = setting.key not in ("", setting.name.replace("-", "_"))
    default = setting.default_text or f"`{setting.shown_default}`"
    help_text = setting.full_help + (f" Key: `{setting.key}`." if has_other_key else "")
    cells = (f"`{setting.usage}`", default, help_text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
