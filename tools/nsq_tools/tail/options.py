"""The settings of nsq-tail: those of Go's nsq_tail, and what ours shows beyond it."""

from __future__ import annotations

import random

from nsq_tools.cli import BadUsage
from nsq_tools.options import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    TOPICS,
    SourceOptions,
    check_client_options,
    check_name,
    check_sources,
    check_topics,
)
from nsq_tools.tail.template import FIELDS
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.groups import LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, INT, STRING, STRINGS


# fmt: off
class _Source(SourceOptions, title="Source"):
    topic: tuple[str, ...] = TOPICS
    channel: str = setting(STRING, "",
        "NSQ channel. The default takes messages from nobody: nsqd makes it for this tail and forgets it afterwards.",
        default_text='"tail" with six digits, and "#ephemeral"')
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: tuple[str, ...] = CONSUMER_OPT


class _Shown(Options, title="What is shown"):
    n: int = setting(INT, 0,
        "How many messages to show, of all topics together; waits for them, then ends. 0 is no end.")
    print_topic: bool = setting(BOOL, False, "Write the topic before each message: `topic | body`.")
    grep: str = setting(STRING, "",
        "Show only messages whose body matches this regular expression (RE2); the others are finished unseen.")
    pick: tuple[str, ...] = setting(STRINGS, (),
        'Show a value out of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several '
        "times: the values stand in one line, with tabs between).")
    json: bool = setting(BOOL, False,
        "Lay out JSON: in many coloured lines on a terminal, in one line each in a pipe.")
    format: str = setting(STRING, "",
        f"What to write for each message: text with {', '.join(f'{{{field}}}' for field in FIELDS)}; "
        r"\t and \n are tab and line feed.")


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_tail] ")


class TailOptions(ProgramOptions, _Source, _Shown, _Log):
    """The options of nsq-tail."""


PROGRAM = Program("nsq_tail", "nsq-tail",
    "Shows the messages of topics as they come, each with a line feed behind it. In a pipe bodies are written as they "
    "are; on a terminal control characters are shown, not obeyed. A message is finished once it is written.",
    TailOptions,
    examples=(
        ("Watch a topic on one nsqd", "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders",
         'run: until="paid"'),
        ("Ten messages of two topics from the whole cluster, each with its topic",
         "nsq-tail --lookupd-http-address=127.0.0.1:4161 --topic=orders --topic=returns --print-topic -n 10"),
        ("Two fields of the messages that failed",
         "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --grep '\"status\": ?5' --pick .id --pick .status",
         'run: until="50\\d"'),
        ("When each message was published, and how often it was handed out",
         "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --format '{timestamp} {attempts} {body}'",
         'run: until="Z 1 "'),
    ))
# fmt: on


def check(options: TailOptions) -> None:
    """Raises BadUsage for what cannot be."""
    check_sources(options)
    check_topics(options.topic)
    if options.channel:
        check_name(options.channel, "channel")
    check_client_options(options.consumer_opt, "consumer-opt")
    _check_shown(options)


def _check_shown(options: TailOptions) -> None:
    from nsq_tools.tail.pick import parse_path
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
    """The channel that was given, or one of its own."""
    return options.channel or f"tail{random.randrange(999_999):06d}#ephemeral"
