"""Settings: declared once, read from flags and config files.

A program declares each setting as a `Setting`, in titled groups, and reads its command line with
`Program.read`. Flags (in click's forms and in those of Go's flag package), `--help`, the keys of the config
file and the reference page in docs/ come from that declaration. A flag goes before the config file, and that
before the default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from nsqd_py.settings.types import BOOL, STRING, Kind, choice
from nsqd_py.version import version_string


class BadOptions(Exception):
    """The settings cannot be used as they are; the text says which, and why."""


@dataclass(frozen=True)
class Setting:
    """One setting of a program.

    name: the flag without dashes (`mem-queue-size`). As an attribute of `Options` it is `mem_queue_size`, and
        a duration, which is kept in nanoseconds, `msg_timeout_ns`.
    config_key: its key in a config file; by default the name with `_` for `-`. "" keeps it out of files.
    step_note: what a user has to know while the setting has no effect yet.
    check: returns what is wrong with a value, or None; asked by `Options.check`.
    default_text: stands for the default in texts, where it differs from machine to machine.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    config_key: str | None = None
    step_note: str | None = None
    check: Callable[[Any], str | None] | None = None
    default_text: str | None = None

    @property
    def attribute(self) -> str:
        return _underscored(self.name) + self.kind.attribute_suffix

    @property
    def key(self) -> str:
        return _underscored(self.name) if self.config_key is None else self.config_key

    @property
    def usage(self) -> str:
        """The flag and what it takes: `--mem-queue-size int`, `--snappy[=bool]`."""
        return f"--{self.name}{'' if self.kind.bare_value else ' '}{self.kind.word}"

    @property
    def shown_default(self) -> str:
        return self.kind.show(self.default) if self.default_text is None else self.default_text

    @property
    def full_help(self) -> str:
        return f"{self.help} ({self.step_note})" if self.step_note else self.help


def _underscored(name: str) -> str:
    return name.replace("-", "_")


class Options:
    """The values of a program's settings, as attributes (see `Setting.name`).

    `changes` replace defaults, by attribute; a name that no setting has raises TypeError.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, settings: Iterable[Setting], **changes: Any) -> None:
        self._settings = tuple(settings)
        values = {setting.attribute: setting.default for setting in self._settings}
        for name in changes.keys() - values.keys():
            raise TypeError(f"no setting has the attribute {name}")
        self.__dict__.update(values | changes)

    def replace(self, **changes: Any) -> Options:
        """A copy with other values for some attributes."""
        values = {setting.attribute: getattr(self, setting.attribute) for setting in self._settings}
        return Options(self._settings, **(values | changes))

    def by_config_key(self, key: str) -> Any:
        """The value behind a key of the config file; raises KeyError."""
        for setting in self._settings:
            if key and setting.key == key:
                return getattr(self, setting.attribute)
        raise KeyError(key)

    def without_effect(self) -> list[Setting]:
        """Those settings that somebody changed, and that have a step note."""
        return [s for s in self._settings if s.step_note and getattr(self, s.attribute) != s.default]

    def check(self) -> None:
        """Raises BadOptions for the first value that its setting's check refuses."""
        for setting in self._settings:
            problem = setting.check and setting.check(getattr(self, setting.attribute))
            if problem:
                raise BadOptions(problem)


VERSION = Setting("version", BOOL, False, "Print the version and exit.", config_key="")
CONFIG = Setting(
    "config", STRING, "", "Config file: TOML, or YAML where its name ends in .yaml or .yml.", config_key=""
)
COMPLETION = Setting(
    "completion", choice({shell: shell for shell in ("bash", "zsh", "fish")} | {"": ""}, word="shell"), "",
    "Print what makes this shell complete the flags (bash, zsh, fish) and exit.", config_key="", default_text="none",
)  # fmt: skip
HELP_FLAGS = ("help", "h")
HELP = "--help"

Groups = Mapping[str, Sequence[Setting]]


class UsageError(Exception):
    """The command line is wrong; the text is the line to print."""


class BadValue(UsageError):
    """The value of a flag is wrong, and the text says what was expected."""


class Example(NamedTuple):
    """A command line, for `--help` and the reference page.

    `comment` stands above it on the page and tells the tests of the documentation how to run it, or why they cannot.
    """

    purpose: str
    line: str
    comment: str = ""


class Program:
    """The settings of one program, and the reading of its command line.

    `name` is what the program calls itself (`nsqd`); `command` is what users type (`nsqd-py`). `examples` are
    the fields of `Example`s. `argument` is the setting that plain words on the command line are values of;
    `exit_statuses` are numbers and meanings, where they are not those of all tools.
    """

    def __init__(
        self, name: str, command: str, summary: str, groups: Groups,
        examples: Sequence[tuple[str, str] | tuple[str, str, str]] = (),
        argument: Setting | None = None, exit_statuses: Sequence[tuple[int, str]] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.command = command
        self.summary = summary
        self.examples = tuple(Example(*example) for example in examples)
        self.argument = argument
        self.exit_statuses = tuple(exit_statuses)
        self.groups: Groups = {"This program": (VERSION, CONFIG, COMPLETION), **groups}
        self.settings = tuple(setting for group in self.groups.values() for setting in group)

    def defaults(self, **changes: Any) -> Options:
        """Options without a command line, for tests and for embedding."""
        return Options(self.settings, **changes)

    def read(self, argv: Sequence[str]) -> Options:
        """The options that `argv` (without the program's name) and the config file give.

        Exits after `--help` and `--version` (status 0) and after a wrong command line (status 2, one line or
        two on stderr). Raises BadOptions where the config file cannot be used.
        """
        try:
            arguments = normalise(argv, self.settings, self.argument)
            if HELP in arguments:
                from nsqd_py.settings.help import help_text  # only then: click takes 20 ms to import

                print(help_text(self))
                sys.exit(0)
            flags = _parsed(arguments, self.settings)
        except UsageError as error:
            self._fail(error)
        if flags.get(VERSION.attribute):
            print(version_string(self.name))
            sys.exit(0)
        if flags.get(COMPLETION.attribute):
            from nsqd_py.settings.completion import completion_script

            print(completion_script(self, flags[COMPLETION.attribute]), end="")
            sys.exit(0)
        path = flags.get(CONFIG.attribute)
        from_file = read_config(path, self.settings) if path else {}
        return self.defaults(**(from_file | flags))

    def _fail(self, error: UsageError) -> NoReturn:
        print(error, file=sys.stderr)
        if not isinstance(error, BadValue):
            print(f"For all flags and what they take: {self.command} --help", file=sys.stderr)
        sys.exit(2)


# --- flags


def normalise(argv: Sequence[str], settings: Iterable[Setting], argument: Setting | None = None) -> list[str]:
    """Go's forms of flags (`-name value`, `-name=value`, `-bool`) in the one form `--name=value`.

    A plain word is a value of `argument`, if there is one. So a value may begin with a dash, which click alone would
    take for a flag. Raises UsageError.
    """
    by_name = {setting.name: setting for setting in settings}
    words = iter(argv)
    return [_one_flag(word, words, by_name, argument) for word in words]


def _one_flag(word: str, rest: Iterator[str], by_name: Mapping[str, Setting], argument: Setting | None) -> str:
    if argument is not None and not word.startswith("-"):
        return f"--{argument.name}={word}"
    if not word.startswith("-") or word in ("-", "--"):
        raise UsageError(f"unexpected argument: {word} (a boolean flag takes its value after a =)")
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {word}")
    if name in HELP_FLAGS:
        return HELP
    if name not in by_name:
        raise UsageError(f"flag provided but not defined: -{name}{_suggestion(name, by_name, '-')}")
    if not equals:
        bare = by_name[name].kind.bare_value
        given = next(rest, None) if bare is None else bare
        if given is None:
            raise UsageError(f"flag needs an argument: -{name}")
        value = given
    return f"--{name}={value}"


def _suggestion(word: str, known: Iterable[str], prefix: str = "") -> str:
    import difflib  # only for a mistake

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.75)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _parsed(arguments: Iterable[str], settings: Iterable[Setting]) -> dict[str, Any]:
    """The values of `arguments` as `normalise` returns them, by attribute. Raises BadValue."""
    by_name = {setting.name: setting for setting in settings}
    given: dict[str, list[Any]] = {}
    for argument in arguments:
        name, _, text = argument.removeprefix("--").partition("=")
        try:
            given.setdefault(name, []).append(by_name[name].kind.parse(text))
        except ValueError as error:
            raise BadValue(f'invalid value "{text}" for flag -{name}: {error}') from error
    return {by_name[name].attribute: by_name[name].kind.join(values) for name, values in given.items()}


# --- config files


def read_config(path: str, settings: Iterable[Setting]) -> dict[str, Any]:
    """The values in a config file, by attribute. Raises BadOptions, naming the file and the key."""
    by_key = {setting.key: setting for setting in settings if setting.key}
    values = {}
    for key, value in _load(path).items():
        setting = by_key.get(key)
        if setting is None:
            raise BadOptions(f'{path}: unknown key "{key}"{_key_suggestion(key, by_key)}')
        try:
            values[setting.attribute] = setting.kind.from_config(value)
        except ValueError as error:
            raise BadOptions(f'{path}: invalid value {value!r} for "{key}": {error}') from error
    return values


def _key_suggestion(key: str, by_key: Mapping[str, Setting]) -> str:
    for setting in by_key.values():
        if key == _underscored(setting.name):
            return f" (the key of --{setting.name} is {setting.key})"
    return _suggestion(key, by_key)


def _load(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise BadOptions(f"failed to load config file {path} - {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error
    loaded = _load_yaml(path, text) if path.endswith((".yaml", ".yml")) else _load_toml(path, text)
    if not isinstance(loaded, dict):
        raise BadOptions(f"failed to load config file {path} - it has to be a mapping of keys to values")
    return loaded


def _load_toml(path: str, text: str) -> Any:
    import tomllib  # only where there is such a file: it doubles the time that --version takes

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error


def _load_yaml(path: str, text: str) -> Any:
    import yaml  # as above

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadOptions(f"failed to load config file {path} - {' '.join(str(error).split())}") from error
