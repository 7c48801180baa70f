"""The settings of nsq-to-nsq."""

from __future__ import annotations

from nsq_tools.cli import BadUsage
from nsq_tools.hosts import EPSILON_GREEDY, HOSTPOOL, ROUND_ROBIN
from nsq_tools.options import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    PRODUCER_OPT,
    SOURCES,
    TOPICS,
    check_client_options,
    check_name,
    check_nsqd_addresses,
    check_sources,
    log_settings,
)
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.types import INT, STRING, STRINGS, choice

MODES = (ROUND_ROBIN, HOSTPOOL, EPSILON_GREEDY)

# fmt: off
PROGRAM = Program(
    "nsq_to_nsq",
    "nsq-to-nsq",
    "Publishes every message of one or more topics to other nsqds. A message is finished only when its destination has "
    "stored it. What one destination does not take goes to another; where none does, the message is requeued, and the "
    "consumer slows down. JSON messages can be filtered by a field, and cut down to some of their fields.",
    {
        "Messages": (
            TOPICS,
            Setting("channel", STRING, "nsq_to_nsq", "NSQ channel."),
            MAX_IN_FLIGHT,
            *SOURCES,
            CONSUMER_OPT,
        ),
        "Destinations": (
            Setting("destination-nsqd-tcp-address", STRINGS, (),
                "TCP address (host:port) of an nsqd to publish to (may be given several times)."),
            Setting("destination-topic", STRING, "",
                "Publish to this topic.", default_text="the topic that a message comes from"),
            Setting("mode", choice({mode: mode for mode in MODES}, word="mode"), HOSTPOOL,
                "Which destination gets a message: round-robin (in turn), hostpool (in turn, without those that fail), "
                "epsilon-greedy (the faster ones more often)."),
            PRODUCER_OPT,
        ),
        "JSON": (
            Setting("require-json-field", STRING, "",
                "Pass only messages that are a JSON object with this field; the others are finished."),
            Setting("require-json-value", STRING, "",
                "Pass only those in which that field has this value, as a string or a number; where the field is "
                "missing, the message is requeued at first, and finished after five attempts."),
            Setting("whitelist-json-field", STRINGS, (),
                "Of each JSON object pass this field, and no other that is not named (may be given several times)."),
        ),
        "Status": (
            Setting("status-every", INT, 250,
                "After how many messages to write a status line, for each destination and for all; 0 writes none."),
        ),
        "Log": log_settings("[nsq_to_nsq] "),
    },
    examples=[
        ("Two topics of a cluster to an nsqd elsewhere", "nsq-to-nsq --lookupd-http-address=127.0.0.1:4161 "
            "--topic=clicks --topic=orders --destination-nsqd-tcp-address=10.0.0.1:4150",
            "run: until-command=\"curl -s '10.0.0.1:4151/stats?topic=orders' | grep 'msgs: [1-9]'\""),
        ("Only orders that were paid, to another topic", "nsq-to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=orders "
            "--destination-topic=paid --require-json-field=state --require-json-value=paid "
            "--destination-nsqd-tcp-address=127.0.0.1:4150",
            "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic=paid' | grep 'msgs: [1-9]'\""),
        ("Two fields of each message, to two nsqds", "nsq-to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=clicks "
            "--whitelist-json-field=url --whitelist-json-field=at --destination-nsqd-tcp-address=10.0.0.1:4150 "
            "--destination-nsqd-tcp-address=10.0.0.2:4150",
            "run: until-command=\"curl -s '10.0.0.2:4151/stats?topic=clicks' | grep 'msgs: [1-9]'\""),
    ],
)
# fmt: on


def check(options: Options) -> None:
    """Raises BadUsage where the options do not fit together; in the order of Go's nsq_to_nsq."""
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
    check_client_options(options.consumer_opt, "consumer-opt")
    check_client_options(options.producer_opt, "producer-opt")


def _check_destinations(options: Options) -> None:
    destinations = options.destination_nsqd_tcp_address
    check_nsqd_addresses(destinations, "destination-nsqd-tcp-address")
    circle = set(destinations).intersection(options.nsqd_tcp_address)
    if circle and (not options.destination_topic or options.destination_topic in options.topic):
        raise BadUsage(
            f"messages would go from {circle.pop()} to itself without end; give another --destination-topic "
            "or --destination-nsqd-tcp-address"
        )
