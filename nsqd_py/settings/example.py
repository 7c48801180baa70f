"""An example configuration file of a program's settings: every key with its help, and its default commented out."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from nsqd_py.settings.declaration import Program, Setting
from nsqd_py.settings.types import BOOL, INT, Kind

# What stands between a key and its value.
FORMATS = {"toml": " = ", "yaml": ": "}

_WIDTH = 100

# In place of defaults that differ from machine to machine.
_EXAMPLES: dict[Kind, Any] = {INT: 1}
_EXAMPLE_TEXT = "nsq1.example.com"


def example(program: Program, command: str, file_format: str) -> str:
    """Return the text of the file. It names the `command` that prints it; `file_format` is a key of `FORMATS`."""
    parts = [_introduction(program, command)]
    for title, settings in program.groups.items():
        in_files = [setting for setting in settings if setting.key]
        if in_files:
            parts.append(f"# ---- {title}\n")
            parts += [_entry(setting, FORMATS[file_format]) for setting in in_files]
    return "\n".join(parts)


def _introduction(program: Program, command: str) -> str:
    return (
        f"# Settings of {program.command}, to be given with --config. Printed by `{command}`.\n"
        "# What is commented out is the default. A flag on the command line goes before this file.\n"
    )


def _entry(setting: Setting, separator: str) -> str:
    text = setting.full_help
    if setting.default_text:
        text += f" Default: {setting.default_text}."
    comment = textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    return f"{comment}\n#{setting.key}{separator}{_literal(setting)}\n"


def _literal(setting: Setting) -> str:
    """The default as TOML and YAML both write it."""
    kind, value = setting.kind, setting.default
    if setting.default_text:
        value = _EXAMPLES.get(kind, _EXAMPLE_TEXT)
    if isinstance(value, str | tuple):
        return json.dumps(value)
    shown = kind.show(value)
    return shown if kind in (BOOL, INT) else json.dumps(shown)

