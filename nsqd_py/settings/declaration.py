"""Settings are declared once, as the fields of a class of options:

    class Messages(Options, title="Messages"):
        msg_timeout_ns: int = setting(DURATION, MINUTE_NS, "Time that a consumer has to finish a message.")

    class PumpOptions(ProgramOptions, Messages):
        pass

    PUMP = Program("pump", "pump-py", "Pump messages.", PumpOptions)

The flag (`--msg-timeout`), the key of the config file (`msg_timeout`), `--help`, completion, the reference page and what
`--print-config` prints follow from the field. mypy knows each attribute and its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from nsqd_py.errors import missing_package
from nsqd_py.runtime.logs.hidden import without_logins
from nsqd_py.settings.kinds import Kind
from nsqd_py.settings.types import BOOL, STRING, STRINGS, URLS

T = TypeVar("T")
D = TypeVar("D")

# Returns the words that a shell may offer.
Completion = Callable[[Mapping[str, Any]], Iterable[str]]

_SHORTEST_SECRET = 8
_ANY_HOST = frozenset(("", "0.0.0.0", "[::]"))


class BadOptions(Exception):
    """The settings cannot be used as they are; the text names the setting and the reason."""


@dataclass(eq=False)
class Setting:
    """The declaration of one setting, made by `setting`.

    attribute: its name in the class of options, such as `msg_timeout_ns`.
    name: the flag without dashes, which is the attribute without the unit of its kind, such as `msg-timeout`.
    hidden: True if `--help` and completion do not list the flag.
    """

    kind: Kind[Any]
    default: Any
    help: str
    config_key: str | None
    step_note: str | None
    check: Callable[[Any], str | None] | None
    default_text: str | None
    short: str = ""
    complete: Completion | None = None
    hidden: bool = False
    attribute: str = ""
    name: str = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        if not attribute.endswith(self.kind.attribute_suffix) or self.attribute not in ("", attribute):
            raise TypeError(f"{attribute} is not a name for this setting, whose help is {self.help!r}")
        self.attribute = attribute
        self.name = attribute.removesuffix(self.kind.attribute_suffix).replace("_", "-")

    @property
    def key(self) -> str:
        """The key in a config file; "" if config files cannot contain it."""
        if self.config_key is None:
            return self.name.replace("-", "_")
        return self.config_key

    @property
    def usage(self) -> str:
        """The flag and its value: `--mem-queue-size int`, `--snappy[=bool]`, `-t, --topic string`, `-n, --n int`."""
        letter = self.short or (self.name if len(self.name) == 1 else "")
        flags = f"-{letter}, --{self.name}" if letter else f"--{self.name}"
        return f"{flags}{'' if self.kind.bare_value else ' '}{self.kind.word}"

    @property
    def shown_default(self) -> str:
        """The default as `--help` shows it."""
        if self.default_text is None:
            return self.kind.show(self.default)
        return self.default_text

    @property
    def full_help(self) -> str:
        """The help with the note on a setting that has no effect."""
        if self.step_note:
            return f"{self.help} ({self.step_note})"
        return self.help


def setting(
    kind: Kind[T],
    default: D,
    help: str,
    *,
    config_key: str | None = None,
    step_note: str | None = None,
    check: Callable[[Any], str | None] | None = None,
    default_text: str | None = None,
    short: str = "",
    complete: Completion | None = None,
    hidden: bool = False,
) -> T | D:
    """Declare a field of a class of options.

    config_key: its key in a config file, by default the flag's name with `_` for `-`; "" keeps it out of files.
    step_note: a note for a setting that is accepted but has no effect.
    check: return the requirement that a value does not meet ("must not be negative"), or None; or raise ValueError with
        a text that names the value. `Options.check_values` calls it.
    default_text: replaces the default in texts, where it differs from machine to machine.
    short: the letter of another flag with the same meaning, with one dash.
    complete: return the words that a shell may offer; it is called with the values before the word, by attribute.
    hidden: keep the flag out of `--help` and of completion. It is read as any other, and stands on the reference page.
    """
    declared: Any = Setting(
        kind, default, help, config_key, step_note, check, default_text, short, complete, hidden
    )
    return declared  # type: ignore[no-any-return]  # a field, as mypy sees it; `Options` takes it out of the class


# Declare a setting of a kind that is empty by default; the arguments are those of `setting` from its help on.
string = partial(setting, STRING, "")
strings = partial(setting, STRINGS, ())
urls = partial(setting, URLS, ())
switch = partial(setting, BOOL, False)


@dataclass_transform(kw_only_default=True)
class Options:
    """The values of a program's settings.

    A subclass with a title is a group: its settings are those of its bases, then its own. A program's class inherits
    from its groups, in the order in which they are shown. The values can be changed: PUT /config does so in a running
    daemon.
    """

    title: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Setting]] = {}  # by attribute
    groups: ClassVar[Mapping[str, tuple[Setting, ...]]] = {}  # by title
    # Keys of config files that NSQ's releases had and ignore now, and what to use instead.
    obsolete_keys: ClassVar[Mapping[str, str]] = {}
    secrets: ClassVar[tuple[Setting, ...]] = ()  # those whose values must not be shown as they are

    def __init_subclass__(cls, title: str = "") -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        for name in own:
            delattr(cls, name)  # an attribute of the instance, as in a dataclass; reading it costs less then
        bases = [base for base in cls.__bases__ if issubclass(base, Options)]
        cls.title = title
        cls.settings = {name: value for base in bases for name, value in base.settings.items()} | own
        cls.secrets = tuple(setting for setting in cls.settings.values() if setting.kind.hide)
        cls.groups = {name: group for base in bases for name, group in base.groups.items()}
        if title:
            cls.groups = {title: tuple(cls.settings.values())}

    def __init__(self, **values: Any) -> None:
        """Take `values` by attribute, and defaults for the others. Raises TypeError for an unknown attribute."""
        settings = self.settings
        for name in values.keys() - settings.keys():
            raise TypeError(f"no setting has the attribute {name}")
        self.__dict__.update({name: setting.default for name, setting in settings.items()} | values)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some attributes. Raises TypeError for an unknown attribute."""
        return type(self)(**(vars(self) | changes))

    def by_config_key(self, key: str) -> Any:
        """Return the value of a key of the config file, without its secrets. Raises KeyError."""
        for setting in self.settings.values():
            if key and setting.key == key:
                return setting.kind.shown(getattr(self, setting.attribute))
        raise KeyError(key)

    def without_secrets(self, text: str) -> str:
        """Return a text in which the values of these options are shown without their secrets."""
        for setting in self.secrets:
            value = getattr(self, setting.attribute)
            secrets = (value,) if isinstance(value, str) else value
            for secret in secrets:
                # A shorter one may be a word of the text.
                if len(secret) >= _SHORTEST_SECRET and secret in text:
                    text = text.replace(secret, setting.kind.shown(secret))
        return without_logins(text)

    def without_effect(self) -> list[Setting]:
        """Return the settings that were changed although they have no effect."""
        return [s for s in self.settings.values() if s.step_note and getattr(self, s.attribute) != s.default]

    def check_values(self) -> None:
        """Raise BadOptions for the first value that its setting's check refuses."""
        for setting in self.settings.values():
            if setting.check is None:
                continue
            value = getattr(self, setting.attribute)
            try:
                requirement = setting.check(value)
            except ValueError as error:
                raise BadOptions(self.without_secrets(f"--{setting.name}: {error}")) from error
            if requirement:
                raise BadOptions(f"--{setting.name} {requirement}, got {setting.kind.show(value)}")

    def check_distinct(self, *attributes: str) -> None:
        """Raise BadOptions if no two sockets can listen at the addresses of two of these settings, empty ones aside."""
        given = [
            (self.settings[name].name, *getattr(self, name).rpartition(":"))
            for name in attributes
            if getattr(self, name)
        ]
        for (name, host, _, port), (other, other_host, _, other_port) in combinations(given, 2):
            is_same_host = host == other_host or not _ANY_HOST.isdisjoint((host, other_host))
            if port == other_port != "0" and is_same_host:
                raise BadOptions(f"--{name} and --{other} are the same address")


@contextmanager
def bad_options(prefix: str, kind: type[Exception] = ValueError) -> Iterator[None]:
    """Raise BadOptions instead of an error of this kind, with its text behind `prefix`."""
    try:
        yield
    except kind as error:
        raise BadOptions(f"{prefix}{error}") from error


def check_package(module: str, extra: str, flag: str) -> None:
    """Raise BadOptions if the module of an extra that a flag needs is not installed."""
    missing = missing_package(module, extra)
    if missing:
        raise BadOptions(f"{flag}: {missing}")


def check_one_of(options: Options, *attributes: str) -> None:
    """Raise BadOptions unless exactly one of these settings has a value."""
    flags = " or ".join(f"--{options.settings[name].name}" for name in attributes)
    given = sum(bool(getattr(options, name)) for name in attributes)
    if given != 1:
        raise BadOptions(f"use {flags} not both" if given else f"{flags} required")


# --- checks of single values


def not_negative(value: int) -> str | None:
    """The check of a number that may be 0."""
    return None if value >= 0 else "must not be negative"


def positive(value: int) -> str | None:
    """The check of a number that must be above 0."""
    return None if value > 0 else "must be positive"


def at_least(least: int, show: Callable[[int], str] = str) -> Callable[[int | None], str | None]:
    """Return the check of a number with a lower bound, which `show` writes. None is accepted."""
    return lambda value: None if value is None or value >= least else f"must be at least {show(least)}"
