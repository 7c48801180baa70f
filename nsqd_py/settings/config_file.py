"""The config file: TOML, or YAML if its name ends in .yaml or .yml. An unknown key is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nsqd_py.settings.declaration import BadOptions, Setting
from nsqd_py.settings.flags import suggestion


def read_config(path: str, settings: Iterable[Setting]) -> dict[str, Any]:
    """Return the values in a config file, by attribute. Raises BadOptions, which names the file and the key."""
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
