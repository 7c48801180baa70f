"""A program: its settings, how it reads them, and how a daemon or a tool starts with them. Imports nothing that is slow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from nsqd_py.errors import StartError
from nsqd_py.runtime.command import complain, with_streams
from nsqd_py.runtime.hidden import without_logins
from nsqd_py.runtime.logs import Log, one_line
from nsqd_py.settings.command_line import BadFlag, BadValue, read_flags
from nsqd_py.settings.declaration import BadOptions, Options, Setting, setting
from nsqd_py.settings.flags import addresses_from_environment, config_warnings, effective_config, from_environment, read_config
from nsqd_py.settings.groups import LogOptions
from nsqd_py.settings.types import BOOL, STRING, choice
from nsqd_py.version import version_string

_SHELLS = ("bash", "zsh", "fish")


class ProgramOptions(Options, title="This program"):
    """The settings that every program has."""

    version: bool = setting(BOOL, False, "Print the version and exit.", config_key="")
    config: str = setting(STRING, "", "Config file: TOML, or YAML if its name ends in .yaml or .yml.", config_key="")
    completion: str = setting(
        choice({**{shell: shell for shell in _SHELLS}, "": ""}, word="shell"),
        "",
        "Print the completion script for a shell (bash, zsh, fish) and exit.",
        config_key="",
        default_text="none",
    )
    check_config: bool = setting(
        BOOL,
        False,
        "Check the flags, the config file and the files that they name, without a start: status 0 if the program would "
        "start with them, 2 if not.",
        config_key="",
    )
    print_config: bool = setting(
        BOOL,
        False,
        "Check them, print all settings as a config file (TOML) in which defaults are comments, and exit. Passwords and "
        "tokens are shown as ***.",
        config_key="",
    )


def config_answer(options: Options) -> str:
    """Return what --check-config or --print-config prints, once the options are checked; "" if neither is given."""
    if getattr(options, "print_config", False):
        return effective_config(options)
    return "The settings are valid.\n" if getattr(options, "check_config", False) else ""


OptionsT = TypeVar("OptionsT", bound=ProgramOptions)


class Program(NamedTuple, Generic[OptionsT]):
    """The declaration of a program, which reads its command line and config file.

    name: what the program calls itself (`nsqd`).
    command: what users type (`nsqd-py`).
    examples: command lines for `--help` and the reference page: the purpose, the line and, for the tests of the
        documentation, how to run it or why they cannot.
    argument: the attribute of the setting whose values are the words without a dash on the command line.
    exit_statuses: numbers and meanings, where they differ from those of all tools.
    removed: flags of former versions, and what to use instead: "use --standby-secret-file".
    """

    name: str
    command: str
    summary: str
    options: type[OptionsT]
    examples: Sequence[tuple[str, str] | tuple[str, str, str]] = ()
    argument: str = ""
    exit_statuses: Sequence[tuple[int, str]] = ()
    removed: Mapping[str, str] = {}

    @property
    def groups(self) -> Mapping[str, tuple[Setting, ...]]:
        return self.options.groups

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(setting for group in self.groups.values() for setting in group)

    def defaults(self, **changes: Any) -> OptionsT:
        """Return options without a command line, for tests and for embedding."""
        return self.options(**changes)

    def read(self, argv: Sequence[str]) -> OptionsT:
        """Return the options of a command line (without the program's name) and of its config file.

        A flag overrides the environment, which overrides the config file. Exits after `--help`, `--version` and
        `--completion` (status 0) and after a wrong command line (status 2, with one or two lines on stderr). Raises
        BadOptions for a bad config file or variable.
        """
        if instruction := os.environ.get(f"_{self.command}_COMPLETE".replace("-", "_").upper()):
            sys.exit(self._described().complete(instruction))
        try:
            flags = read_flags(argv, self.settings, self._argument, self.removed)
        except (BadFlag, BadValue) as error:
            hint = () if isinstance(error, BadValue) else (f"To list all flags: {self.command} --help",)
            complain(without_logins(str(error)), *hint)
            sys.exit(2)
        if flags is None:
            print(self._described().help_text())
            sys.exit(0)
        if flags.get("version"):
            print(version_string(self.name))
            sys.exit(0)
        if shell := flags.get("completion"):
            sys.exit(self._described().complete(f"{shell}_source"))
        path = flags.get("config")
        from_file = read_config(path, self.settings, self.removed, self.options.obsolete_keys) if path else {}
        from_variables = from_environment(self.name, self.settings)
        return self.options(**self._with_addresses(from_file | from_variables | flags))

    @property
    def _argument(self) -> Setting | None:
        return self.options.settings[self.argument] if self.argument else None

    def _described(self) -> Any:
        from nsqd_py.settings.help import HelpCommand  # click takes 9 of 43 ms of `--version`

        return HelpCommand(self.command, self.summary, self.groups, self._argument, [one[:2] for one in self.examples])

    def _with_addresses(self, given: dict[str, Any]) -> dict[str, Any]:
        """Add the addresses of the environment, if the program takes some and none is given."""
        if any(given.get(name) for name in ("nsqd_tcp_address", "nsqd_http_address", "lookupd_http_address")):
            return given
        nsqds, lookupds = addresses_from_environment()
        added = {"nsqd_tcp_address": nsqds, "lookupd_http_address": lookupds}
        return given | {name: value for name, value in added.items() if value and name in self.options.settings}


DaemonT = TypeVar("DaemonT", bound=LogOptions)
# With one of them, not everyone who reaches a port may use it.
_LOCKS = ("auth_http_address", "http_auth_file", "tls_cert", "acl_http_header_from")
_PORTS = ("tcp_address", "http_address")


def _warn_of_open_doors(options: LogOptions, log: Log) -> None:
    """Log a warning if everyone may use the ports, and those of the config file."""
    if not any(getattr(options, name, None) for name in _LOCKS):
        addresses = [getattr(options, name) for name in _PORTS if hasattr(options, name)]
        reachable = ", ".join(address for address in addresses if _is_beyond_loopback(address))
        if reachable:
            log.warning(
                "everyone who can reach %s may use it, because there is no AUTH, TLS or password: docs/security.md", reachable
            )
    path = getattr(options, "config", "")
    for line in config_warnings(path, options.settings.values(), options.obsolete_keys) if path else ():
        log.warning("%s: %s", path, line)


def _is_beyond_loopback(address: str) -> bool:
    """True unless the address is on this machine only: a loopback address, or the path of a unix socket."""
    host, colon, _ = address.rpartition(":")
    host = host.strip("[]")
    is_loopback = host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())
    return bool(colon) and "/" not in address and not is_loopback


class DaemonCommand(NamedTuple, Generic[DaemonT]):
    """A command that serves until a signal ends it.

    read_options: read the command line. Raises BadOptions.
    check_options: raise BadOptions if the daemon cannot start with them.
    serve: run the daemon and return the exit status. Raises StartError and BadOptions. It imports what it
        needs when it is called, so that --version, --help and errors do not wait for gevent.
    instead: do what the options ask for instead of serving, and return the exit status; None to serve.
    """

    name: str
    log_prefix: str
    read_options: Callable[[Sequence[str]], DaemonT]
    check_options: Callable[[DaemonT], None]
    serve: Callable[[DaemonT, Log], int]
    instead: Callable[[DaemonT], int | None] = lambda options: None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run until a signal ends it. Return the exit status: 1 if it could not start, 2 if its settings are wrong."""
        return with_streams(self.name, lambda: self._main(argv))

    def _main(self, argv: Sequence[str] | None) -> int:
        try:
            options = self.read_options(sys.argv[1:] if argv is None else argv)
        except BadOptions as error:
            Log(self.log_prefix).fatal("%s", error)
            return 2
        answer = config_answer(options)
        status = None if answer else self.instead(options)
        if status is not None:
            return status
        log = Log(options.log_prefix, options.log_level, form=options.log_format)
        log.hide = options.without_secrets
        try:
            self.check_options(options)
            for setting in options.without_effect():
                log.warning("--%s has no effect now: %s", setting.name, setting.step_note)
            _warn_of_open_doors(options, log)
            if answer:
                print(answer, end="")
                return 0
            return self.serve(options, log)
        except (BadOptions, StartError) as error:
            log.fatal("failed to instantiate %s - %s", self.name, error)
            return 2 if isinstance(error, BadOptions) or answer else 1
        except Exception as error:  # a bug: its traceback is logged in the form of all log lines
            log.exception("%s ends - %r", self.name, error)
            return 1


# ---- the start and the end of every tool
#
# A tool writes data to standard output and log lines to standard error. The exit status is 0 on success, 1 on failure and
# 2 for a wrong command line. If the reader of standard output goes away (`| head`), the tool ends silently with status 0.


DONE = 0
FAILED = 1
BAD_USAGE = 2


class ToolError(Exception):
    """The tool cannot continue. The text is one line with the reason and the remedy."""


class Tool(NamedTuple, Generic[OptionsT]):
    """A command.

    check  raises BadOptions if the options contradict each other, or ToolError; it has no side effects
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
            return self.run(options, _open_log(options, self.program.name))
        except BadOptions as error:
            return self._complain(options, error, BAD_USAGE)
        except ToolError as error:
            return self._complain(options, error, BAD_USAGE if config_answer(options) else FAILED)
        except KeyboardInterrupt:  # the tool has not installed its signal handlers yet, or has none
            return FAILED

    def _complain(self, options: OptionsT, error: Exception, status: int) -> int:
        lines = f"{self.program.command}: {options.without_secrets(str(error))}".split("\n")
        complain(*map(one_line, lines))
        return status


def _open_log(options: ProgramOptions, name: str) -> Log:
    """Return a log on standard error, with the log settings of the tool if it has some."""
    if isinstance(options, LogOptions):
        log = Log(options.log_prefix, options.log_level, form=options.log_format)
    else:
        log = Log(f"[{name}] ")
    log.hide = options.without_secrets
    return log
