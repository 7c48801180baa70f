"""The settings of nsq-tail: those of Go's nsq_tail, and those of the output."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, not_negative, setting, string, strings, switch, urls
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.tools import CONSUMER_OPT, MAX_IN_FLIGHT, TOPICS, SourceOptions, channel_setting
from nsqd_py.settings.types import INT, PERIOD, Strings


class _TailSource(SourceOptions, title="Source"):
    topic: Strings = TOPICS
    channel: str = channel_setting(
        "",
        "NSQ channel. The default is an ephemeral channel for this run, which takes no messages from other consumers.",
        default_text='"tail", six digits and "#ephemeral"',
    )
    since_ns: int = setting(
        PERIOD,
        0,
        "Show the messages of this time too, such as 10m, 10min or 2d, and go on with new ones. They are read from the logs of "
        "nsqd-py, as far as it keeps them (--retention-time of nsqd), without a channel; with the certificates and, over TLS, "
        "the auth_secret of --consumer-opt.",
        check=not_negative,
    )
    last: int = setting(INT, 0, "As --since, with this number of messages of each nsqd.", check=not_negative)
    nsqd_http_address: Strings = urls(
        "HTTP address (host:port) of an nsqd, for --since and --last (may be given several times). By default, "
        "the port is the one after that of --nsqd-tcp-address."
    )
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: Strings = CONSUMER_OPT


class ShownOptions(Options, title="Output"):
    n: int = setting(INT, 0, "Number of messages to show; then the tool ends. 0 means no limit.")
    print_topic: bool = switch("Write the topic before each message: `topic | body`.")
    grep: str = string("Show only messages whose body matches this regular expression (RE2).")
    pick: Strings = strings(
        'Show a value of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several '
        "times: the values are written on one line, separated by tabs)."
    )
    jsonl: bool = switch(
        "Write each message as a JSON object on one line, with timestamp, id, attempts, topic, channel, nsqd and body, as "
        "nsq-to-file --format=jsonl does."
    )


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_tail] ")


class TailOptions(ProgramOptions, _TailSource, ShownOptions, _Log):
    """The options of nsq-tail."""
