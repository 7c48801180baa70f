"""The settings of nsq-to-http."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsq_tools.cli import BadUsage
from nsq_tools.hosts import EPSILON_GREEDY, HOSTPOOL, ROUND_ROBIN
from nsq_tools.options import (
    CONSUMER_OPT,
    HTTP_TLS,
    MAX_IN_FLIGHT,
    SOURCES,
    TOPIC,
    check_client_options,
    check_name,
    check_sources,
    http_client,
    log_settings,
)
from nsq_tools.to_http.headers import Headers, merge_headers, parse_header
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import DURATION, INT, STRING, STRINGS, Kind, choice

if TYPE_CHECKING:
    from nsq_tools.to_http.requests import Request

ALL = "all"
MODES = (ROUND_ROBIN, HOSTPOOL, EPSILON_GREEDY, ALL)
DEFAULT_CONTENT_TYPE = "application/octet-stream"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("expected a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError("expected a number") from None


FLOAT = Kind("float", _number, _number, str)

# fmt: off
PROGRAM = Program(
    "nsq_to_http",
    "nsq-to-http",
    "Sends every message of a channel to HTTP servers: as the body of a POST, or in the URL of a GET. A message is "
    "finished only when it was answered with 2xx. Where no answer comes, another address is tried; after that, and "
    "after any other answer, the message is requeued, and the consumer slows down.",
    {
        "Messages": (
            TOPIC,
            Setting("channel", STRING, "nsq_to_http", "NSQ channel."),
            MAX_IN_FLIGHT,
            Setting("sample", FLOAT, 1.0,
                "Which part of the messages to send, from 0 to 1; the others are finished without."),
            *SOURCES,
            CONSUMER_OPT,
        ),
        "Requests": (
            Setting("post", STRINGS, (),
                "URL to POST messages to, each as the body (may be given several times)."),
            Setting("get", STRINGS, (),
                "URL to GET, with %s where the message goes, escaped; %% is a percent sign "
                "(may be given several times)."),
            Setting("mode", choice({mode: mode for mode in MODES}, word="mode"), HOSTPOOL,
                "Which address gets a message: round-robin (in turn), hostpool (in turn, without those that fail), "
                "epsilon-greedy (the faster ones more often), all (each of them)."),
            Setting("n", INT, 100, "How many requests to have under way at a time.",
                check=lambda value: None if value > 0 else "--n must be at least 1"),
            Setting("header", STRINGS, (),
                "Header of the requests as 'name: value' (may be given several times)."),
            Setting("content-type", STRING, DEFAULT_CONTENT_TYPE, "The Content-Type of POST requests."),
            Setting("http-client-connect-timeout", DURATION, 2 * SECOND_NS,
                "How long an HTTP connection may take, with its TLS handshake."),
            Setting("http-client-request-timeout", DURATION, 20 * SECOND_NS, "How long an HTTP answer may take."),
            *HTTP_TLS,
        ),
        "Status": (
            Setting("status-every", INT, 250,
                "After how many requests to write a status line, for each address and for all; 0 writes none."),
        ),
        "Log": log_settings("[nsq_to_http] "),
    },
    examples=[
        ("POST each message", "nsq-to-http --topic=clicks --lookupd-http-address=127.0.0.1:4161 "
            "--post=http://127.0.0.1:8080/clicks",
            'run: until-command="grep \'POST 127.0.0.1:8080 /clicks\' requests.log"'),
        ("One message in ten, in the URL of a GET", "nsq-to-http --topic=clicks --nsqd-tcp-address=127.0.0.1:4150 "
            "--sample=0.1 --get='http://127.0.0.1:8080/click?event=%s'",
            'run: until-command="grep \'GET 127.0.0.1:8080 /click?event\' requests.log"'),
        ("Two servers, the faster one more often", "nsq-to-http --topic=clicks --nsqd-tcp-address=127.0.0.1:4150 "
            "--mode=epsilon-greedy --post=http://10.0.0.1:8080/ --post=http://10.0.0.2:8080/",
            'run: until-command="grep 10.0.0.1:8080 requests.log && grep 10.0.0.2:8080 requests.log"'),
        ("With a token, over https", "nsq-to-http --topic=clicks --nsqd-tcp-address=127.0.0.1:4150 "
            "--header='Authorization: Bearer …' --content-type=application/json --post=https://api.example.com/clicks",
            "not run: needs a server with a certificate that everybody trusts"),
    ],
)
# fmt: on


def check(options: Options) -> None:
    """Raises BadUsage where the options do not fit together; in the order of Go's nsq_to_http."""
    headers = headers_of(options)
    if not options.topic or not options.channel:
        raise BadUsage("--topic and --channel are required")
    _check_content_type(options)
    check_sources(options)
    _check_addresses(options)
    if not 0.0 <= options.sample <= 1.0:
        raise BadUsage("--sample must be between 0.0 and 1.0")
    check_name(options.topic, "topic")
    check_name(options.channel, "channel")
    make_requests(options, headers)
    check_client_options(options.consumer_opt, "consumer-opt")
    http_client(options)


def _check_content_type(options: Options) -> None:
    if options.content_type == DEFAULT_CONTENT_TYPE:
        return
    if not options.post:
        raise BadUsage("--content-type only used with --post")
    if not options.content_type:
        raise BadUsage("--content-type requires a value when used")


def _check_addresses(options: Options) -> None:
    if not options.get and not options.post:
        raise BadUsage("--get or --post required")
    if options.get and options.post:
        raise BadUsage("use --get or --post not both")
    for address in options.get:
        if address.count("%s") != 1:
            raise BadUsage(f"invalid GET address - must have %s once, where the message goes: {address}")


def headers_of(options: Options) -> Headers:
    """What the requests carry. Raises BadUsage."""
    from nsqd_py.version import NSQ_VERSION

    defaults = {"User-Agent": f"nsq_to_http v{NSQ_VERSION}"}
    if options.post:
        defaults["Content-Type"] = options.content_type
    try:
        return merge_headers(defaults, map(parse_header, options.header))
    except ValueError as error:
        raise BadUsage(str(error)) from error


def make_requests(options: Options, headers: Headers) -> dict[str, Request]:
    """A request for each address. Raises BadUsage."""
    from nsq_tools.to_http.requests import GET, POST, Request

    method, flag = (POST, "post") if options.post else (GET, "get")
    requests = {}
    for address in options.post or options.get:
        try:
            requests[address] = Request(method, address, headers, has_place=method == GET)
        except ValueError as error:
            raise BadUsage(f"--{flag} {address}: {error}") from error
    return requests
