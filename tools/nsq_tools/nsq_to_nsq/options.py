"""The settings of nsq-to-nsq."""

from __future__ import annotations

from nsq_tools.hosts import HOSTPOOL, MODES, StatusOptions
from nsqd_py.settings.declaration import Options, setting, string, strings
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.tools import (
    CONSUMER_OPT,
    MAX_IN_FLIGHT,
    PRODUCER_OPT,
    TOPICS,
    SourceOptions,
    channel_setting,
)
from nsqd_py.settings.types import Strings


class _Messages(SourceOptions, title="Messages"):
    topic: Strings = TOPICS
    channel: str = channel_setting("nsq_to_nsq", "NSQ channel.")
    max_in_flight: int = MAX_IN_FLIGHT
    consumer_opt: Strings = CONSUMER_OPT


class _Destinations(Options, title="Destinations"):
    destination_nsqd_tcp_address: Strings = strings(
        "TCP address (host:port) of an nsqd to publish to (may be given several times)."
    )
    destination_topic: str = string("Publish to this topic.", default_text="the topic of the message")
    mode: str = setting(
        choice({mode: mode for mode in MODES}, word="mode"),
        HOSTPOOL,
        "How to choose a destination: round-robin (in turn), hostpool (in turn, skipping failed ones), epsilon-greedy "
        "(faster ones more often).",
    )
    producer_opt: Strings = PRODUCER_OPT


class _Json(Options, title="JSON"):
    require_json_field: str = string(
        "Publish only JSON objects with this field. Other messages are finished."
    )
    require_json_value: str = string(
        "Publish only JSON objects in which --require-json-field has this value, as a string or a number. If the "
        "field is missing, the message is requeued, and finished after five attempts."
    )
    whitelist_json_field: Strings = strings(
        "Publish only this field of each JSON object (may be given several times)."
    )


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_to_nsq] ")


class NsqToNsqOptions(ProgramOptions, _Messages, _Destinations, _Json, StatusOptions, _Log):
    """The options of nsq-to-nsq."""
