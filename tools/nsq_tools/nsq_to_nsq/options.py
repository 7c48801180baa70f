"""The settings of nsq-to-nsq."""

from __future__ import annotations

from nsq_tools.cli import BadUsage
from nsq_tools.hosts import EPSILON_GREEDY, HOSTPOOL, ROUND_ROBIN
from nsq_tools.options import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    PRODUCER_OPT,
    TOPICS,
    SourceOptions,
    check_name,
    check_nsqd_addresses,
    check_sources,
    client_options,
)
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.groups import LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import INT, STRING, STRINGS, choice

MODES = (ROUND_ROBIN, HOSTPOOL, EPSILON_GREEDY)


class _What(Options):
    topic: tuple[str, ...] = TOPICS
    channel: str = setting(STRING, "nsq_to_nsq", "NSQ channel.")
    max_in_flight: int = MAX_IN_FLIGHT


class _Messages(_What, SourceOptions, title="Messages"):
    consumer_opt: tuple[str, ...] = CONSUMER_OPT


class _Destinations(Options, title="Destinations"):
    destination_nsqd_tcp_address: tuple[str, ...] = setting(
        STRINGS, (), "TCP address (host:port) of an nsqd to publish to (may be given several times)."
    )
    destination_topic: str = setting(STRING, "", "Publish to this topic.", default_text="the topic of the message")
    mode: str = setting(
        choice({mode: mode for mode in MODES}, word="mode"),
        HOSTPOOL,
        "How to choose a destination: round-robin (in turn), hostpool (in turn, skipping failed ones), epsilon-greedy "
        "(faster ones more often).",
    )
    producer_opt: tuple[str, ...] = PRODUCER_OPT


class _Json(Options, title="JSON"):
    require_json_field: str = setting(STRING, "", "Publish only JSON objects with this field. Other messages are finished.")
    require_json_value: str = setting(
        STRING,
        "",
        "Publish only JSON objects in which --require-json-field has this value, as a string or a number. If the "
        "field is missing, the message is requeued, and finished after five attempts.",
    )
    whitelist_json_field: tuple[str, ...] = setting(
        STRINGS, (), "Publish only this field of each JSON object (may be given several times)."
    )


class _Status(Options, title="Status"):
    status_every: int = setting(
        INT, 250, "Number of messages between two status lines, for each destination and for all; 0 means no status lines."
    )


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_to_nsq] ")


class NsqToNsqOptions(ProgramOptions, _Messages, _Destinations, _Json, _Status, _Log):
    """The options of nsq-to-nsq."""


PROGRAM = Program(
    "nsq_to_nsq",
    "nsq-to-nsq",
    "Publish every message of one or more topics to other nsqds. A message is finished only after its destination has "
    "stored it. If a destination fails, another one is tried; if all fail, the message is requeued and the consumer "
    "slows down. JSON messages can be filtered by a field, and reduced to some of their fields.",
    NsqToNsqOptions,
    examples=[
        (
            "Two topics of a cluster to an nsqd elsewhere",
            "nsq-to-nsq --lookupd-http-address=127.0.0.1:4161 "
            "--topic=clicks --topic=orders --destination-nsqd-tcp-address=10.0.0.1:4150",
            "run: until-command=\"curl -s '10.0.0.1:4151/stats?topic=orders' | grep 'msgs: [1-9]'\"",
        ),
        (
            "Only orders that were paid, to another topic",
            "nsq-to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=orders "
            "--destination-topic=paid --require-json-field=state --require-json-value=paid "
            "--destination-nsqd-tcp-address=127.0.0.1:4150",
            "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic=paid' | grep 'msgs: [1-9]'\"",
        ),
        (
            "Two fields of each message, to two nsqds",
            "nsq-to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=clicks "
            "--whitelist-json-field=url --whitelist-json-field=at --destination-nsqd-tcp-address=10.0.0.1:4150 "
            "--destination-nsqd-tcp-address=10.0.0.2:4150",
            "run: until-command=\"curl -s '10.0.0.2:4151/stats?topic=clicks' | grep 'msgs: [1-9]'\"",
        ),
    ],
)


def check(options: NsqToNsqOptions) -> None:
    """Raise BadUsage if the options contradict each other. The order of the checks is that of Go's nsq_to_nsq."""
    if not options.topic or not options.channel:
        raise BadUsage("--topic and --channel are required")
    for topic in options.topic:
        check_name(topic, "topic")
    if options.destination_topic:
        check_name(options.destination_topic, "destination-topic")
    check_name(options.channel, "channel")
    check_sources(options)
    if not options.destination_nsqd_tcp_address:
        raise BadUsage("--destination-nsqd-tcp-address required")
    _check_destinations(options)
    if options.require_json_value and not options.require_json_field:
        raise BadUsage("--require-json-value needs --require-json-field: which field is to have this value?")
    client_options(options.consumer_opt, "consumer-opt")
    client_options(options.producer_opt, "producer-opt")


def _check_destinations(options: NsqToNsqOptions) -> None:
    destinations = options.destination_nsqd_tcp_address
    check_nsqd_addresses(destinations, "destination-nsqd-tcp-address")
    circle = set(destinations).intersection(options.nsqd_tcp_address)
    if circle and (not options.destination_topic or options.destination_topic in options.topic):
        raise BadUsage(
            f"messages would go from {circle.pop()} to itself without end; give another --destination-topic "
            "or --destination-nsqd-tcp-address"
        )
