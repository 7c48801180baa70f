"""The command line of a program, parsed by click, in the forms of Go's flag package.

`-name value`, `-name=value`, `--name=value`, and `-name` alone for a boolean. A value may begin with a dash; one
that is a flag of the program needs the form with `=`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from nsqd_py.runtime.command import complain
from nsqd_py.runtime.hidden import without_logins
from nsqd_py.settings.declaration import Setting

_HELP_FLAGS = ("help", "h")
_HELP_WIDTH = 100
_FILE_ENDINGS = ("-file", "-dir", "-path", "-cert", "-key")
_FILE_NAMES = ("config", "check-data", "export-to-go", "backup-to", "restore-from")


class _Value(click.ParamType):  # type: ignore[type-arg]  # a class with parameters since click 8.4
    """A value that the kind of a setting reads."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.kind.word
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        kind = self._setting.kind
        try:
            return kind.parse(value)
        except ValueError as error:
            self.fail(f'"{kind.shown(value)}": {error}', param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        name = self._setting.name
        if name in _FILE_NAMES or name.endswith(_FILE_ENDINGS):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in self._setting.kind.choices if word.startswith(incomplete)]


class GoCommand(click.Command):
    """A command with flags as Go's package `flag` reads them.

    groups    the settings, by title
    argument  the setting whose values are the words without a dash, if the program has one
    examples  pairs of a purpose and a line
    removed   what to use instead of flags that former versions had, by name
    """

    def __init__(
        self,
        name: str,
        summary: str,
        groups: Mapping[str, Sequence[Setting]],
        argument: Setting | None,
        examples: Iterable[tuple[str, str]],
        removed: Mapping[str, str],
    ) -> None:
        self._settings = {setting.name: setting for group in groups.values() for setting in group}
        options = [
            click.Option([f"--{one.name}", one.attribute], type=_Value(one), multiple=True, help=one.full_help)
            for one in self._settings.values()
        ]
        super().__init__(name, params=[*options], help=summary)
        self._groups = groups
        self._argument = argument
        self._examples = tuple(examples)
        self._removed = removed

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the values of the flags, by attribute. Exits after `--help` with 0, and if a flag is wrong with 2."""
        self._complete_if_asked()
        try:
            with self.make_context(self.name, list(argv), max_content_width=_HELP_WIDTH, terminal_width=_HELP_WIDTH) as context:
                given = context.params
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except click.UsageError as error:
            hint = () if isinstance(error, click.BadParameter) else (f"To list all flags: {self.name} --help",)
            complain(without_logins(error.format_message()), *hint)
            sys.exit(error.exit_code)
        return {one.attribute: one.kind.join(given[one.attribute]) for one in self._settings.values() if given[one.attribute]}

    def print_completion(self, shell: str) -> None:
        """Print the script with which a shell (bash, zsh, fish) completes the flags of this program."""
        shell_complete(self, {}, self.name or "", self._completion_variable, f"{shell}_source")

    @property
    def _completion_variable(self) -> str:
        return f"_{self.name}_COMPLETE".replace("-", "_").upper()

    def _complete_if_asked(self) -> None:
        instruction = os.environ.get(self._completion_variable)
        if instruction:
            sys.exit(shell_complete(self, {}, self.name or "", self._completion_variable, instruction))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        is_file = self._argument is not None and not incomplete.startswith("-")
        return [CompletionItem(incomplete, type="file")] if is_file else super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._with_two_dashes(iter(args))))

    def _with_two_dashes(self, words: Iterator[str]) -> Iterator[str]:
        """Yield the words as click expects them."""
        for word in words:
            name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
            setting = self._settings.get(name)
            if not word.startswith("-") or word == "-":
                yield f"--{self._argument.name}={word}" if self._argument else word
            elif name in _HELP_FLAGS:
                yield "--help"
            elif name in self._removed:
                raise click.UsageError(f"--{name} was removed: {self._removed[name]}")
            elif equals or setting is None:
                yield f"--{name}{equals}{value}"
            elif setting.kind.bare_value is not None:
                yield f"--{name}={setting.kind.bare_value}"
            else:
                yield f"--{name}"
                for following in islice(words, 1):
                    flag = following.removeprefix("--").partition("=")[0]
                    if following.startswith("--") and flag in self._settings:
                        raise click.UsageError(f"--{name} requires an argument, and the next word is the flag --{flag}")
                    yield following

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
