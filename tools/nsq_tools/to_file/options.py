"""The settings of nsq-to-file: those of Go's nsq_to_file, and those of formats that Go's does not have."""

from __future__ import annotations

import re

from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.settings.declaration import Options, positive, setting, string, switch
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.regex import compiled
from nsqd_py.settings.tools import CONSUMER_OPT, MAX_IN_FLIGHT, TOPICS, SourceOptions, channel_setting
from nsqd_py.settings.types import DURATION, INT, SIZE, STRING
from nsqd_py.stores.commits import check_table_name
from nsqd_py.stores.compression import CODECS, GZIP_LEVELS, NONE, ZSTD_LEVELS

TOPIC = "<TOPIC>"
HOST = "<HOST>"
PID = "<PID>"
DATETIME = "<DATETIME>"
REV = "<REV>"
SHORT_HOST = "<SHORT_HOST>"
HOSTNAME = "<HOSTNAME>"

# The conversions of Go's nsq_to_file. They are in English, because Python has the locale C for times.
_CONVERSIONS = tuple("AaBbdHIMmpSYyZz%")
_SCHEMES = ("s3", "gs", "az", "abfss")
# The names in `formats.FORMATS`, whose import takes 25 ms.
_FORMATS = ("lines", "jsonl", "framed", "parquet")
DEFAULT_FILENAME_FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
DEFAULT_SUFFIX = ".log"
DEFAULT_DATETIME_FORMAT = "%Y-%m-%d_%H"


def check_words(text: str, *known: str) -> None:
    """Raise ValueError for a word in angle brackets that is not known."""
    for word in re.findall(r"<\w+>", text):
        if word not in known:
            raise ValueError(f"{word} is unknown; known are {', '.join(known)}")


def check_datetime(text: str) -> None:
    """Raise ValueError for an unknown conversion in a --datetime-format."""
    for conversion in re.findall(r"%.?", text, re.DOTALL):
        if conversion[1:] not in _CONVERSIONS:
            raise ValueError(
                f"{conversion} is unknown; known are {', '.join(f'%{letter}' for letter in _CONVERSIONS)}"
            )


def check_pattern(text: str) -> None:
    """Raise ValueError for a --topic-pattern that is not a regular expression, or without the package that reads it."""
    if text:
        compiled(text)


def check_output_dir(text: str) -> str | None:
    scheme, found, path = text.partition("://")
    is_known = scheme in _SCHEMES and path.strip("/")
    if not found or is_known:
        return None
    return f"must be a directory, or {'://…, '.join(_SCHEMES)}://…"


class _Source(SourceOptions, title="Source"):
    topic: tuple[str, ...] = TOPICS
    topic_pattern: str = string(
        "Archive only topics that contain a match of this regular expression (RE2); without --topic, of all topics of "
        "the nsqlookupds.",
        check=check_pattern,
    )
    topic_refresh_ns: int = setting(
        DURATION,
        MINUTE_NS,
        "Time between two requests to the nsqlookupds for new topics, if no --topic is given.",
        check=positive,
    )
    channel: str = channel_setting(
        "nsq_to_file", "NSQ channel.", check=lambda value: None if value else "is required"
    )
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: tuple[str, ...] = CONSUMER_OPT


class _Files(Options, title="Files"):
    output_dir: str = string(
        "Directory for finished files and the manifest; or an object store that they are uploaded to, as s3://bucket/path, "
        "gs://bucket/path or az://container/path.",
        check=check_output_dir,
        default_text="nsq-to-file in $XDG_DATA_HOME or ~/.local/share; required for users without a home directory",
    )
    work_dir: str = string(
        "Directory for files that are being written; it may be on another file system.",
        default_text="the output-dir; for an object store, the default of that",
    )
    filename_format: str = setting(
        STRING,
        DEFAULT_FILENAME_FORMAT,
        "Names of files, optionally with directories. <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced; "
        "<REV> is a number that is increased if the file exists. The ending of the default depends on the format: "
        ".log, .jsonl, .framed or .parquet, followed by .gz or .zst if the file is compressed.",
        check=lambda value: check_words(value, TOPIC, HOST, PID, DATETIME, REV),
    )
    datetime_format: str = setting(
        STRING,
        DEFAULT_DATETIME_FORMAT,
        "Format of <DATETIME>, as for strftime; it is in local time, and %z writes the zone.",
        check=check_datetime,
    )
    datetime_utc: bool = switch("Write <DATETIME> in UTC; the default format then ends in Z.")
    host_identifier: str = string(
        "Value of <HOST>; <SHORT_HOST> and <HOSTNAME> are replaced in it.",
        default_text="the host name up to its first dot",
        check=lambda value: check_words(value, SHORT_HOST, HOSTNAME),
    )
    table: str = string(
        "Commit each finished Parquet file to a table: delta, a Delta table in the output-dir, or iceberg:namespace.table, an "
        "Iceberg table of pyiceberg's default catalog. The table is made if it is missing.",
        check=check_table_name,
    )
    skip_empty_files: bool = switch(
        "Create a file only when there is a message for it, as --table does always."
    )


class _Contents(Options, title="Contents"):
    format: str = setting(
        choice({name: name for name in _FORMATS}, word="format"),
        "lines",
        "lines (each body and a newline, as in Go's nsq_to_file), jsonl (one object a message), framed (records with "
        "checksums, which Spark can split) or parquet (needs pyarrow).",
    )
    compress: str = setting(
        choice({name: name for name in CODECS}, word="codec"),
        NONE,
        "none, gzip or zstd. Files in the framed format can use none or zstd; parquet compresses its columns.",
    )
    gzip: bool = switch("The same as --compress=gzip.")
    gzip_level: int = setting(
        INT,
        6,
        "1 (fastest) to 9 (smallest). 1 to 3 are the same; so are 4 to 6, up to 30 % larger than zlib, which 7 to 9 use.",
        check=lambda value: None if value in GZIP_LEVELS else "must be from 1 to 9",
    )
    zstd_level: int = setting(
        INT,
        3,
        "1 (fastest) to 19 (smallest).",
        check=lambda value: None if value in ZSTD_LEVELS else "must be from 1 to 19",
    )


class _Ends(Options, title="Rotation"):
    rotate_size: int = setting(
        SIZE,
        0,
        "Start a new file when the current one exceeds this number of bytes, before compression; 0 means no limit.",
    )
    rotate_interval_ns: int = setting(DURATION, 0, "Start a new file after this time; 0 means never.")
    sync_interval_ns: int = setting(
        DURATION,
        30 * SECOND_NS,
        "Maximum time until a message is synced to the disk and finished.",
        check=positive,
    )


class _Http(HttpClientOptions, title="HTTP"):
    """The settings of requests to nsqlookupds."""


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_to_file] ")


class ToFileOptions(ProgramOptions, _Source, _Files, _Contents, _Ends, _Http, _Log):
    """The options of nsq-to-file."""
