"""The options by go-nsq's names; addresses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nsqd_py import client
from nsqd_py.client import gevent as on_gevent
from nsqd_py.client.addresses import Address, parse_address
from nsqd_py.client.errors import BadAddress, BadClientOption, BadName
from nsqd_py.client.options import OFF_S, ClientOptions
from nsqd_py.client.publishing import publish as encoding
from nsqd_py.client.publishing.publish import PendingPublish
from tests.support.aio_client import AioConsumer, AioProducer
from tests.support.subscription import World

# Every `opt:` tag of go-nsq's Config, and the options of its TLS handler.
LEVELS = "tls_security_level .*expected one of default, 0, 1, 2, 3, 4, 5"


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"msg_timeout": 90}, "msg_timeout_s", 90.0),
        ({"msg_timeout": 1.5}, "msg_timeout_s", 1.5),
        ({"msg_timeout": "1m30s"}, "msg_timeout_s", 90.0),
        ({"heartbeat_interval": "-1"}, "heartbeat_interval_s", OFF_S),
        ({"heartbeat_interval": "-1ns"}, "heartbeat_interval_s", OFF_S),
        ({"output_buffer_timeout": -1}, "output_buffer_timeout_s", OFF_S),
        ({"output_buffer_size": -1}, "output_buffer_size", -1),
        ({"max_in_flight": "200"}, "max_in_flight", 200),
        ({"lookupd_poll_jitter": "0.5"}, "lookupd_poll_jitter", 0.5),
        ({"snappy": "t"}, "snappy", True),
        ({"snappy": 0}, "snappy", False),
        ({"backoff_strategy": "full_jitter"}, "backoff_strategy", "full_jitter"),
        ({"skip_lookupd_authorization": "false"}, "lookupd_authorization", False),
        ({"local_addr": "127.0.0.1:0"}, "local_addr", "127.0.0.1:0"),
        ({"tls_min_version": "tls1.2"}, "tls_min_version", "tls1.2"),
        ({"tls_security_level": "0"}, "tls_security_level", 0),
        ({"tls_security_level": 2}, "tls_security_level", 2),
        ({"tls_security_level": "default"}, "tls_security_level", -1),
        ({"tls_security_level": -1}, "tls_security_level", -1),
    ],
)
def test_values_as_they_may_be_given(given: dict[str, Any], attribute: str, value: object) -> None:
    assert getattr(ClientOptions.of(**given), attribute) == value


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nonsense": 1}, 'no client option "nonsense"'),
        ({"dial_timeout_s": 1}, 'no client option "dial_timeout_s"'),
        ({"msg_timeout": "5"}, "is not a duration"),
        ({"msg_timeout": None}, "expected a number"),
        ({"msg_timeout": True}, "expected a number"),
        ({"read_timeout": "6m"}, "read_timeout is 6m0s, but has to be 100ms to 5m0s"),
        ({"read_timeout": float("nan")}, "read_timeout .* finite"),
        ({"dial_timeout": float("inf")}, "dial_timeout .* finite"),
        ({"read_timeout": "inf"}, "read_timeout"),
        ({"dial_timeout": "-1s"}, "at least 0s"),
        ({"max_attempts": 65536}, "max_attempts is 65536, but has to be 0 to 65535"),
        ({"max_attempts": 1.5}, "expected a whole number"),
        ({"max_attempts": True}, "expected a whole number"),
        ({"max_in_flight": -1}, "at least 0"),
        ({"sample_rate": 100}, "0 to 99"),
        ({"deflate_level": 0}, "1 to 9"),
        ({"snappy": "yes"}, "expected true or false"),
        ({"snappy": None}, "expected true or false"),
        ({"backoff_strategy": "none"}, "expected one of exponential, full_jitter"),
        ({"tls_min_version": "tls9"}, "expected one of ssl3.0, tls1.0"),
        *(({"tls_security_level": level}, LEVELS) for level in (6, "low", "", True)),
        ({"tls_cert": "a"}, "belong together"),
        ({"tls_config": "x"}, "expected an ssl.SSLContext"),
        ({"local_addr": "127.0.0.1"}, "expected host:port"),
        ({"client_id": 5}, "expected a text"),
        ({"deflate": True, "snappy": True}, "choose one"),
        ({"heartbeat_interval": "61s"}, "heartbeat_interval 1m1s must be less than read_timeout 1m0s"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], text: str) -> None:
    with pytest.raises(BadClientOption, match=text):
        ClientOptions.of(**given)


def test_a_secret_is_not_shown() -> None:
    assert "hush" not in repr(ClientOptions.of(auth_secret="hush"))


def test_no_silence_is_too_long_without_heartbeats() -> None:
    assert ClientOptions.of(read_timeout="5s", heartbeat_interval="1s").read_limit_s == 5
    assert ClientOptions.of(heartbeat_interval=0).read_limit_s == 60  # which leaves the interval to nsqd
    assert ClientOptions.of(heartbeat_interval=-1).read_limit_s == 0


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", Address("127.0.0.1", 4150)),
        ("nsqd.example.org:1", Address("nsqd.example.org", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("unix:/run/nsqd.sock", Address(path="/run/nsqd.sock")),
    ],
)
def test_addresses_read_and_shown(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_a_path_alone_is_a_unix_socket() -> None:
    assert str(parse_address("/run/nsqd.sock")) == "unix:/run/nsqd.sock"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no address"),
        ("localhost", "has no port"),
        (":4150", "no address"),
        ("localhost:", '"" is no port'),
        ("localhost:0", '"0" is no port'),
        ("localhost:65536", '"65536" is no port'),
        ("localhost:4150x", "is no port"),
        ("localhost:\N{SUPERSCRIPT TWO}", "is no port"),
        ("::1:4150", "belongs in brackets"),
        ("[::1:4150", "belongs in brackets"),
        ("[]:4150", "no address"),
        ("http://localhost:4150", "not http://"),
        (" localhost:4150", "not a host"),
        ("unix:", "lacks the path"),
    ],
)
def test_what_is_no_address(text: str, words: str) -> None:
    with pytest.raises(BadAddress, match=words) as refused:
        parse_address(text)
    assert isinstance(refused.value, BadClientOption)
    assert text in str(refused.value)


# ---- what a user may give to `Producer` and `Consumer` by mistake, and what is said then

IDS = ["threads", "gevent", "aio"]
CONSUMERS = pytest.mark.parametrize(
    "consumer_type", [client.Consumer, on_gevent.Consumer, AioConsumer], ids=IDS
)
PRODUCERS = pytest.mark.parametrize(
    "producer_type", [client.Producer, on_gevent.Producer, AioProducer], ids=IDS
)


# --- addresses


@PRODUCERS
def test_a_string_is_one_address_for_a_producer(producer_type: Any) -> None:
    producer = producer_type(nsqd_tcp_addresses="127.0.0.1:4150", lookupd_http_addresses="127.0.0.1:4161")
    settings = getattr(producer, "producer", producer).settings
    assert settings.nsqds == ("127.0.0.1:4150",)
    assert settings.lookupds == ("127.0.0.1:4161",)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"127.0.0.1:4150", "an address is a str such as '127.0.0.1:4150', not bytes: b'127.0.0.1:4150'"),
        (["127.0.0.1:4150"], "an address is a str such as '127.0.0.1:4150', not list: ['127.0.0.1:4150']"),
        (("127.0.0.1", 4150), "an address is a str such as '127.0.0.1:4150', not tuple: ('127.0.0.1', 4150)"),
        ("a:4150,b:4150", '"a:4150,b:4150" is more than one address: give a list of them'),
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(given: Any, text: str) -> None:
    with pytest.raises(BadAddress) as raised:
        parse_address(given)
    assert str(raised.value) == text
    for kind in (client.Producer, on_gevent.Producer, AioProducer):
        with pytest.raises(BadAddress):
            kind(given)


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (
            "both",
            {"lookupd_http_addresses": b"h:4161"},
            r"an address is a str such as '127\.0\.0\.1:4161', not bytes",
        ),
        (
            "both",
            {"lookupd_http_addresses": None},
            "addresses are a str or a list of them, not NoneType: None",
        ),
        ("both", {"log": 3}, "log must have .* got 3"),
        (
            "both",
            {"options": {"auth_secret": "hush"}},
            "options must be a ClientOptions, not dict: .*snappy=True$",
        ),
        ("Consumer", {"concurrency": "x"}, "concurrency cannot be 'x': expected a whole number, at least 1"),
        ("Consumer", {"auto_touch": "no"}, "auto_touch cannot be 'no': expected true or false"),
        ("Consumer", {"chance": 3}, "chance must be a function, got 3"),
        ("Producer", {"window": 1.5}, "window cannot be 1.5"),
        (
            "Producer",
            {"publish_timeout_s": float("nan")},
            "publish_timeout_s cannot be nan: expected .* above 0",
        ),
        ("Producer", {"answer_timeout_s": "3s"}, "answer_timeout_s cannot be '3s'"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_name(kind: str, given: dict[str, Any], text: str) -> None:
    for name, positional in {"Consumer": ("t", "c"), "Producer": ()}.items():
        if kind in ("both", name):
            with pytest.raises(BadClientOption, match=text):
                getattr(client, name)(*positional, nsqd_tcp_addresses="127.0.0.1:1", **given)


def test_an_on_done_or_a_delay_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(BadClientOption, match="on_done must be a function, got 3"):
        PendingPublish(b"", b"", 0.0, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a delay is a number of seconds or a timedelta, not str: '5'"):
        encoding.single("t", b"x", "5")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["nsqd_py.client", "nsqd_py.client.aio", "nsqd_py.client.gevent"])
def test_a_star_imports_the_clients_and_nothing_else(package: str) -> None:
    names = {}
    exec(f"from {package} import *", names)
    assert {"Producer", "Consumer", "connect"} <= names.keys()
    assert not {"Any", "errors", "annotations", "select", "producer"} & names.keys()


@CONSUMERS
def test_a_consumer_without_addresses_is_refused(consumer_type: Any) -> None:
    with pytest.raises(
        BadClientOption, match="a consumer needs the address of an nsqd .* or of an nsqlookupd"
    ):
        consumer_type("t", "c")
    with pytest.raises(BadClientOption, match="needs the address"):
        consumer_type("t", "c", print, nsqd_tcp_addresses=[], lookupd_http_addresses=())


@CONSUMERS
@pytest.mark.parametrize("count", [-5, "many", None])
def test_a_limit_that_cannot_be_leaves_the_old_one(consumer_type: Any, count: Any) -> None:
    consumer = consumer_type("t", "c", nsqd_tcp_addresses="127.0.0.1:1", max_in_flight=7)
    with pytest.raises(BadClientOption, match="max_in_flight"):
        consumer.set_max_in_flight(count)
    assert consumer.stats().max_in_flight == 7


# --- names


@PRODUCERS
@pytest.mark.parametrize("way", ["publish", "publish_soon", "multi_publish"])
def test_a_topic_that_is_not_a_str_is_refused_with_a_sentence(producer_type: Any, way: str) -> None:
    body = [b"x"] if way == "multi_publish" else b"x"
    publish = getattr(producer_type("127.0.0.1:1"), way)
    with pytest.raises(TypeError) as raised:
        publish(b"orders", body)
    assert (
        str(raised.value)
        == "a topic or channel is a str, not bytes: decode it first, as in b'orders'.decode()"
    )
    with pytest.raises(TypeError, match="a topic or channel is a str, not int"):
        publish(5, body)
    with pytest.raises(BadName):
        publish("no name", body)


def test_an_address_with_another_scheme_is_refused_without_its_secret() -> None:
    with pytest.raises(BadAddress, match=r"TCP address of nsqd as host:port") as raised:
        parse_address("tcp://u:secret@10.0.0.1")
    assert "secret" not in str(raised.value)


# --- delays


@pytest.mark.parametrize("delay", [1.5, timedelta(seconds=1.5)])
def test_delays_are_seconds_or_timedeltas(delay: Any) -> None:
    assert encoding.single("t", b"x", delay).startswith(b"DPUB t 1500\n")
    world = World()
    first, second, _ = (batch := world.batch(1, 2, 3)).messages()
    world.sent()
    first.requeue(delay, backoff=False)
    batch.requeue(delay, [second.id])
    assert client.Requeue(delay).delay_s == delay
    assert world.sent()[:2] == [b"REQ %s 1500" % message.id for message in (first, second)]
    assert client.ClientOptions.of(msg_timeout=delay).msg_timeout_s == 1.5
