"""The settings of nsq-tail: those of Go's nsq_tail, and what ours shows beyond it."""

from __future__ import annotations

import random

from nsq_tools.cli import BadUsage
from nsq_tools.options import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    SOURCES,
    TOPICS,
    check_client_options,
    check_name,
    check_sources,
    check_topics,
    log_settings,
)
from nsq_tools.tail.template import FIELDS
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.types import BOOL, INT, STRING, STRINGS

# fmt: off
CHANNEL = Setting("channel", STRING, "",
    "NSQ channel. The default takes messages from nobody: nsqd makes it for this tail and forgets it afterwards.",
    default_text='"tail" with six digits, and "#ephemeral"')
COUNT = Setting("n", INT, 0,
    "How many messages to show, of all topics together; waits for them, then ends. 0 is no end.")
PRINT_TOPIC = Setting("print-topic", BOOL, False, "Write the topic before each message: `topic | body`.")

GREP = Setting("grep", STRING, "",
    "Show only messages whose body matches this regular expression (RE2); the others are finished unseen.")
PICK = Setting("pick", STRINGS, (),
    'Show a value out of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several '
    "times: the values stand in one line, with tabs between).")
AS_JSON = Setting("json", BOOL, False,
    "Lay out JSON: in many coloured lines on a terminal, in one line each in a pipe.")
FORMAT = Setting("format", STRING, "",
    f"What to write for each message: text with {', '.join(f'{{{field}}}' for field in FIELDS)}; "
    r"\t and \n are tab and line feed.")

PROGRAM = Program("nsq_tail", "nsq-tail",
    "Shows the messages of topics as they come, each with a line feed behind it. In a pipe bodies are written as they "
    "are; on a terminal control characters are shown, not obeyed. A message is finished once it is written.",
    {
        "Source": (*SOURCES, TOPICS, CHANNEL, MAX_IN_FLIGHT, CONSUMER_OPT),
        "What is shown": (COUNT, PRINT_TOPIC, GREP, PICK, AS_JSON, FORMAT),
        "Log": log_settings("[nsq_tail] "),
    },
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


def check(options: Options) -> None:
    """Raises BadUsage for what cannot be."""
    check_sources(options)
    check_topics(options.topic)
    if options.channel:
        check_name(options.channel, "channel")
    check_client_options(options.consumer_opt, "consumer-opt")
    _check_shown(options)


def _check_shown(options: Options) -> None:
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


def channel_of(options: Options) -> str:
    """The channel that was given, or one of its own."""
    return options.channel or f"tail{random.randrange(999_999):06d}#ephemeral"
