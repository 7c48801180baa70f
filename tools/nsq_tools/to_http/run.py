"""nsq-to-http: builds the consumer and the delivery, and runs them until a signal."""

from __future__ import annotations

import random
import time

from nsq_tools.cli import DONE
from nsq_tools.hosts import HostShares, make_hosts
from nsq_tools.options import client_options, http_client, user_agent
from nsq_tools.timings import TimingsByHost
from nsq_tools.to_http.handler import Delivery, Handler, ToAll, ToOne
from nsq_tools.to_http.options import ALL, ToHttpOptions, headers_of, make_requests
from nsq_tools.to_http.sender import Sender
from nsqd_py.client.gevent import Consumer
from nsqd_py.net.http.client import limit_s
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals, raise_descriptor_limit

# Time to wait at the stop for requests, if they have no time-out.
PATIENCE_S = 30.0
# Added to the time of a request, so that its message is answered.
_MARGIN_S = 5.0


def run(options: ToHttpOptions, log: Log) -> int:
    """Send messages until a stop signal. Requests that are being sent then are completed first."""
    raise_descriptor_limit()
    request_limit_s = limit_s(options.http_client_request_timeout_ns)
    sender = _make_sender(options, log)
    delivery = _make_delivery(options, sender, log)
    consumer = _make_consumer(options, Handler(delivery, options.sample, random.random, log), log)
    with StopSignals() as signals:
        consumer.start()
        signals.wait()
        delivery.stop_retrying()
        consumer.stop(timeout_s=(request_limit_s or PATIENCE_S) + _MARGIN_S)
    sender.close()
    return DONE


def _make_sender(options: ToHttpOptions, log: Log) -> Sender:
    client = http_client(options)
    return Sender(client.connect_timeout_s, client.request_timeout_s, client.tls, log, time.monotonic)


def _make_delivery(options: ToHttpOptions, sender: Sender, log: Log) -> Delivery:
    requests = make_requests(options, headers_of(options))
    names = list(requests)
    timings = TimingsByHost(names, options.status_every, log)
    if options.mode == ALL:
        return ToAll(requests, sender, timings, time.monotonic)
    hosts = make_hosts(options.mode, names, random.random)
    shares = HostShares(hosts, names, min(options.n, options.max_in_flight))
    return ToOne(requests, shares, sender, timings, log, time.monotonic)


def _make_consumer(options: ToHttpOptions, handler: Handler, log: Log) -> Consumer:
    return Consumer(
        options.topic,
        options.channel,
        handler,
        concurrency=options.n,
        nsqd_tcp_addresses=options.nsqd_tcp_address,
        lookupd_http_addresses=options.lookupd_http_address,
        # The consumer drops a message after max_attempts, so there is no limit unless --consumer-opt sets one.
        options=client_options(
            options.consumer_opt,
            "consumer-opt",
            max_attempts=0,
            max_in_flight=options.max_in_flight,
            user_agent=user_agent("nsq_to_http"),
        ),
        log=log,
    )
