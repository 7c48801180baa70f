"""How every tool begins and ends.

Data goes to standard output and talk to standard error. The exit status is 0 when all was done, 1 when it failed,
and 2 when the command line was wrong; a reader of standard output that goes away (`| head`) ends a tool quietly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar

from nsqd_py.runtime.logs import INFO, TEXT, Log
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.groups import LogOptions
from nsqd_py.settings.program import Program, ProgramOptions

DONE = 0
FAILED = 1
BAD_USAGE = 2

OptionsT = TypeVar("OptionsT", bound=ProgramOptions)


class BadUsage(Exception):
    """The command line asks for what cannot be; the text is one line that says what is wrong and how to mend it."""


class ToolError(Exception):
    """The tool cannot go on; the text is one line that says why and what to do."""


@dataclass(frozen=True)
class Tool(Generic[OptionsT]):
    """A command.

    check  raises BadUsage or BadOptions where the options do not fit together, ToolError; changes nothing
    run    does the work and returns the exit status; raises ToolError. It imports what it needs itself, so that
           --version, --help and a refusal do not wait for gevent
    """

    program: Program[OptionsT]
    check: Callable[[OptionsT], None]
    run: Callable[[OptionsT, Log], int]

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs the tool to its end and returns the exit status."""
        try:
            options = self.program.read(sys.argv[1:] if argv is None else argv)
            options.check()
            self.check(options)
        except (BadUsage, BadOptions) as error:
            return self._complain(error, BAD_USAGE)
        except ToolError as error:
            return self._complain(error, FAILED)
        try:
            return self._run(options)
        except ToolError as error:
            return self._complain(error, FAILED)

    def _run(self, options: OptionsT) -> int:
        try:
            status = self.run(options, open_log(options, self.program.name))
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()
            return DONE
        except KeyboardInterrupt:  # before the tool listens to signals, or where it needs no clean stop
            return FAILED
        return status

    def _complain(self, error: Exception, status: int) -> int:
        print(f"{self.program.command}: {error}", file=sys.stderr)
        return status


def open_log(options: ProgramOptions, program_name: str) -> Log:
    """Return the log on standard error, with the tool's settings for it if it has any."""
    if isinstance(options, LogOptions):
        return Log(options.log_prefix, options.log_level, form=options.log_format)
    return Log(f"[{program_name}] ", INFO, form=TEXT)


def _forget_output() -> None:
    """Nobody reads standard output any more: what Python still wants to write at its end goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_terminal(stream: IO[Any]) -> bool:
    """Somebody looks at it. False for a closed stream."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def wants_colour(stream: IO[Any] | None = None) -> bool:
    """A terminal that can show colours, whose user has not refused them (https://no-color.org)."""
    return (
        is_terminal(sys.stdout if stream is None else stream)
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("NO_COLOR")
    )
