"""The values of settings from the command line and from the config file.

Flags have the forms of Go's flag package: `-name value`, `-name=value`, `--name=value`, `-bool`. A config file is TOML,
or YAML if its name ends in .yaml or .yml; an unknown key is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsqd_py.settings.declaration import BadOptions, Setting

HELP_FLAGS = ("help", "h")
HELP = "--help"


class UsageError(Exception):
    """The command line is wrong; the text is the line to print."""


class BadValue(UsageError):
    """The value of a flag is wrong; the text says what was expected."""


def normalise(
    argv: Sequence[str], settings: Iterable[Setting], argument: Setting | None = None, removed: Mapping[str, str] = {}
) -> list[str]:
    """Return the flags in the form `--name=value`. A value may begin with a dash. Raises UsageError.

    argument  the setting whose values are the words without a dash, if the program has one
    removed   what to use instead of flags that former versions had, by name
    """
    by_name = {setting.name: setting for setting in settings}
    words = iter(argv)
    return [_one_flag(word, words, by_name, argument, removed) for word in words]


def _one_flag(
    word: str, rest: Iterator[str], by_name: Mapping[str, Setting], argument: Setting | None, removed: Mapping[str, str]
) -> str:
    if argument is not None and not word.startswith("-"):
        return f"--{argument.name}={word}"
    if not word.startswith("-") or word in ("-", "--"):
        raise UsageError(f"unexpected argument: {word} (a boolean flag takes its value after a =)")
    name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {word}")
    if name in HELP_FLAGS:
        return HELP
    if name in removed:
        raise UsageError(f"--{name} was removed: {removed[name]}")
    if name not in by_name:
        raise UsageError(f"flag provided but not defined: -{name}{suggestion(name, by_name, '-')}")
    if not equals:
        bare = by_name[name].kind.bare_value
        given = next(rest, None) if bare is None else bare
        if given is None:
            raise UsageError(f"flag needs an argument: -{name}")
        value = given
    return f"--{name}={value}"


def suggestion(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a question with the known word that is closest to a misspelt one, or ""."""
    import difflib  # slow to import; only errors need it

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.75)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def parsed(arguments: Iterable[str], settings: Iterable[Setting]) -> dict[str, Any]:
    """Return the values of normalised flags, by attribute. Raises BadValue."""
    by_name = {setting.name: setting for setting in settings}
    given: dict[str, list[Any]] = {}
    for argument in arguments:
        name, _, text = argument.removeprefix("--").partition("=")
        try:
            given.setdefault(name, []).append(by_name[name].kind.parse(text))
        except ValueError as error:
            raise BadValue(f'invalid value "{text}" for flag -{name}: {error}') from error
    return {by_name[name].attribute: by_name[name].kind.join(values) for name, values in given.items()}


def read_config(path: str, settings: Iterable[Setting], removed: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the values in a config file, by attribute. Raises BadOptions, which names the file and the key."""
    by_key = {setting.key: setting for setting in settings if setting.key}
    values = {}
    for key, value in _load(path).items():
        setting = by_key.get(key)
        if (name := str(key).replace("_", "-")) in removed:
            raise BadOptions(f'{path}: "{key}" was removed: {removed[name]}')
        if setting is None:
            raise BadOptions(f'{path}: unknown key "{key}"{_key_suggestion(key, by_key)}')
        try:
            values[setting.attribute] = setting.kind.from_config(value)
        except ValueError as error:
            raise BadOptions(f'{path}: invalid value {value!r} for "{key}": {error}') from error
    return values


def _key_suggestion(key: str, by_key: Mapping[str, Setting]) -> str:
    for setting in by_key.values():
        if key == setting.name.replace("-", "_"):
            return f" (the key of --{setting.name} is {setting.key})"
    return suggestion(key, by_key)


def _load(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise BadOptions(f"failed to load config file {path} - {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error
    loaded = _load_yaml(path, text) if path.endswith((".yaml", ".yml")) else _load_toml(path, text)
    if not isinstance(loaded, dict):
        raise BadOptions(f"failed to load config file {path} - it must be a mapping of keys to values")
    return loaded


def _load_toml(path: str, text: str) -> Any:
    import tomllib  # slow to import: it would double the time of --version

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error


def _load_yaml(path: str, text: str) -> Any:
    import yaml  # slow to import

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadOptions(f"failed to load config file {path} - {' '.join(str(error).split())}") from error
