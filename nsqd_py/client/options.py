"""The options of a client, by the names of go-nsq; `--consumer-opt` and `--producer-opt` take these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from nsqd_py.client.errors import BadClientOption
from nsqd_py.net.addresses import parse_host_port
from nsqd_py.settings.durations import SECOND_NS, format_duration, parse_duration
from nsqd_py.settings.types import OPENSSL_DEFAULT, TLS_LEVELS
from nsqd_py.settings.values import parse_bool
from nsqd_py.version import PROJECT_VERSION

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Unpack

    from nsqd_py.client.keywords import ClientSettings

T = TypeVar("T")

Delay: TypeAlias = "float | timedelta"
"""A number of seconds, or a timedelta."""

USER_AGENT = f"nsqd-py/{PROJECT_VERSION}"
OFF_S = -1.0
_LONGEST_DELAY_S = 2**33  # nsqd counts nanoseconds in 64 bits
EXPONENTIAL = "exponential"
FULL_JITTER = "full_jitter"

# The values of tls_min_version, with the version numbers of the TLS protocol.
TLS_VERSIONS = {
    "": 0,
    "ssl3.0": 0x0300,
    "tls1.0": 0x0301,
    "tls1.1": 0x0302,
    "tls1.2": 0x0303,
    "tls1.3": 0x0304,
}


def seconds_of(delay: Delay) -> float:
    """Return a delay as a number of seconds."""
    # Importing datetime for `isinstance` takes long.
    total_seconds: Any = getattr(delay, "total_seconds", None)
    seconds: float = delay if total_seconds is None else total_seconds()  # type: ignore[assignment]
    return seconds


def milliseconds_of(delay: Delay) -> int:
    """Return the delay of a message in milliseconds. Raises ValueError if no nsqd takes it, TypeError if it is no number."""
    seconds = seconds_of(delay)
    if not isinstance(seconds, (int, float)):
        raise TypeError(
            f"a delay is a number of seconds or a timedelta, not {type(delay).__name__}: {delay!r}"
        )
    if not 0 <= seconds <= _LONGEST_DELAY_S:
        raise ValueError(f"a message cannot be deferred by {seconds} s")
    return round(seconds * 1000)


# ---- kinds of arguments and options: what a value may be given as. They raise ValueError.


def read_limit(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("expected a whole number, at least 1")
    return value


def read_time_limit(value: object) -> float:
    seconds = seconds_of(value)  # type: ignore[arg-type]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError("expected a number of seconds above 0, or a timedelta")
    return seconds


def read_argument(name: str, value: object, read: Callable[[object], T]) -> T:
    """Return the value of an argument of a client. Raises BadClientOption, with its name, if it cannot be that."""
    try:
        return read(value)
    except ValueError as error:
        raise BadClientOption(f"{name} cannot be {value!r}: {error}") from None


def _read_seconds(value: object) -> float:
    if isinstance(value, str):
        if value == "-1":
            return OFF_S
        return parse_duration(value) / SECOND_NS
    return _read_number(value if isinstance(value, bool) else seconds_of(value))  # type: ignore[arg-type]


def _read_seconds_or_off(value: object) -> float:
    seconds = _read_seconds(value)
    return OFF_S if seconds < 0 else seconds


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("expected a number")
    number = float(value)
    if not isfinite(number):
        raise ValueError("expected a finite number")
    return number


def _read_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected a whole number")
    return int(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _read_local_addr(value: object) -> str:
    text = _read_text(value)
    if text:
        try:
            parse_host_port(f"{text}0" if text.endswith(":") else text, lowest_port=0)
        except ValueError as error:
            raise ValueError(f"expected host:port; port 0 leaves it to the system: {error}") from None
    return text


def read_flag(value: object) -> bool:
    if isinstance(value, str):
        return parse_bool(value)
    if not isinstance(value, int):
        raise ValueError("expected true or false")
    return bool(value)


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(filter(None, words))}")
        return str(value)

    return read


def _read_level(value: object) -> int:
    if str(value) not in TLS_LEVELS and value != OPENSSL_DEFAULT:
        raise ValueError(f"expected one of {', '.join(TLS_LEVELS)}")
    return TLS_LEVELS.get(str(value), OPENSSL_DEFAULT)


def _read_context(value: object) -> Any:
    if value is None or hasattr(value, "wrap_bio"):
        return value
    raise ValueError("expected an ssl.SSLContext; in a text, use tls_root_ca_file, tls_cert and tls_key")


def _show_seconds(seconds: float) -> str:
    return format_duration(round(seconds * SECOND_NS))


def _option(
    read: Callable[[object], Any],
    default: Any,
    low: float | None = None,
    high: float | None = None,
    name: str = "",
    is_secret: bool = False,
) -> Any:
    """Declare a field. `low` and `high` are inclusive limits; `name` is go-nsq's name if it differs."""
    metadata = {"read": read, "low": low, "high": high, "name": name}
    return field(default=default, repr=not is_secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client for connecting, negotiating and consuming. Attributes ending in `_s` are seconds.

    Create one with `of` or `parse`, which check the values. They use the names of go-nsq, without `_s`.

    read_timeout_s         close a connection on which nothing came for this long, not even a heartbeat
    write_timeout_s        close a connection whose peer takes no data for this long
    heartbeat_interval_s   `OFF_S` disables heartbeats and the limit on silence
    output_buffer_timeout_s, output_buffer_size   `OFF_S` (-1) disables nsqd's output buffer
    msg_timeout_s          0 leaves it to nsqd
    max_msg_size           largest message from nsqd, in bytes; a larger one ends the connection. 0 means 1 GiB
    max_attempts           a Consumer gives up on a message after this many; 0 is never
    tls_security_level     of OpenSSL, 0 to 5; 0 allows keys below 2048 bits and, with tls_min_version, TLS 1.0
    tls_config             an ssl.SSLContext instead of the files
    lookupd_authorization  send auth_secret to nsqlookupd too. As in go-nsq, the option's name is
                           `skip_lookupd_authorization`, and true means to send it
    """

    dial_timeout_s: float = _option(_read_seconds, 1.0, 0)
    read_timeout_s: float = _option(_read_seconds, 60.0, 0.1, 300)
    write_timeout_s: float = _option(_read_seconds, 1.0, 0.1, 300)
    local_addr: str = _option(_read_local_addr, "")

    lookupd_poll_interval_s: float = _option(_read_seconds, 60.0, 0.01, 300)
    lookupd_poll_jitter: float = _option(_read_number, 0.3, 0, 1)
    lookupd_poll_timeout_s: float = _option(_read_seconds, 60.0, 0)
    lookupd_authorization: bool = _option(read_flag, True, name="skip_lookupd_authorization")

    max_requeue_delay_s: float = _option(_read_seconds, 900.0, 0, 3600)
    default_requeue_delay_s: float = _option(_read_seconds, 90.0, 0, 3600)
    backoff_strategy: str = _option(_one_of("", EXPONENTIAL, FULL_JITTER), EXPONENTIAL)
    max_backoff_duration_s: float = _option(_read_seconds, 120.0, 0, 3600)
    backoff_multiplier_s: float = _option(_read_seconds, 1.0, 0, 3600)
    max_attempts: int = _option(_read_count, 5, 0, 65535)
    max_in_flight: int = _option(_read_count, 1, 0)

    low_rdy_idle_timeout_s: float = _option(_read_seconds, 10.0, 1, 300)
    low_rdy_timeout_s: float = _option(_read_seconds, 30.0, 1, 300)
    rdy_redistribute_interval_s: float = _option(_read_seconds, 5.0, 0.001, 5)

    client_id: str = _option(_read_text, "")
    hostname: str = _option(_read_text, "")
    user_agent: str = _option(_read_text, USER_AGENT)
    topology_region: str = _option(_read_text, "")
    topology_zone: str = _option(_read_text, "")
    heartbeat_interval_s: float = _option(_read_seconds_or_off, 30.0)
    sample_rate: int = _option(_read_count, 0, 0, 99)
    output_buffer_size: int = _option(_read_count, 16384, -1)
    output_buffer_timeout_s: float = _option(_read_seconds_or_off, 0.25)
    msg_timeout_s: float = _option(_read_seconds, 0.0, 0)
    max_msg_size: int = _option(_read_count, 64 * 1024 * 1024, 0, 2**31 - 1)
    auth_secret: str = _option(_read_text, "", is_secret=True)

    tls_v1: bool = _option(read_flag, False)
    tls_config: Any = _option(_read_context, None)
    tls_root_ca_file: str = _option(_read_text, "")
    tls_insecure_skip_verify: bool = _option(read_flag, False)
    tls_cert: str = _option(_read_text, "")
    tls_key: str = _option(_read_text, "")
    tls_min_version: str = _option(_one_of(*TLS_VERSIONS), "")
    tls_security_level: int = _option(_read_level, OPENSSL_DEFAULT)
    deflate: bool = _option(read_flag, False)
    deflate_level: int = _option(_read_count, 6, 1, 9)
    snappy: bool = _option(read_flag, False)

    def __post_init__(self) -> None:
        for option in fields(self):
            _check_limits(option, getattr(self, option.name))
        if self.heartbeat_interval_s > self.read_timeout_s:
            raise BadClientOption(
                f"heartbeat_interval {_show_seconds(self.heartbeat_interval_s)} must be less than "
                f"read_timeout {_show_seconds(self.read_timeout_s)}"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadClientOption("tls_cert and tls_key belong together; only one of them is given")
        if self.deflate and self.snappy:
            raise BadClientOption("deflate and snappy cannot both be used: choose one")

    @classmethod
    def of(cls, **settings: Unpack[ClientSettings]) -> ClientOptions:
        """Create from values by the names of go-nsq: seconds, or texts such as "250ms". Raises BadClientOption."""
        return cls(**_read(settings))

    @classmethod
    def parse(cls, texts: Iterable[str], **defaults: Unpack[ClientSettings]) -> ClientOptions:
        """Create from texts `name,value`; a name alone means true. The last value of a name counts.

        `defaults`, as the values of `of`, are for options that no text names. Raises BadClientOption.
        """
        return cls(**{**_read(defaults), **_read(settings_of(texts))})

    @classmethod
    def extending(cls, options: object, settings: Mapping[str, Any]) -> ClientOptions:
        """Return the argument `options` of a client, or the defaults for None, with some other values as `with_settings`."""
        if not isinstance(options, cls | None):
            kind = type(options).__name__
            raise BadClientOption(
                f"options must be a ClientOptions, not {kind}: or give each by its name, as in snappy=True"
            )
        return (options or cls()).with_settings(**settings)

    def with_settings(self, **settings: Unpack[ClientSettings]) -> ClientOptions:
        """Return a copy with some other values, which are given as for `of`. Raises BadClientOption."""
        own = {option.name: getattr(self, option.name) for option in fields(self)}
        return ClientOptions(**{**own, **_read(settings)})

    @property
    def read_limit_s(self) -> float:
        """Return how long a connection may be silent; 0 is any time."""
        if self.heartbeat_interval_s >= 0:
            return self.read_timeout_s
        return 0.0


def settings_of(texts: Iterable[str]) -> dict[str, Any]:
    """Return `name,value` texts as keywords for `ClientOptions.of`; a name alone means True."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition(",")
        settings[name] = value if separator else True
    return settings


def _name(option: Field[Any]) -> str:
    name: str = option.metadata["name"] or option.name.removesuffix("_s")
    return name


_BY_NAME: Mapping[str, Field[Any]] = {_name(option): option for option in fields(ClientOptions)}


def _read(settings: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for given, value in settings.items():
        name = given.replace("-", "_")
        option = _BY_NAME.get(name)
        if option is None:
            shown = given.partition("=")[0]  # what follows may be a secret
            raise BadClientOption(
                f'there is no client option "{shown}" (there are {", ".join(sorted(_BY_NAME))})'
            )
        try:
            values[option.name] = option.metadata["read"](value)
        except ValueError as error:
            shown = f" ({value!r})" if option.repr else ""
            raise BadClientOption(f"client option {name}{shown}: {error}") from error
    return values


def _check_limits(option: Field[Any], value: Any) -> None:
    low = option.metadata["low"]
    high = option.metadata["high"]
    if (low is None or value >= low) and (high is None or value <= high):
        return
    show = _show_seconds if option.name.endswith("_s") else str
    limits = f"at least {show(low)}" if high is None else f"{show(low)} to {show(high)}"
    raise BadClientOption(f"client option {_name(option)} is {show(value)}, but has to be {limits}")
