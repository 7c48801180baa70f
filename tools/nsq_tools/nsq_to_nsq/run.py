"""nsq-to-nsq: builds the producers, the forwarder and the consumers, and runs them until a signal."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial

import gevent

from nsq_tools.cli import DONE
from nsq_tools.hosts import HostShares, make_hosts
from nsq_tools.nsq_to_nsq.filters import JsonFilter
from nsq_tools.nsq_to_nsq.forwarder import Forwarder
from nsq_tools.nsq_to_nsq.options import NsqToNsqOptions
from nsq_tools.options import client_options, user_agent
from nsq_tools.timings import TimingsByHost
from nsqd_py.client import ClientOptions, NsqClientError
from nsqd_py.client.gevent import Consumer, Producer
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals, calm_collector

# Time without an answer after which messages go to another destination.
PUBLISH_TIMEOUT_S = 5.0
# Longer, so that the messages that are being published at the end are answered.
STOP_TIMEOUT_S = PUBLISH_TIMEOUT_S + 5.0
# --max-in-flight limits the messages; with a limit here, all would wait for one destination that hangs.
_NO_LIMIT = 1 << 40


def run(options: NsqToNsqOptions, log: Log) -> int:
    """Forward messages until a stop signal. Messages that are being published then are answered first."""
    producers = _make_producers(options, log)
    forwarder = _make_forwarder(options, producers, log)
    consumers = _make_consumers(options, forwarder, log)
    calm_collector()
    with StopSignals() as signals:
        for consumer in consumers:
            consumer.start()
        signals.wait()
        forwarder.stop_retrying()
        gevent.joinall([gevent.spawn(consumer.stop, timeout_s=STOP_TIMEOUT_S) for consumer in consumers])
    forwarder.join(STOP_TIMEOUT_S)
    for producer in producers.values():
        with suppress(NsqClientError):  # the messages without an answer were not finished
            producer.close(timeout_s=0)
    return DONE


def _make_producers(options: NsqToNsqOptions, log: Log) -> dict[str, Producer]:
    return {
        address: Producer(
            address,
            options=client_options(options.producer_opt, "producer-opt", user_agent=user_agent("nsq_to_nsq")),
            window=_NO_LIMIT,
            window_bytes=_NO_LIMIT,
            publish_timeout_s=PUBLISH_TIMEOUT_S,
            answer_timeout_s=PUBLISH_TIMEOUT_S,
            # The forwarder chooses the next destination.
            retry_unknown=False,
            log=log,
        )
        for address in options.destination_nsqd_tcp_address
    }


def _make_forwarder(options: NsqToNsqOptions, producers: dict[str, Producer], log: Log) -> Forwarder:
    names = list(producers)
    rules = JsonFilter(options.require_json_field, options.require_json_value, options.whitelist_json_field)
    hosts = make_hosts(options.mode, names, random.random)
    shares = HostShares(hosts, names, options.max_in_flight * len(options.topic))
    timings = TimingsByHost(names, options.status_every, log)
    return Forwarder(producers, shares, rules, timings, log, time.monotonic)


def _make_consumers(options: NsqToNsqOptions, forwarder: Forwarder, log: Log) -> list[Consumer]:
    """Return a consumer for each topic, each with the full --max-in-flight, as in Go's tool."""
    consumer_options: ClientOptions = client_options(
        options.consumer_opt,
        "consumer-opt",
        # The consumer drops a message after max_attempts, so there is no limit unless --consumer-opt sets one.
        max_attempts=0,
        max_in_flight=options.max_in_flight,
        user_agent=user_agent("nsq_to_nsq"),
    )
    return [
        Consumer(
            topic,
            options.channel,
            batch_handler=partial(forwarder.handle, options.destination_topic or topic),
            nsqd_tcp_addresses=options.nsqd_tcp_address,
            lookupd_http_addresses=options.lookupd_http_address,
            options=consumer_options,
            log=log,
        )
        for topic in dict.fromkeys(options.topic)
    ]
