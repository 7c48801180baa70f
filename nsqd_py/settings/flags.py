"""The values of settings from the command line and from the config file.

Flags have the forms of Go's flag package: `-name value`, `-name=value`, `--name=value`, `-bool`. A config file is TOML,
or YAML if its name ends in .yaml or .yml. A key may be spelt as its flag; an unknown key is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nsqd_py.runtime.hidden import without_logins
from nsqd_py.settings.declaration import BadOptions, Setting
from nsqd_py.settings.types import read_secret

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
    if argument is not None and (word == "-" or not word.startswith("-")):
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


def shown_words(words: Sequence[str], settings: Iterable[Setting]) -> list[str]:
    """Return the words of a command line without the secrets in the values of its flags."""
    secret = {setting.name: setting.kind for setting in settings if setting.kind.hide}
    shown = []
    kind_of_next = None
    for word in words:
        name, equals, value = word.partition("=")
        kind = secret.get(name.lstrip("-")) if word.startswith("-") else None
        if kind_of_next is not None:
            shown.append(kind_of_next.shown(word))
        elif kind is not None and equals:
            shown.append(f"{name}={kind.shown(value)}")
        else:
            shown.append(without_logins(word))
        kind_of_next = kind if kind is not None and kind_of_next is None and not equals else None
    return shown


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
            shown = by_name[name].kind.shown(text)
            raise BadValue(f'invalid value "{shown}" for flag -{name}: {error}') from error
    return {by_name[name].attribute: by_name[name].kind.join(values) for name, values in given.items()}


def read_config(
    path: str, settings: Iterable[Setting], removed: Mapping[str, str] = {}, obsolete: Mapping[str, str] = {}
) -> dict[str, Any]:
    """Return the values in a config file, by attribute. Raises BadOptions, which names the file and the key.

    removed   what to use instead of flags that former versions had, by name
    obsolete  what to use instead of keys that are ignored, see `Options.obsolete_keys`
    """
    by_key = {setting.key: setting for setting in settings if setting.key}
    loaded = _load(path)
    values = {}
    for key in sorted(loaded, key=by_key.__contains__):  # the spelling of the manual goes last and overrides others
        value = loaded[key]
        setting = _setting_of(key, by_key)
        if (name := str(key).replace("_", "-")) in removed:
            raise BadOptions(f'{path}: "{key}" was removed: {removed[name]}')
        if setting is None and name.replace("-", "_") in obsolete:
            continue
        if setting is None:
            raise BadOptions(f'{path}: unknown key "{key}"{suggestion(str(key), by_key)}')
        try:
            values[setting.attribute] = setting.kind.from_config(value)
        except ValueError as error:
            shown = f"{value!r} " if setting.kind.hide is None else ""
            raise BadOptions(f'{path}: invalid value {shown}for "{key}": {error}') from error
    return values


def _setting_of(key: object, by_key: Mapping[str, Setting]) -> Setting | None:
    """Return the setting of a key, which may also be the name of the flag, with `-` or `_`."""
    name = str(key).replace("_", "-")
    return next((one for one in by_key.values() if name in (one.name, one.key.replace("_", "-"))), None)


def config_warnings(path: str, settings: Iterable[Setting], obsolete: Mapping[str, str]) -> list[str]:
    """Return a line for each key that is ignored, has another spelling, or has a secret in a file for all users."""
    by_key = {setting.key: setting for setting in settings if setting.key}
    readable = os.stat(path).st_mode & stat.S_IROTH
    lines = []
    for key, value in _load(path).items():
        setting = _setting_of(key, by_key)
        if setting is None:
            lines.append(f"{key} has no effect: {obsolete[key.replace('-', '_')]}")
            continue
        if key != setting.key:
            lines.append(f"{key} is read as {setting.key}; use this spelling")
        texts = [value] if isinstance(value, str) else value
        if readable and setting.kind.hide and any(t[:1] != "@" and setting.kind.shown(t) != t for t in texts):
            lines.append(f"every user of this machine can read it, and {setting.key} has a secret: chmod 600")
    return lines


def from_environment(program: str, settings: Iterable[Setting], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the values of settings with secrets that the environment has, by attribute. Raises BadOptions.

    NSQD_LEASE is the value of nsqd's --lease, and NSQD_LEASE_FILE names a file with it. Each line is one value.
    """
    values = {}
    for setting in settings:
        variable = f"{program}_{setting.name}".upper().replace("-", "_")
        text, path = (environment.get(name, "") for name in (variable, f"{variable}_FILE"))
        if setting.kind.hide is None or not (text or path):
            continue
        if text and path:
            raise BadOptions(f"{variable} and {variable}_FILE are both set; use one of them")
        try:
            lines = (text or read_secret(f"@{path}")).splitlines()
            values[setting.attribute] = setting.kind.join([setting.kind.parse(line) for line in lines])
        except ValueError as error:
            raise BadOptions(f"{variable}{'' if text else '_FILE'}: {error}") from error
    return values


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
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
        # str(error) would show the line, which may contain a secret.
        problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
        where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise BadOptions(f"failed to load config file {path} - {problem or 'it is not YAML'}{where}") from error


# ---- Addresses from the environment, for clients and programs that are given none.


NSQD_TCP_ADDRESS = "NSQD_TCP_ADDRESS"
NSQLOOKUPD_HTTP_ADDRESS = "NSQLOOKUPD_HTTP_ADDRESS"


def addresses_from_environment(environment: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nsqds of NSQD_TCP_ADDRESS or, without one, the nsqlookupds of NSQLOOKUPD_HTTP_ADDRESS.

    Each variable is a list, separated by commas.
    """
    nsqds = _list(environment.get(NSQD_TCP_ADDRESS, ""))
    return nsqds, () if nsqds else _list(environment.get(NSQLOOKUPD_HTTP_ADDRESS, ""))


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
