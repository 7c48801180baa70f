"""The kinds of settings that declarations use.

Declarations import from here, also what makes a kind of their own: `nsqd_py.settings.kinds` has that, and
`nsqd_py.settings.values` reads the values.
"""

from __future__ import annotations

from itertools import chain

from nsqd_py.runtime.logs.hidden import (
    hidden_option,
    hidden_path,
    hidden_spark_setting,
    hidden_url,
    hidden_value,
)
from nsqd_py.settings.durations import format_duration, parse_duration, parse_period
from nsqd_py.settings.kinds import Kind, StringList, choice, refuse, secret, secrets
from nsqd_py.settings.values import (
    bool_from_native,
    duration_from_native,
    floats_from_native,
    int_from_native,
    listed,
    parse_bool,
    parse_float,
    parse_floats,
    parse_int,
    parse_size,
    quoted,
    strings_from_native,
)

Strings = tuple[str, ...]  # the values of a flag that may be given several times

# OpenSSL's security levels.
OPENSSL_DEFAULT = -1
TLS_LEVELS = {"default": OPENSSL_DEFAULT, **{str(level): level for level in range(6)}}

STRING: Kind[str] = Kind("string", str, refuse("a string"), quoted)
INT: Kind[int] = Kind("int", parse_int, int_from_native, str)
FLOAT: Kind[float] = Kind("float", parse_float, parse_float, str)
SIZE: Kind[int] = Kind("size", parse_size, int_from_native, str)
BOOL: Kind[bool] = Kind(
    "[=bool]", parse_bool, bool_from_native, lambda value: str(value).lower(), bare_value="true"
)
DURATION: Kind[int] = Kind(
    "duration", parse_duration, duration_from_native, format_duration, attribute_suffix="_ns"
)
PERIOD: Kind[int] = Kind(
    "duration", parse_period, duration_from_native, format_duration, attribute_suffix="_ns"
)
STRINGS = StringList("string ...", str, strings_from_native, listed, join=tuple)
# Values that may contain secrets. They are hidden wherever they are shown, and may be read from a file: `@path`.
URL = secret(hidden_url)
WEBHOOK = secret(hidden_path)
URLS = secrets(hidden_url)
NAMED_SECRETS = secrets(hidden_value)
SPARK_SETTINGS = secrets(hidden_spark_setting)
CLIENT_OPTIONS = secrets(hidden_option)
# Largest first: the order in which Go's nsqd shows percentiles in /stats.
FLOATS: Kind[tuple[float, ...]] = Kind(
    "float,...",
    parse_floats,
    floats_from_native,
    listed,
    lambda values: tuple(sorted(chain(*values), reverse=True)),
)
# From a native value as text, so that true is not 1.
TLS_LEVEL: Kind[int] = choice(TLS_LEVELS, word="level", from_native=lambda value: TLS_LEVEL.parse(str(value)))
