"""The transport of kombu: a connection with its consumers, its Producer, and what an event loop waits for."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from time import monotonic, time
from typing import Any
from weakref import finalize

from celery.exceptions import ImproperlyConfigured
from kombu.transport import virtual
from kombu.utils.json import dumps

from nsqd_py.celery.channel import NsqChannel, QueueTraits
from nsqd_py.celery.deliveries import Deliveries, QueueConsumer, Source
from nsqd_py.celery.payloads import eta_of
from nsqd_py.celery.pump import CLOSE_S, LONGEST_WAIT_S, Pump, PumpFailed, logger
from nsqd_py.celery.servers import Servers
from nsqd_py.celery.settings import DEFAULT_PORT, Settings
from nsqd_py.client import Producer
from nsqd_py.client.errors import AtAddress, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.client.lookup import LookupFailed
from nsqd_py.runtime.logs.outages import OutageLog

_UNACKNOWLEDGED = 200  # messages in flight to a consumer that does not acknowledge: remote control, events
_MOST_SOON = 500  # events and broadcasts that wait for an nsqd; more are dropped


class Transport(virtual.Transport):
    """The transport: consumers on one thread, a Producer, and what kombu's event loop waits for.

    It reconnects by itself: kombu and Celery see no lost connection, only a publish that failed for `publish_timeout_s`.
    """

    Channel = NsqChannel
    can_parse_url = True
    default_port = DEFAULT_PORT
    driver_type = "nsq"
    driver_name = "nsqd-py"
    connection_errors = (*virtual.Transport.connection_errors, NoNsqd, LookupFailed, AtAddress, PumpFailed)
    channel_errors = (*virtual.Transport.channel_errors, PublishFailed)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """Raises ImproperlyConfigured."""
        super().__init__(client, **kwargs)
        if client.alt:
            raise ImproperlyConfigured(
                "broker_url: one URL has all nsqds, separated by commas, as in nsq://a:4150,b:4150; a worker uses all of them"
            )
        if client.ssl:
            raise ImproperlyConfigured(
                "broker_use_ssl: set tls_v1, tls_root_ca_file, tls_cert and tls_key in broker_transport_options"
            )
        self.settings = Settings.of(client.hostname or "", client.port, client.transport_options)
        self.servers = Servers(self.settings)
        self.deliveries = Deliveries()
        self.queues: dict[str, QueueTraits] = {}
        self._pid = os.getpid()
        self._owners: dict[Source, NsqChannel] = {}
        self._producer: Producer | None = None
        self._soon_count = 0
        self._soon_lock = threading.Lock()
        self._soon_outage = OutageLog(logger, monotonic)
        self._loop: Any = None
        self._made_pump: Pump | None = None

    @property
    def is_own_process(self) -> bool:
        """False in a fork of the process that has connected."""
        return os.getpid() == self._pid

    @property
    def _pump(self) -> Pump:
        """The pump, made when it is first used: a connection that only publishes needs none."""
        if self._made_pump is None:
            self._made_pump = Pump()
            finalize(self, _drop, self._made_pump, self.deliveries).atexit = False
        return self._made_pump

    def driver_version(self) -> str:
        """Return the version of this project."""
        from nsqd_py.version import PROJECT_VERSION

        return PROJECT_VERSION

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL as it is: it has no secrets."""
        return uri

    # ---- connections

    def establish_connection(self) -> Any:
        """Raises NoNsqd and LookupFailed if no nsqd can be connected."""
        self.servers.check()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Send all answers, give back what is not answered, and close."""
        if not self.is_own_process:
            return
        super().close_connection(connection)
        if self._loop is not None:
            self.unregister_from_event_loop(connection, self._loop)
        if self._made_pump is not None:
            self._made_pump.stop(CLOSE_S)
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(CLOSE_S)
            except NsqClientError as error:
                logger.warning("not all broadcasts and events were sent: %s", error)

    # ---- publishing

    def publish(self, topic: str, payload: dict[str, Any], *, is_soon: bool) -> None:
        """Store a message, deferred until its ETA. With `is_soon` it is sent soon, and dropped if no nsqd takes it.

        Raises ImproperlyConfigured for a delay that nsqd refuses, and otherwise as `publish` of a client does.
        """
        body = dumps(payload).encode()
        eta_s = eta_of(payload)
        if self._producer is None:
            self._producer = Producer(
                nsqd_tcp_addresses=self.settings.nsqds,
                lookupd_http_addresses=self.settings.lookupds,
                options=self.settings.options,
                publish_timeout_s=self.settings.publish_timeout_s,
            )
        if not is_soon:
            delay_s = 0.0 if eta_s is None else eta_s - time()
            defer_s = min(max(0.0, delay_s), self.settings.longest_defer_s)
            self._publish(topic, body, defer_s)
        elif self._soon_count >= _MOST_SOON:
            self._soon_outage.report("no nsqd takes broadcasts and events; they are dropped")
        else:
            with self._soon_lock:
                self._soon_count += 1
            self._producer.publish_soon(topic, body, on_done=self._sent)

    def _publish(self, topic: str, body: bytes, defer_s: float) -> None:
        assert self._producer is not None
        try:
            self._producer.publish(topic, body, defer_s=defer_s)
        except PublishFailed as error:
            if not defer_s or "timeout" not in error.text:
                raise
            raise ImproperlyConfigured(
                f"{error}; set longest_defer_s in broker_transport_options to --max-defer-timeout of nsqd in seconds"
            ) from error

    def _sent(self, error: NsqClientError | None) -> None:
        with self._soon_lock:
            self._soon_count -= 1
        if error is None:
            self._soon_outage.end("broadcasts and events are taken again")

    # ---- consuming

    def new_consumer(self, topic: str, channel: str) -> QueueConsumer:
        """Return a consumer that has not begun."""
        return QueueConsumer(
            topic,
            channel,
            nsqd_tcp_addresses=self.settings.nsqds,
            lookupd_http_addresses=self.settings.lookupds,
            max_in_flight=_UNACKNOWLEDGED,
            options=self.settings.options,
        )

    def add_source(self, source: Source, channel: NsqChannel) -> None:
        """Let the channel have the messages of a source."""
        self._owners[source] = channel
        self._pump.add(source)

    def remove_source(self, source: Source) -> None:
        """Let nsqd deliver again what has arrived from a source and is not sorted."""
        with suppress(PumpFailed):
            self.sort_arrived()
        self._owners.pop(source, None)

    def sort_arrived(self) -> None:
        """Hand messages that have arrived to their channels. Raises PumpFailed."""
        if self._pump.failure is not None:
            raise PumpFailed(f"messages are not received any more: {self._pump.failure!r}")
        arrived = self._pump.arrived
        while arrived:
            source, message = arrived.popleft()
            channel = self._owners.get(source)
            if channel is None or source.is_cancelled:
                message.requeue(0, backoff=False)
            else:
                channel.take(source, message)

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until messages arrive, or for the time-out, and sort what is there."""
        self._pump.news.wait((), timeout_s)
        self.sort_arrived()

    def wake(self) -> None:
        """Let the event loop, or `drain_events`, deliver messages that wait."""
        self._pump.news.wake()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message. Raises TimeoutError."""
        deadline_s = None if timeout is None else monotonic() + timeout
        self.wait_for_news(0.0)
        while not self._deliver_one():
            left_s = LONGEST_WAIT_S if deadline_s is None else deadline_s - monotonic()
            if left_s <= 0:
                raise TimeoutError
            self.wait_for_news(min(left_s, LONGEST_WAIT_S))

    def _deliver_one(self) -> bool:
        return any(channel.deliver_one() for channel in list(self.channels))

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let an event loop of kombu deliver messages when they arrive."""
        self._loop = loop
        loop.add_reader(self._pump.news.fileno(), self._on_news)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Undo `register_with_event_loop`."""
        self._loop = None
        with suppress(OSError, ValueError):
            loop.remove_reader(self._pump.news.fileno())

    def _on_news(self) -> None:
        self.wait_for_news(0.0)
        while self._deliver_one():
            pass


def _drop(pump: Pump, deliveries: Deliveries) -> None:
    """End what a connection that was dropped without `close` has left."""
    if pump.is_own_process:
        pump.abandon(deliveries)
