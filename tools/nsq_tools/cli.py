"""The start and the end of every tool, and its standard streams.

A tool writes data to standard output and log lines to standard error. The exit status is 0 on success, 1 on failure and
2 for a wrong command line. If the reader of standard output goes away (`| head`), the tool ends silently with status 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, Generic, NamedTuple, TypeVar

from nsqd_py.runtime.command import complain, with_streams
from nsqd_py.runtime.logs import INFO, TEXT, Log, one_line
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.groups import LogOptions
from nsqd_py.settings.program import Program, ProgramOptions, config_answer

DONE = 0
FAILED = 1
BAD_USAGE = 2

OptionsT = TypeVar("OptionsT", bound=ProgramOptions)


class BadUsage(Exception):
    """The command line is wrong. The text is one line with the error and the remedy."""


class ToolError(Exception):
    """The tool cannot continue. The text is one line with the reason and the remedy."""


class Tool(NamedTuple, Generic[OptionsT]):
    """A command.

    check  raises BadUsage or BadOptions if the options contradict each other, or ToolError; it has no side effects
    run    does the work and returns the exit status; raises ToolError
    """

    program: Program[OptionsT]
    check: Callable[[OptionsT], None]
    run: Callable[[OptionsT, Log], int]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the tool until it ends. Return the exit status."""
        return with_streams(self.program.command, lambda: self._main(argv))

    def _main(self, argv: Sequence[str] | None) -> int:
        options = self.program.defaults()
        try:
            options = self.program.read(sys.argv[1:] if argv is None else argv)
            options.check_values()
            self.check(options)
            if answer := config_answer(options):
                print(answer, end="")
                return DONE
            return self.run(options, open_log(options, self.program.name))
        except (BadUsage, BadOptions) as error:
            return self._complain(options, error, BAD_USAGE)
        except ToolError as error:
            return self._complain(options, error, BAD_USAGE if config_answer(options) else FAILED)
        except KeyboardInterrupt:  # the tool has not installed its signal handlers yet, or has none
            return FAILED

    def _complain(self, options: OptionsT, error: Exception, status: int) -> int:
        lines = f"{self.program.command}: {options.without_secrets(str(error))}".split("\n")
        complain(*map(one_line, lines))
        return status


def lazily(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports the module when it is called: --version and --help do not wait for gevent, 40 ms."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def open_log(options: ProgramOptions, program_name: str) -> Log:
    """Return a log on standard error. It uses the log settings of the tool, if the tool has some."""
    if isinstance(options, LogOptions):
        log = Log(options.log_prefix, options.log_level, form=options.log_format)
    else:
        log = Log(f"[{program_name}] ", INFO, form=TEXT)
    log.hide = options.without_secrets
    return log


def is_terminal(stream: IO[Any]) -> bool:
    """True if the stream is a terminal. False for a closed stream."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def wants_colour(stream: IO[Any] | None = None) -> bool:
    """True for a terminal that can show colours, unless the user has disabled them (https://no-color.org)."""
    return (
        is_terminal(sys.stdout if stream is None else stream)
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("NO_COLOR")
    )
