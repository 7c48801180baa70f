"""What a user may give to `Producer` and `Consumer` by mistake, and what is said then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nsqd_py import client
from nsqd_py.client import BadAddress, BadClientOption
from nsqd_py.client import gevent as on_gevent
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadName
from nsqd_py.client.publishing import publish as encoding
from tests.support.aio_client import AioConsumer, AioProducer
from tests.support.subscription import World

IDS = ["threads", "gevent", "aio"]
CONSUMERS = pytest.mark.parametrize("consumer_type", [client.Consumer, on_gevent.Consumer, AioConsumer], ids=IDS)
PRODUCERS = pytest.mark.parametrize("producer_type", [client.Producer, on_gevent.Producer, AioProducer], ids=IDS)


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


def test_a_lookupd_that_is_bytes_is_refused_with_a_sentence() -> None:
    with pytest.raises(BadClientOption, match=r"an address is a str such as '127\.0\.0\.1:4161', not bytes"):
        client.Consumer("t", "c", lookupd_http_addresses=b"127.0.0.1:4161")  # type: ignore[arg-type]


@CONSUMERS
def test_a_consumer_without_addresses_is_refused(consumer_type: Any) -> None:
    with pytest.raises(BadClientOption, match="a consumer needs the address of an nsqd .* or of an nsqlookupd"):
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
    producer = producer_type("127.0.0.1:1")
    body: Any = [b"x"] if way == "multi_publish" else b"x"
    with pytest.raises(TypeError) as raised:
        getattr(producer, way)(b"orders", body)
    assert str(raised.value) == "a topic or channel is a str, not bytes: decode it first, as in b'orders'.decode()"
    with pytest.raises(TypeError, match="a topic or channel is a str, not int"):
        getattr(producer, way)(5, body)
    with pytest.raises(BadName):
        getattr(producer, way)("no name", body)


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
