"""What a program prints of its flags: `--help`, and the words that a shell completes. Both come from click."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click
from click.shell_completion import CompletionItem, shell_complete

from nsqd_py.settings.declaration import Setting

_HELP_WIDTH = 100
_FILE_ENDINGS = ("-file", "-dir", "-path", "-cert", "-key")
_FILE_NAMES = ("config", "check-data", "export-to-go", "backup-to", "restore-from")


class _Value(click.ParamType):  # type: ignore[type-arg]  # a class with parameters since click 8.4
    """A value that the kind of a setting reads."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.kind.word
        self._setting = setting

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        name = self._setting.name
        if name in _FILE_NAMES or name.endswith(_FILE_ENDINGS):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in self._setting.kind.choices if word.startswith(incomplete)]


class GoCommand(click.Command):
    """The flags of a program.

    groups    the settings, by title
    argument  the setting whose values are the words without a dash, if the program has one
    examples  pairs of a purpose and a line
    """

    def __init__(
        self,
        name: str,
        summary: str,
        groups: Mapping[str, Sequence[Setting]],
        argument: Setting | None,
        examples: Iterable[tuple[str, str]],
    ) -> None:
        options = [
            click.Option([f"--{one.name}", one.attribute], type=_Value(one), multiple=True, help=one.full_help)
            for group in groups.values()
            for one in group
        ]
        super().__init__(name, params=[*options], help=summary)
        self._groups = groups
        self._argument = argument
        self._examples = tuple(examples)

    def print_help(self) -> None:
        context = click.Context(self, info_name=self.name, terminal_width=_HELP_WIDTH, max_content_width=_HELP_WIDTH)
        click.echo(self.get_help(context))

    def complete(self, variable: str, instruction: str) -> int:
        """Print what a shell asks for with a variable of the environment, and return the exit status."""
        return shell_complete(self, {}, self.name or "", variable, instruction)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        is_file = self._argument is not None and not incomplete.startswith("-")
        return [CompletionItem(incomplete, type="file")] if is_file else super().shell_complete(ctx, incomplete)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", *([f"[{self._argument.name.upper()}]..."] if self._argument else [])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, settings in self._groups.items():
            with formatter.section(title):
                rows = [(one.usage, f"{one.full_help} [default: {one.shown_default}]") for one in settings]
                formatter.write_dl(rows, col_max=36)
        for purpose, line in self._examples:
            with formatter.section(purpose):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
