"""The values of settings from config files and from the environment, and as --print-config prints them.

A config file is TOML, or YAML if its name ends in .yaml or .yml. A key may be spelt as its flag; an unknown key is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nsqd_py.runtime.logs.hidden import HIDDEN, without_logins
from nsqd_py.settings.declaration import BadOptions, Options, Setting
from nsqd_py.settings.kinds import ByTopic, Kind
from nsqd_py.settings.types import BOOL, INT, SIZE
from nsqd_py.settings.values import read_secret

NSQD_TCP_ADDRESS = "NSQD_TCP_ADDRESS"
NSQLOOKUPD_HTTP_ADDRESS = "NSQLOOKUPD_HTTP_ADDRESS"
# The settings that have their values, by attribute.
ADDRESS_VARIABLES = {"nsqd_tcp_address": NSQD_TCP_ADDRESS, "lookupd_http_address": NSQLOOKUPD_HTTP_ADDRESS}

_TOO_DEEP = "values in too many lists or tables"


def shown_words(words: Sequence[str], settings: Iterable[Setting]) -> list[str]:
    """Return the words of a command line without the secrets in the values of its flags. The name of a file is no secret."""
    secret = {setting.name: setting.kind for setting in settings if setting.kind.hide}
    shown = []
    kind_of_next = None
    for word in words:
        name, equals, value = word.partition("=")
        kind = None
        if word.startswith("-"):
            kind = secret.get(name.lstrip("-"))
        if kind_of_next is not None:
            shown.append(word if word.startswith("@") else kind_of_next.shown(word))
        elif kind is not None and equals:
            shown.append(word if value.startswith("@") else f"{name}={kind.shown(value)}")
        else:
            shown.append(without_logins(word))
        if kind is not None and kind_of_next is None and not equals:
            kind_of_next = kind
        else:
            kind_of_next = None
    return shown


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question with the known word that is closest to a misspelt one, or ""."""
    import difflib  # slow to import; only errors need it

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""


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
    # The spelling of the manual goes last and overrides others.
    for key in sorted(loaded, key=by_key.__contains__):
        value = loaded[key]
        setting = _setting_of(key, by_key)
        name = str(key).replace("_", "-")
        if setting is None and name.replace("-", "_") in obsolete:
            continue
        if name in removed:
            raise BadOptions(f'{path}: "{key}" was removed: {removed[name]}')
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


def from_environment(
    program: str, settings: Iterable[Setting], environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the values of settings with secrets that the environment has, by attribute. Raises BadOptions.

    NSQD_LEASE is the value of nsqd's --lease, and NSQD_LEASE_FILE names a file with it. Each line is one value.
    """
    values = {}
    for setting in settings:
        variable = variable_of(program, setting)
        text, path = (environment.get(name, "") for name in (variable, f"{variable}_FILE"))
        if setting.kind.hide is None or not (text or path):
            continue
        if text and path:
            raise BadOptions(f"{variable} and {variable}_FILE are both set; use one of them")
        try:
            lines = (text or read_secret(f"@{path}")).splitlines()
            parsed = [setting.kind.parse(line) for line in lines]
            values[setting.attribute] = setting.kind.join(parsed)
        except ValueError as error:
            raise BadOptions(f"{variable}{'' if text else '_FILE'}: {error}") from error
    return values


def variable_of(program: str, setting: Setting) -> str:
    """Return the variable that has the value of a setting: NSQD_LEASE for nsqd's --lease."""
    return f"{program}_{setting.name}".upper().replace("-", "_")


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise BadOptions(f"failed to load config file {path} - {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error
    if path.lower().endswith((".yaml", ".yml")):
        loaded = _load_yaml(path, text)
    else:
        loaded = _load_toml(path, text)
    if not isinstance(loaded, dict):
        raise BadOptions(f"failed to load config file {path} - it must be a mapping of keys to values")
    return loaded


def _load_toml(path: str, text: str) -> Any:
    import tomllib  # slow to import: it would double the time of --version

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOptions(f"failed to load config file {path} - {error}") from error
    except RecursionError as error:
        raise BadOptions(f"failed to load config file {path} - {_TOO_DEEP}") from error


def _load_yaml(path: str, text: str) -> Any:
    import yaml  # slow to import

    class Loader(yaml.SafeLoader):
        """A key that is there twice is an error, as in TOML."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: list[object] = []
            for key, _ in node.value:
                if key.value in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f'the key "{key.value}" is there twice', problem_mark=key.start_mark
                    )
                keys.append(key.value)
            return super().construct_mapping(node, deep)

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            """Return the type of a value. In YAML 1.1, 1:30 is the number 90, which would be 90 ms; here it is text."""
            plain = (False, True) if ":" in (value or "") else implicit
            return super().resolve(kind, value, plain)  # type: ignore[no-untyped-call]

    try:
        return Loader(text).get_single_data() or {}
    except RecursionError as error:
        raise BadOptions(f"failed to load config file {path} - {_TOO_DEEP}") from error
    except yaml.YAMLError as error:
        # str(error) would show the line, which may contain a secret.
        problem = getattr(error, "problem", None)
        mark = getattr(error, "problem_mark", None)
        where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise BadOptions(
            f"failed to load config file {path} - {problem or 'it is not YAML'}{where}"
        ) from error


# ---- Addresses from the environment, for clients and programs that are given none.


def addresses_from_environment(
    environment: Mapping[str, str] = os.environ,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nsqds of NSQD_TCP_ADDRESS or, without one, the nsqlookupds of NSQLOOKUPD_HTTP_ADDRESS.

    Each variable is a list, separated by commas.
    """
    nsqds = _list(environment.get(NSQD_TCP_ADDRESS, ""))
    return nsqds, () if nsqds else _list(environment.get(NSQLOOKUPD_HTTP_ADDRESS, ""))


def _list(text: str) -> tuple[str, ...]:
    parts = (part.strip() for part in text.split(","))
    return tuple(part for part in parts if part)


# ---- --print-config


def effective_config(options: Options) -> str:
    """Return all settings that config files can contain as TOML, with their help. Defaults are comments, secrets hidden.

    Hidden settings are left out, unless they were changed.
    """
    parts = []
    for title, settings in options.groups.items():
        shown = [setting for setting in settings if setting.key and _is_shown(setting, options)]
        if shown:
            parts.append(f"# ---- {title}\n")
        for setting in shown:
            parts += _effective(setting, options)
    return "\n".join(parts)


def _is_shown(setting: Setting, options: Options) -> bool:
    return not setting.hidden or getattr(options, setting.attribute) != setting.default


def _effective(setting: Setting, options: Options) -> Iterable[str]:
    value = getattr(options, setting.attribute)
    shown = setting.kind.shown(value)
    yield f"# {setting.full_help}"
    if setting.kind.hide and HIDDEN in str(shown):
        yield f"# {HIDDEN} hides a secret: replace it, or remove the line and use a flag or a variable."
    is_default = value == setting.default or value is None
    yield f"{'#' if is_default else ''}{setting.key} = {literal(setting.kind, '' if value is None else shown)}\n"


def literal(kind: Kind[Any], value: Any) -> str:
    """Return a value in a form that is both TOML and YAML."""
    if kind in (BOOL, INT, SIZE):
        return kind.show(value)
    if isinstance(value, ByTopic):
        shown = [one if isinstance(one, str) else kind.show(ByTopic(one)) for one in value.values]
        rules = [f"{pattern}={one}" for (pattern, _), one in zip(value.rules, shown[1:], strict=True)]
        if rules:
            value = [*rules, shown[0]]
        else:
            value = shown[0]
    elif not isinstance(value, str | tuple):
        value = kind.show(value)
    import json  # slow to import

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
