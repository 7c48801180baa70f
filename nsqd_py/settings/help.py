"""The text of `--help`, laid out by click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nsqd_py.settings.declaration import Program, Setting

HELP_WIDTH = 100


def help_text(program: Program) -> str:
    """Return what `--help` prints."""
    command = _Command(program)
    return command.get_help(command.make_context(program.command, []))


class _Command(click.Command):
    """A command with the groups of settings and the examples of a program."""

    def __init__(self, program: Program) -> None:
        super().__init__(
            program.command,
            help=program.summary,
            options_metavar=f"[OPTIONS] [{program.argument.name.upper()}]..." if program.argument else "[OPTIONS]",
            context_settings={"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH},
        )
        self._groups = program.groups
        self._examples = program.examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for purpose, line, *_ in self._examples:
            with formatter.section(purpose):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, settings in self._groups.items():
            with formatter.section(title):
                formatter.write_dl([_help_row(setting) for setting in settings], col_max=36)


def _help_row(setting: Setting) -> tuple[str, str]:
    return setting.usage, f"{setting.full_help} [default: {setting.shown_default}]"
