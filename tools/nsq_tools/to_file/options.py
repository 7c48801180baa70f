"""The settings of nsq-to-file: those of Go's nsq_to_file, and what ours writes beyond it."""

from __future__ import annotations

from typing import Any

from nsq_tools.cli import BadUsage
from nsq_tools.options import (
    CONSUMER_OPT,
    HTTP_TIMEOUTS,
    HTTP_TLS,
    MAX_IN_FLIGHT,
    SOURCES,
    TOPICS,
    check_client_options,
    check_name,
    check_sources,
    log_settings,
)
from nsq_tools.to_file.compression import CODECS, GZIP, GZIP_LEVELS, NONE, ZSTD_LEVELS
from nsq_tools.to_file.formats.format import Format
from nsq_tools.to_file.formats.parquet import PARQUET, is_installed
from nsq_tools.to_file.formats.table import FORMATS
from nsq_tools.to_file.naming import REV, with_suffix
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.types import BOOL, DURATION, INT, STRING, choice

DEFAULT_FILENAME_FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
DEFAULT_SUFFIX = ".log"


def _positive(name: str) -> Setting:
    setting = next(setting for setting in HTTP_TIMEOUTS if setting.name == name)
    return Setting(
        name, setting.kind, setting.default, setting.help,
        check=lambda value: None if value > 0 else f"--{name} should be positive",
    )  # fmt: skip


# fmt: off
CHANNEL = Setting("channel", STRING, "nsq_to_file", "NSQ channel.",
    check=lambda value: None if value else "--channel is required")
TOPIC_PATTERN = Setting("topic-pattern", STRING, "",
    "Take only topics that match this regular expression (RE2) anywhere; without --topic, of all that the "
    "nsqlookupds know.")
TOPIC_REFRESH = Setting("topic-refresh", DURATION, MINUTE_NS,
    "How often the nsqlookupds are asked for new topics, where no --topic is given.",
    check=lambda value: None if value > 0 else "--topic-refresh should be positive")

OUTPUT_DIR = Setting("output-dir", STRING, "/tmp", "Directory for finished files; it has the manifest, too.")
WORK_DIR = Setting("work-dir", STRING, "",
    "Directory for files while they are written, which may be on another file system.",
    default_text="the output-dir")
FILENAME_FORMAT = Setting("filename-format", STRING, DEFAULT_FILENAME_FORMAT,
    "Names of files, with directories where wanted: <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced; <REV> "
    "counts up where there is such a file already. The default ends as the format does: .log, .jsonl, .framed, "
    ".parquet; and .gz or .zst is appended where the file is compressed.")
DATETIME_FORMAT = Setting("datetime-format", STRING, "%Y-%m-%d_%H", "What <DATETIME> is, as strftime writes it.")
HOST_IDENTIFIER = Setting("host-identifier", STRING, "",
    "What <HOST> is; <SHORT_HOST> and <HOSTNAME> are replaced in it.",
    default_text="the host name up to its first dot")
SKIP_EMPTY_FILES = Setting("skip-empty-files", BOOL, False, "Make no file before there is a message for it.")

FORMAT = Setting("format", choice({name: name for name in FORMATS}, word="format"), "lines",
    "lines (each body and a newline, as Go's nsq_to_file), jsonl (an object a message), framed (records with "
    "checksums, which Spark reads in parts), parquet (needs pyarrow).")
COMPRESS = Setting("compress", choice({name: name for name in CODECS}, word="codec"), NONE,
    "none, gzip or zstd. framed takes none and zstd, and parquet compresses its columns.")
GZIP_FLAG = Setting("gzip", BOOL, False, "The same as --compress=gzip.")
GZIP_LEVEL = Setting("gzip-level", INT, 6,
    "1 (fastest) to 9 (smallest). 2 to 6 are about one: fast, and 12 % larger than zlib's; from 7 on it is zlib.",
    check=lambda value: None if value in GZIP_LEVELS else f"invalid --gzip-level value ({value}), should be 1-9")
ZSTD_LEVEL = Setting("zstd-level", INT, 3, "1 (fastest) to 19 (smallest).",
    check=lambda value: None if value in ZSTD_LEVELS else f"invalid --zstd-level value ({value}), should be 1-19")

ROTATE_SIZE = Setting("rotate-size", INT, 0,
    "Begin a new file after the message with which it has more bytes than this, before compression; 0 is no limit.")
ROTATE_INTERVAL = Setting("rotate-interval", DURATION, 0, "Begin a new file after this time; 0 is no limit.")
SYNC_INTERVAL = Setting("sync-interval", DURATION, 30 * SECOND_NS,
    "How long a message may wait until it is synced to the disk and finished.",
    check=lambda value: None if value > 0 else "--sync-interval should be positive")

# Until messages of the topic are in flight.
_RUN = "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic={}' | grep 'inflt: *[1-9]'\""

PROGRAM = Program("nsq_to_file", "nsq-to-file",
    "Writes the messages of topics to files. A message is finished only when it is synced to the disk, so nothing is "
    "lost, whatever happens; some may be in the files twice. At the start, files that an earlier run left behind are "
    "repaired and put in their places. Each finished file has a line in _manifest.jsonl in the output-dir. "
    "A full disk makes it wait. SIGHUP ends the current files.",
    {
        "Source": (*SOURCES, TOPICS, TOPIC_PATTERN, TOPIC_REFRESH, CHANNEL, MAX_IN_FLIGHT, CONSUMER_OPT),
        "Files": (OUTPUT_DIR, WORK_DIR, FILENAME_FORMAT, DATETIME_FORMAT, HOST_IDENTIFIER, SKIP_EMPTY_FILES),
        "What is in them": (FORMAT, COMPRESS, GZIP_FLAG, GZIP_LEVEL, ZSTD_LEVEL),
        "When they end": (ROTATE_SIZE, ROTATE_INTERVAL, SYNC_INTERVAL),
        "HTTP": (*map(_positive, (setting.name for setting in HTTP_TIMEOUTS)), *HTTP_TLS),
        "Log": log_settings("[nsq_to_file] "),
    },
    examples=(
        ("One topic of one nsqd, a file an hour",
         "nsq-to-file --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --output-dir=/var/archive",
         _RUN.format("orders")),
        ("All topics of a cluster that begin with \"audit\", compressed, in a directory each",
         "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic-pattern='^audit' --compress=zstd "
         "--filename-format='<TOPIC>/<DATETIME>.<HOST><REV>.log' --output-dir=/var/archive",
         _RUN.format("audit_logins")),
        ("An archive that can be replayed, in files of 256 MB, which appear when they are complete",
         "nsq-to-file --lookupd-http-address=127.0.0.1:4161 --topic=orders --format=framed --compress=zstd "
         "--rotate-size=268435456 --work-dir=/var/spool/nsq --output-dir=/mnt/archive --max-in-flight=5000",
         _RUN.format("orders")),
        ("Columns for analysis, a file every ten minutes",
         "nsq-to-file --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --format=parquet --compress=zstd "
         "--rotate-interval=10m --output-dir=/var/archive",
         _RUN.format("orders")),
    ))
# fmt: on


def check_options(options: Options) -> None:
    """Raises BadUsage where they do not fit together."""
    check_sources(options)
    _check_topics(options)
    check_name(options.channel, "channel")
    check_client_options(options.consumer_opt, CONSUMER_OPT.name)
    _check_format(options)
    if has_revisions(options) and REV not in options.filename_format:
        raise BadUsage(
            "missing <REV> in --filename-format when compression, rotation, a work-dir, or another format than lines "
            "and jsonl is in use"
        )


def _check_topics(options: Options) -> None:
    if not options.topic and not options.topic_pattern:
        raise BadUsage("--topic or --topic-pattern required")
    if not options.topic and not options.lookupd_http_address:
        raise BadUsage("--lookupd-http-address must be specified when no --topic specified")
    for topic in options.topic:
        check_name(topic, "topic")
    compiled_pattern(options.topic_pattern)


def _check_format(options: Options) -> None:
    if options.gzip and options.compress not in (NONE, GZIP):
        raise BadUsage(f"--gzip and --compress={options.compress} contradict each other")
    form, codec = FORMATS[options.format], codec_name(options)
    if codec not in form.codecs:
        raise BadUsage(f"--format={form.name} takes --compress={' or '.join(form.codecs)}")
    if form is PARQUET and not is_installed():
        raise BadUsage("--format=parquet needs pyarrow: pip install 'nsqd-py[parquet]'")


# --- what they mean together


def compiled_pattern(pattern: str) -> Any:
    """A regular expression of RE2, as Go has it. Raises BadUsage."""
    from nsqd_py.settings.regex import BadExpression, compiled  # RE2 is slow to import

    try:
        return compiled(pattern)
    except BadExpression as error:
        raise BadUsage(f"--topic-pattern {pattern!r} is no regular expression: {error}") from None


def codec_name(options: Options) -> str:
    return GZIP if options.gzip else str(options.compress)


def codec_level(options: Options) -> int:
    return int(options.gzip_level if codec_name(options) == GZIP else options.zstd_level)


def work_dir(options: Options) -> str:
    return str(options.work_dir or options.output_dir)


def has_revisions(options: Options) -> bool:
    """Whether files of one name are told apart by <REV>; otherwise several runs append to one file."""
    return bool(
        not FORMATS[options.format].is_appendable
        or codec_name(options) != NONE
        or options.rotate_size > 0
        or options.rotate_interval_ns > 0
        or work_dir(options) != options.output_dir
    )


def is_shared(options: Options) -> bool:
    """Whether a file that is there already is appended to, as Go's nsq_to_file does."""
    return bool(
        FORMATS[options.format].is_appendable
        and codec_name(options) == NONE
        and options.rotate_interval_ns <= 0
        and work_dir(options) == options.output_dir
    )


def filename_format(options: Options) -> str:
    """With the end that the format and the codec give it."""
    form: Format = FORMATS[options.format]
    text: str = options.filename_format
    if text == DEFAULT_FILENAME_FORMAT:
        text = text.removesuffix(DEFAULT_SUFFIX) + form.suffix
    return with_suffix(text, CODECS[codec_name(options)].suffix) if form.is_appendable else text
