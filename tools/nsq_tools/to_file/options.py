"""The settings of nsq-to-file: those of Go's nsq_to_file, and those of formats that Go's does not have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nsq_tools.cli import BadUsage
from nsq_tools.options import CONSUMER_OPT, MAX_IN_FLIGHT, TOPICS, SourceOptions, check_name, check_sources, client_options
from nsq_tools.to_file.compression import CODECS, GZIP, GZIP_LEVELS, NONE, ZSTD_LEVELS
from nsq_tools.to_file.naming import (
    DATETIME,
    HOST,
    HOSTNAME,
    PID,
    REV,
    SHORT_HOST,
    TOPIC,
    check_datetime,
    check_words,
    with_suffix,
)
from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.settings.declaration import Options, positive, setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.groups import LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, DURATION, INT, SIZE, STRING, choice

if TYPE_CHECKING:
    from nsq_tools.to_file.formats.format import Format

# The names in `formats.FORMATS`, which is slow to import.
_FORMATS = ("lines", "jsonl", "framed", "parquet")
DEFAULT_FILENAME_FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
DEFAULT_SUFFIX = ".log"


class _Source(SourceOptions, title="Source"):
    topic: tuple[str, ...] = TOPICS
    topic_pattern: str = setting(
        STRING,
        "",
        "Archive only topics that contain a match of this regular expression (RE2); without --topic, of all topics of "
        "the nsqlookupds.",
    )
    topic_refresh_ns: int = setting(
        DURATION,
        MINUTE_NS,
        "Time between two requests to the nsqlookupds for new topics, if no --topic is given.",
        check=positive,
    )
    channel: str = setting(STRING, "nsq_to_file", "NSQ channel.", check=lambda value: None if value else "is required")
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: tuple[str, ...] = CONSUMER_OPT


class _Files(Options, title="Files"):
    output_dir: str = setting(
        STRING,
        "",
        "Directory for finished files and the manifest.",
        default_text="nsq-to-file in $XDG_DATA_HOME or ~/.local/share",
    )
    work_dir: str = setting(
        STRING, "", "Directory for files that are being written; it may be on another file system.", default_text="the output-dir"
    )
    filename_format: str = setting(
        STRING,
        DEFAULT_FILENAME_FORMAT,
        "Names of files, optionally with directories. <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced; "
        "<REV> is a number that is increased if the file exists. The ending of the default depends on the format: "
        ".log, .jsonl, .framed or .parquet, followed by .gz or .zst if the file is compressed.",
        check=lambda value: check_words(value, TOPIC, HOST, PID, DATETIME, REV),
    )
    datetime_format: str = setting(STRING, "%Y-%m-%d_%H", "Format of <DATETIME>, as for strftime.", check=check_datetime)
    host_identifier: str = setting(
        STRING,
        "",
        "Value of <HOST>; <SHORT_HOST> and <HOSTNAME> are replaced in it.",
        default_text="the host name up to its first dot",
        check=lambda value: check_words(value, SHORT_HOST, HOSTNAME),
    )
    skip_empty_files: bool = setting(BOOL, False, "Create a file only when there is a message for it.")


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
    gzip: bool = setting(BOOL, False, "The same as --compress=gzip.")
    gzip_level: int = setting(
        INT,
        6,
        "1 (fastest) to 9 (smallest). 2 to 6 are nearly the same: fast, and 12 % larger than with zlib, which 7 to 9 use.",
        check=lambda value: None if value in GZIP_LEVELS else "must be from 1 to 9",
    )
    zstd_level: int = setting(
        INT, 3, "1 (fastest) to 19 (smallest).", check=lambda value: None if value in ZSTD_LEVELS else "must be from 1 to 19"
    )


class _Ends(Options, title="Rotation"):
    rotate_size: int = setting(
        SIZE, 0, "Start a new file when the current one exceeds this number of bytes, before compression; 0 means no limit."
    )
    rotate_interval_ns: int = setting(DURATION, 0, "Start a new file after this time; 0 means never.")
    sync_interval_ns: int = setting(
        DURATION, 30 * SECOND_NS, "Maximum time until a message is synced to the disk and finished.", check=positive
    )


class _Http(HttpClientOptions, title="HTTP"):
    http_client_connect_timeout_ns: int = setting(
        DURATION, 2 * SECOND_NS, "Timeout for connecting to an HTTP server.", check=positive
    )
    http_client_request_timeout_ns: int = setting(DURATION, 5 * SECOND_NS, "Timeout for an HTTP response.", check=positive)


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_to_file] ")


class ToFileOptions(ProgramOptions, _Source, _Files, _Contents, _Ends, _Http, _Log):
    """The options of nsq-to-file."""


# Until messages of the topic are in flight.
_RUN = "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic={}' | grep 'inflt: *[1-9]'\""

PROGRAM = Program(
    "nsq_to_file",
    "nsq-to-file",
    "Write the messages of topics to files. A message is finished only after it is synced to the disk, so a crash "
    "loses nothing, but can leave messages in the files twice. At the start, unfinished files of an earlier run are "
    "repaired and moved to their place. Each finished file has a line in _manifest.jsonl in the output-dir. If the "
    "disk is full, it waits. SIGHUP finishes the current files.",
    ToFileOptions,
    examples=(
        (
            "One topic of one nsqd, a file an hour",
            "nsq-to-file --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --output-dir=/var/archive",
            _RUN.format("orders"),
        ),
        (
            'All topics of a cluster that begin with "audit", compressed, in a directory each',
            "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic-pattern='^audit' --compress=zstd "
            "--filename-format='<TOPIC>/<DATETIME>.<HOST><REV>.log' --output-dir=/var/archive",
            _RUN.format("audit_logins"),
        ),
        (
            "An archive for replays, in files of 256 MB, which appear in the directory when they are complete",
            "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic=orders --format=framed --compress=zstd "
            "--rotate-size=268435456 --work-dir=/var/spool/nsq --output-dir=/mnt/archive --max-in-flight=5000",
            _RUN.format("orders"),
        ),
        (
            "Columns for analysis, a file every ten minutes",
            "nsq-to-file --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --format=parquet --compress=zstd "
            "--rotate-interval=10m --output-dir=/var/archive",
            _RUN.format("orders"),
        ),
    ),
)


def check_options(options: ToFileOptions) -> None:
    """Raise BadUsage if the options contradict each other."""
    check_sources(options)
    _check_topics(options)
    check_name(options.channel, "channel")
    client_options(options.consumer_opt, "consumer-opt")
    _check_format(options)
    if has_revisions(options) and REV not in options.filename_format:
        raise BadUsage(
            "missing <REV> in --filename-format when compression, rotation, a work-dir, or another format than lines "
            "and jsonl is in use"
        )


def _check_topics(options: ToFileOptions) -> None:
    if not options.topic and not options.topic_pattern:
        raise BadUsage("--topic or --topic-pattern required")
    if not options.topic and not options.lookupd_http_address:
        raise BadUsage("--lookupd-http-address must be specified when no --topic specified")
    for topic in options.topic:
        check_name(topic, "topic")
    compiled_pattern(options.topic_pattern)


def _check_format(options: ToFileOptions) -> None:
    if options.gzip and options.compress not in (NONE, GZIP):
        raise BadUsage(f"--gzip and --compress={options.compress} contradict each other")
    from nsq_tools.to_file.formats.parquet import PARQUET, is_installed

    form, codec = _format(options), codec_name(options)
    if codec not in form.codecs:
        raise BadUsage(f"--format={form.name} takes --compress={' or '.join(form.codecs)}")
    if form is PARQUET and not is_installed():
        raise BadUsage("--format=parquet needs pyarrow: pip install 'nsqd-py[parquet]'")


# --- values that follow from several options


def compiled_pattern(pattern: str) -> Any:
    """Return the compiled regular expression (RE2, as in Go). Raises BadUsage."""
    from nsqd_py.settings.regex import BadExpression, compiled  # RE2 is slow to import

    try:
        return compiled(pattern)
    except BadExpression as error:
        raise BadUsage(f"--topic-pattern {pattern!r} is not a regular expression: {error}") from None


def _format(options: ToFileOptions) -> Format:
    from nsq_tools.to_file.formats import FORMATS

    return FORMATS[options.format]


def codec_name(options: ToFileOptions) -> str:
    return GZIP if options.gzip else str(options.compress)


def codec_level(options: ToFileOptions) -> int:
    return int(options.gzip_level if codec_name(options) == GZIP else options.zstd_level)


def output_dir(options: ToFileOptions) -> str:
    """Return the directory for finished files.

    By default, it belongs to the user: in /tmp, the default of Go's nsq_to_file, everyone can write, and it is emptied.
    """
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return str(options.output_dir or os.path.join(data, "nsq-to-file"))


def work_dir(options: ToFileOptions) -> str:
    return str(options.work_dir or output_dir(options))


def has_revisions(options: ToFileOptions) -> bool:
    """True if <REV> distinguishes files with the same name; otherwise several runs append to one file."""
    return bool(
        not _format(options).is_appendable
        or codec_name(options) != NONE
        or options.rotate_size > 0
        or options.rotate_interval_ns > 0
        or work_dir(options) != output_dir(options)
    )


def is_shared(options: ToFileOptions) -> bool:
    """True if messages are appended to an existing file, as in Go's nsq_to_file."""
    return bool(
        _format(options).is_appendable
        and codec_name(options) == NONE
        and options.rotate_interval_ns <= 0
        and work_dir(options) == output_dir(options)
    )


def filename_format(options: ToFileOptions) -> str:
    """Return --filename-format with the ending of the format and the codec."""
    form = _format(options)
    text: str = options.filename_format
    if text == DEFAULT_FILENAME_FORMAT:
        text = text.removesuffix(DEFAULT_SUFFIX) + form.suffix
    return with_suffix(text, CODECS[codec_name(options)].suffix) if form.is_appendable else text
