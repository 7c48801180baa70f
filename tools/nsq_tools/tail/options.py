"""The settings of nsq-tail: those of Go's nsq_tail, and those of the output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nsq_tools.cli import BadUsage, is_terminal, wants_colour
from nsq_tools.options import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    TOPICS,
    SourceOptions,
    check_name,
    check_sources,
    check_topics,
    client_options,
    http_url,
)
from nsq_tools.tail.template import FIELDS
from nsqd_py.settings.declaration import Options, not_negative, setting
from nsqd_py.settings.groups import LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, DURATION, INT, STRING, STRINGS, URLS

if TYPE_CHECKING:
    from nsq_tools.tail.rendering import Renderer


class _Source(SourceOptions, title="Source"):
    topic: tuple[str, ...] = TOPICS
    channel: str = setting(
        STRING,
        "",
        "NSQ channel. The default is an ephemeral channel for this run, which takes no messages from other consumers.",
        default_text='"tail", six digits and "#ephemeral"',
    )
    since_ns: int = setting(
        DURATION,
        0,
        "Show the messages of this time too, such as 10m, and go on with new ones. They are read from the logs of "
        "nsqd-py, as far as it keeps them (--retention-time of nsqd), without a channel.",
        check=not_negative,
    )
    last: int = setting(INT, 0, "As --since, with this number of messages.", check=not_negative)
    nsqd_http_address: tuple[str, ...] = setting(
        URLS,
        (),
        "HTTP address (host:port) of an nsqd, for --since and --last (may be given several times). By default, "
        "the port is the one after that of --nsqd-tcp-address.",
    )
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: tuple[str, ...] = CONSUMER_OPT


class ShownOptions(Options, title="Output"):
    n: int = setting(INT, 0, "Number of messages to show; then the tool ends. 0 means no limit.")
    print_topic: bool = setting(BOOL, False, "Write the topic before each message: `topic | body`.")
    grep: str = setting(STRING, "", "Show only messages whose body matches this regular expression (RE2).")
    pick: tuple[str, ...] = setting(
        STRINGS,
        (),
        'Show a value of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several '
        "times: the values are written on one line, separated by tabs).",
    )
    json: bool = setting(BOOL, False, "Format JSON: indented and coloured on a terminal, on one line in a pipe.")
    format: str = setting(
        STRING,
        "",
        f"Text to write for each message, with {', '.join(f'{{{field}}}' for field in FIELDS)}; "
        r"\t and \n are a tab and a line feed.",
    )


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_tail] ")


class TailOptions(ProgramOptions, _Source, ShownOptions, _Log):
    """The options of nsq-tail."""


PROGRAM = Program(
    "nsq_tail",
    "nsq-tail",
    "Show new messages of topics, each followed by a line feed. In a pipe, bodies are written unchanged; on a "
    "terminal, control characters are escaped. A message is finished after it is written.",
    TailOptions,
    examples=(
        ("Watch a topic on one nsqd", "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders", 'run: until="paid"'),
        (
            "Ten messages of two topics from the whole cluster, each with its topic",
            "nsq-tail --lookupd-http-address=127.0.0.1:4161 --topic=orders --topic=returns --print-topic -n 10",
        ),
        (
            "Two fields of the messages that failed",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --grep '\"status\": ?5' --pick .id --pick .status",
            'run: until="50\\d"',
        ),
        (
            "The last ten messages that nsqd keeps, and then new ones",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --last 10",
            'run: until="paid"',
        ),
        (
            "The time when each message was published, and the number of its attempts",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --format '{timestamp} {attempts} {body}'",
            'run: until="Z 1 "',
        ),
    ),
)


def check(options: TailOptions) -> None:
    """Raise BadUsage if the options cannot be used."""
    if options.since_ns or options.last:
        _check_log_reading(options)
    elif options.nsqd_http_address:
        raise BadUsage("--nsqd-http-address is for --since and --last; use --nsqd-tcp-address")
    if not options.nsqd_http_address:
        check_sources(options)
    check_topics(options.topic)
    if options.channel:
        check_name(options.channel, "channel")
    client_options(options.consumer_opt, "consumer-opt")
    check_shown(options)


def _check_log_reading(options: TailOptions) -> None:
    if options.since_ns and options.last:
        raise BadUsage("use --since or --last not both")
    if options.channel or options.consumer_opt:
        raise BadUsage("--since and --last read without a channel: leave out --channel and --consumer-opt")
    if any(topic.endswith("#ephemeral") for topic in options.topic):
        raise BadUsage("--since and --last read the log of a topic, and an ephemeral topic has none")
    if options.nsqd_http_address and options.lookupd_http_address:
        raise BadUsage("use --nsqd-http-address or --lookupd-http-address not both")
    for address in options.nsqd_http_address:
        http_url(address)


def check_shown(options: ShownOptions) -> None:
    """Raise BadUsage for a pattern, a path or a template that is not valid."""
    from nsq_tools.tail.json_text import parse_path
    from nsq_tools.tail.rendering import compile_search
    from nsq_tools.tail.template import Template

    checks = (
        ("grep", compile_search, (options.grep,)),
        ("pick", parse_path, options.pick),
        ("format", Template, (options.format,)),
    )
    for flag, parse, texts in checks:
        for text in texts:
            try:
                parse(text)
            except ValueError as error:
                raise BadUsage(f"--{flag}: {error}") from None


def channel_of(options: TailOptions) -> str:
    """Return the channel that was given, or the name of a new ephemeral one."""
    if options.channel:
        return options.channel
    import random  # slow to import

    return f"tail{random.randrange(999_999):06d}#ephemeral"


def renderer_of(options: ShownOptions) -> Renderer:
    """Return the renderer for the settings and for the kind of standard output."""
    from nsq_tools.tail.json_text import parse_path
    from nsq_tools.tail.rendering import Renderer, compile_search
    from nsq_tools.tail.template import Template

    return Renderer(
        search=compile_search(options.grep) if options.grep else None,
        picks=[parse_path(path) for path in options.pick],
        as_json=options.json,
        template=Template(options.format) if options.format else None,
        print_topic=options.print_topic,
        is_terminal=is_terminal(sys.stdout),
        has_colour=wants_colour(),
    )
