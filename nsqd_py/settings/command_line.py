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
from nsqd_py.runtime.logs.hidden import without_logins
from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.flags import suggestion

_HELP_FLAGS = ("help", "h")
_HELP_WIDTH = 100
# The titles of settings that all programs have. The others are what readers search for.
_SHOWN_LAST = ("This program", "Log")
_FILE_ENDINGS = ("-file", "-dir", "-path", "-cert", "-key")
_FILE_NAMES = ("config", "check-data", "export-to-go", "backup-to", "restore-from")


def _flags_of(setting: Setting) -> list[str]:
    if setting.short:
        return [f"-{setting.short}", f"--{setting.name}"]
    return [f"--{setting.name}"]


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

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        name = self._setting.name
        if name in _FILE_NAMES or name.endswith(_FILE_ENDINGS):
            return [CompletionItem(incomplete, type="file")]
        if self._setting.complete is not None:
            return [
                CompletionItem(word)
                for word in self._setting.complete(ctx.params)
                if word.startswith(incomplete)
            ]
        return [CompletionItem(word) for word in self._setting.kind.choices if word.startswith(incomplete)]


class GoCommand(click.Command):
    """A command with flags as Go's package `flag` reads them.

    groups    the settings, by title
    argument  the setting whose values are the words without a dash, if the program has one
    examples  pairs of a purpose and a line
    removed   what to use instead of flags that former versions had, by name
    variables the variable of the environment that has the value of a setting, by attribute
    """

    def __init__(
        self,
        name: str,
        summary: str,
        groups: Mapping[str, Sequence[Setting]],
        argument: Setting | None,
        examples: Iterable[tuple[str, str]],
        removed: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> None:
        self._settings = {setting.name: setting for group in groups.values() for setting in group}
        options = [
            click.Option(
                [*_flags_of(one), one.attribute],
                type=_Value(one),
                multiple=True,
                help=one.full_help,
                hidden=one.hidden,
            )
            for one in self._settings.values()
        ]
        super().__init__(name, params=[*options], help=summary)
        self._groups = groups
        self._argument = argument
        self._examples = tuple(examples)
        self._removed = removed
        self._variables = variables
        self._short = {f"-{one.short}": one for one in self._settings.values() if one.short}

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the values of the flags, by attribute. Exits after `--help` with 0, and if a flag is wrong with 2."""
        self._complete_if_asked()
        try:
            with self.make_context(
                self.name, list(argv), max_content_width=_HELP_WIDTH, terminal_width=_HELP_WIDTH
            ) as context:
                given = context.params
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except click.UsageError as error:
            hint = (
                () if isinstance(error, click.BadParameter) else (f"To list all flags: {self.name} --help",)
            )
            complain(without_logins(error.format_message()), *hint)
            sys.exit(error.exit_code)
        return {
            one.attribute: one.kind.join(given[one.attribute])
            for one in self._settings.values()
            if given[one.attribute]
        }

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
        if is_file:
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._with_two_dashes(iter(args))))

    def _with_two_dashes(self, words: Iterator[str]) -> Iterator[str]:
        """Yield the words as click expects them. Raises UsageError, which names a wrong flag as it was typed."""
        for word in words:
            flag, equals, value = word.partition("=")
            name = flag.removeprefix("-").removeprefix("-")
            setting = self._short.get(flag) or self._settings.get(name)
            if word == "--":
                yield from self._without_flags(words)
            elif not word.startswith("-") or word == "-":
                yield f"--{self._argument.name}={word}" if self._argument else word
            elif name in _HELP_FLAGS:
                yield "--help"
            elif name in self._removed:
                raise click.UsageError(f"--{name} was removed: {self._removed[name]}")
            elif setting is None:
                raise click.UsageError(f"No such option: {flag}{self._suggestion(name)}")
            elif equals:
                yield f"--{setting.name}={value}"
            elif setting.kind.bare_value is not None:
                yield f"--{setting.name}={setting.kind.bare_value}"
            else:
                yield f"--{setting.name}"
                for following in islice(words, 1):
                    other = following.removeprefix("--").partition("=")[0]
                    if following.startswith("--") and other in self._settings:
                        raise click.UsageError(
                            f"{flag} requires an argument, and the next word is the flag --{other}"
                        )
                    yield following

    def _without_flags(self, words: Iterator[str]) -> Iterator[str]:
        """Yield the words after `--`, none of which is a flag."""
        if self._argument is None:
            yield "--"
            yield from words
        else:
            for word in words:
                yield f"--{self._argument.name}={word}"

    def _suggestion(self, name: str) -> str:
        known = suggestion(name, self._settings)
        return known.replace("mean ", "mean --")

    def _help_of(self, setting: Setting) -> str:
        variable = self._variables.get(setting.attribute)
        return f"{setting.full_help} [default: {setting.shown_default}]" + (
            f" [env: {variable}]" if variable else ""
        )

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = ["[OPTIONS]"]
        if self._argument:
            pieces.append(f"[{self._argument.name.upper()}]...")
        return pieces

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title in sorted(self._groups, key=_SHOWN_LAST.__contains__):
            listed = [one for one in self._groups[title] if not one.hidden]
            with formatter.section(title):
                rows = [(one.usage, self._help_of(one)) for one in listed]
                formatter.write_dl(rows, col_max=36)
        for purpose, line in self._examples:
            with formatter.section(purpose):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
