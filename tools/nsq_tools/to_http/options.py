"""The settings of nsq-to-http."""

from __future__ import annotations

from nsq_tools.hosts import HOSTPOOL, MODES, StatusOptions
from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.settings.declaration import Options, at_least, setting, urls
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.tools import CONSUMER_OPT, MAX_IN_FLIGHT, TOPIC, SourceOptions, channel_setting
from nsqd_py.settings.types import DURATION, FLOAT, INT, NAMED_SECRETS, STRING, Strings

ALL = "all"
DEFAULT_CONTENT_TYPE = "application/octet-stream"


class _Messages(SourceOptions, title="Messages"):
    topic: str = TOPIC
    channel: str = channel_setting("nsq_to_http", "NSQ channel.")
    max_in_flight: int = MAX_IN_FLIGHT
    sample: float = setting(
        FLOAT, 1.0, "Share of the messages to send, from 0 to 1. The others are finished and not sent."
    )
    consumer_opt: Strings = CONSUMER_OPT


class _Requests(Options, title="Requests"):
    post: Strings = urls("URL that receives each message as the body of a POST (may be given several times).")
    get: Strings = urls(
        "URL that receives each message in a GET: %s is replaced with the escaped message, %% with a percent sign "
        "(may be given several times)."
    )
    mode: str = setting(
        choice({mode: mode for mode in (*MODES, ALL)}, word="mode"),
        HOSTPOOL,
        "How to choose an address: round-robin (in turn), hostpool (in turn, skipping failed ones), epsilon-greedy "
        "(faster ones more often), all (every address).",
    )
    n: int = setting(INT, 100, "Maximum number of concurrent requests.", check=at_least(1))
    header: Strings = setting(
        NAMED_SECRETS, (), "Header of requests, as 'name: value' (may be given several times)."
    )
    content_type: str = setting(STRING, DEFAULT_CONTENT_TYPE, "The Content-Type of POST requests.")


class _Http(HttpClientOptions, title="HTTP"):
    http_client_connect_timeout_ns: int = setting(
        DURATION, 2 * SECOND_NS, "Timeout for connecting to an HTTP server, including the TLS handshake."
    )
    http_client_request_timeout_ns: int = setting(DURATION, 20 * SECOND_NS, "Timeout for an HTTP response.")


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_to_http] ")


class ToHttpOptions(ProgramOptions, _Messages, _Requests, _Http, StatusOptions, _Log):
    """The options of nsq-to-http."""
