"""`--help`, and completion in a shell, by click."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import click
from click.shell_completion import CompletionItem, shell_complete

from nsqd_py.settings.declaration import Setting

_WIDTH = 100
_FILE_ENDINGS = ("-file", "-dir", "-path", "-cert", "-key")
_FILE_NAMES = ("config", "check-data", "export-to-go", "backup-to", "restore-from")


class HelpCommand(click.Command):
    """A command as click describes and completes it; `nsqd_py.settings.command_line` reads its flags.

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
            click.Option([f"--{one.name}"], multiple=True, shell_complete=partial(_values, one), help=one.full_help)
            for group in groups.values()
            for one in group
        ]
        super().__init__(name, params=[*options], help=summary)
        self._groups = groups
        self._argument = argument
        self._examples = tuple(examples)

    def help_text(self) -> str:
        """Return what `--help` prints."""
        return self.get_help(click.Context(self, info_name=self.name, max_content_width=_WIDTH, terminal_width=_WIDTH))

    def complete(self, instruction: str) -> int:
        """Print the completion of a shell (`bash_complete`), or its script (`bash_source`). Return the exit status."""
        return shell_complete(self, {}, self.name or "", f"_{self.name}_COMPLETE".replace("-", "_").upper(), instruction)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [])  # completion looks at the words itself

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


def _values(setting: Setting, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if setting.name in _FILE_NAMES or setting.name.endswith(_FILE_ENDINGS):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(word) for word in setting.kind.choices if word.startswith(incomplete)]
