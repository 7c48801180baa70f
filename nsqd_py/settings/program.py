"""A program: its settings, and how it reads them; settings that several programs have; exit statuses and errors of tools."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from nsqd_py.runtime.logs.daemon_log import INFO, JSON, LEVELS, TEXT
from nsqd_py.settings.command_line import GoCommand
from nsqd_py.settings.declaration import Options, Setting, not_negative, setting, string, switch
from nsqd_py.settings.flags import (
    ADDRESS_VARIABLES,
    addresses_from_environment,
    from_environment,
    read_config,
    variable_of,
)
from nsqd_py.settings.kinds import Kind, choice
from nsqd_py.settings.types import INT, STRING
from nsqd_py.version import version_string

_SHELLS = ("bash", "zsh", "fish")

LOG_LEVEL: Kind[int] = choice(LEVELS, word="level")

VERBOSE: bool = switch("Deprecated and without effect; use --log-level.", config_key="", hidden=True)
OBSOLETE_VERBOSE: dict[str, str] = {"verbose": "use log_level"}
# Flags of former versions of nsqd and nsqlookupd: `nsqd_py.net.limits` has the times.
REMOVED_TIME_LIMITS = {
    "handshake-timeout": "it is always 10s",
    "http-head-timeout": "it is always 30s, and 1s more for each KiB of a body",
    "http-idle-timeout": "it is always 11m; let clients and load balancers close idle connections earlier",
    "write-timeout": "it is always 1m",
}

DONE = 0
FAILED = 1
BAD_USAGE = 2


class ProgramOptions(Options, title="This program"):
    """The settings that every program has."""

    version: bool = switch("Print the version and exit.", config_key="")
    config: str = string("Config file: TOML, or YAML if its name ends in .yaml or .yml.", config_key="")
    completion: str = setting(
        choice({**{shell: shell for shell in _SHELLS}, "": ""}, word="shell"),
        "",
        "Print the completion script for a shell (bash, zsh, fish) and exit.",
        config_key="",
        default_text="none",
    )
    check_config: bool = switch(
        "Check the flags, the config file and the files that they name, without a start: status 0 if the program would "
        "start with them, 2 if not.",
        config_key="",
    )
    print_config: bool = switch(
        "Check them, print all settings as a config file (TOML) in which defaults are comments, and exit. Passwords and "
        "tokens are shown as ***.",
        config_key="",
    )


def log_prefix_setting(default: str) -> str:
    """Declare `--log-prefix`, whose default differs by program."""
    return setting(STRING, default, "Prefix of every log line.")


class LogOptions(Options):
    """Settings of the log on standard error. A program overrides `log_prefix`."""

    log_level: int = setting(
        LOG_LEVEL, INFO, "Write log lines of this level and above: debug, info, warn, error, fatal."
    )
    log_format: str = setting(
        choice({TEXT: TEXT, JSON: JSON}, word="format"),
        TEXT,
        "Format of the log on stderr: text (lines as Go's NSQ writes them) or json (one object a line).",
    )
    log_prefix: str = log_prefix_setting("")


class LimitOptions(Options, title="Limits"):
    """The limits of nsqd and nsqlookupd on their clients."""

    max_connections: int = setting(
        INT,
        0,
        "Maximum number of TCP and HTTP connections; 0 means all file descriptors except a reserve for files.",
        check=not_negative,
    )
    max_connections_per_address: int = setting(
        INT, 0, "Maximum number of connections from one IP address; 0 means no limit.", check=not_negative
    )


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
        """The settings that `--help` lists, by title."""
        return {
            title: tuple(setting for setting in group if not setting.hidden)
            for title, group in self.options.groups.items()
        }

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(setting for group in self.options.groups.values() for setting in group)

    @property
    def hidden(self) -> tuple[Setting, ...]:
        return tuple(setting for setting in self.settings if setting.hidden)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that have values of settings, by attribute."""
        variables = {
            setting.attribute: variable_of(self.name, setting)
            for setting in self.settings
            if setting.kind.hide
        }
        return variables | {
            name: variable for name, variable in ADDRESS_VARIABLES.items() if name in self.options.settings
        }

    def defaults(self, **changes: Any) -> OptionsT:
        """Return options without a command line, for tests and for embedding."""
        return self.options(**changes)

    def read(self, argv: Sequence[str]) -> OptionsT:
        """Return the options of a command line (without the program's name) and of its config file.

        A flag overrides the environment, which overrides the config file. Exits after `--help`, `--version` and
        `--completion` (status 0) and after a wrong command line (status 2, with one or two lines on stderr). Raises
        BadOptions for a bad config file or variable.
        """
        command = GoCommand(
            self.command,
            self.summary,
            self.options.groups,
            self.options.settings[self.argument] if self.argument else None,
            [example[:2] for example in self.examples],
            self.removed,
            self.variables,
        )
        flags = command.read(argv)
        if flags.get("version"):
            print(version_string(self.name))
            sys.exit(0)
        if flags.get("completion"):
            command.print_completion(flags["completion"])
            sys.exit(0)
        path = flags.get("config")
        from_file = {}
        if path:
            from_file = read_config(path, self.settings, self.removed, self.options.obsolete_keys)
        from_variables = from_environment(self.name, self.settings)
        return self.options(**self._with_addresses(from_file | from_variables | flags))

    def _with_addresses(self, given: dict[str, Any]) -> dict[str, Any]:
        """Add the addresses of the environment, if the program takes some and none is given."""
        if any(given.get(name) for name in ("nsqd_tcp_address", "nsqd_http_address", "lookupd_http_address")):
            return given
        nsqds, lookupds = addresses_from_environment()
        added = {"nsqd_tcp_address": nsqds, "lookupd_http_address": lookupds}
        return given | {
            name: value for name, value in added.items() if value and name in self.options.settings
        }


# ---- what tools return and raise


class ToolError(Exception):
    """The tool cannot continue. The text is one line with the reason and the remedy."""
