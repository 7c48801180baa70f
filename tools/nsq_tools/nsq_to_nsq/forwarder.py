"""nsq-to-nsq: a batch of messages is filtered, distributed, published, and finished or requeued, until a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from time import monotonic

import gevent
from gevent.pool import Group

from nsq_tools.clients import make_consumer
from nsq_tools.hosts import AGGREGATE, HostBalancer, Timings
from nsq_tools.nsq_to_nsq.circles import Circles
from nsq_tools.nsq_to_nsq.json_filter import FilterResult, JsonFilter
from nsq_tools.nsq_to_nsq.options import NsqToNsqOptions
from nsqd_py.client.errors import NsqClientError, PublishFailed
from nsqd_py.client.gevent import Producer
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.tool_checks import (
    check_name,
    check_nsqd_addresses,
    check_sources,
    client_options,
    user_agent,
)
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import StopSignals, tune_gc
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import DONE, ToolError

# Time without an answer after which messages go to another destination.
PUBLISH_TIMEOUT_S = 5.0
# Longer, so that the messages that are being published at the end are answered.
STOP_TIMEOUT_S = PUBLISH_TIMEOUT_S + 1.0
# --max-in-flight limits the messages; with a limit here, all would wait for one destination that hangs.
_NO_LIMIT = 1 << 40
# Well below the default of nsqd's --max-body-size, 5 MB.
MAX_GROUP_BYTES = 1024 * 1024
# Errors about one message; nsqd may accept other messages.
_ABOUT_MESSAGES = ("E_BAD_MESSAGE", "E_BAD_BODY")
# A message without the required field is requeued, as in Go's tool; after this number of attempts it is finished.
MAX_INCOMPLETE_ATTEMPTS = 5
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True, eq=False)
class PublishGroup:
    """Messages of a batch that are published together, and finished or requeued together.

    topic    the destination's topic
    began_s  time of arrival (monotonic)
    tried    destinations that failed
    """

    batch: MessageBatch
    topic: str
    ids: Sequence[bytes]
    bodies: Sequence[bytes]
    began_s: float
    tried: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> PublishGroup:
        return replace(self, ids=self.ids[start:end], bodies=self.bodies[start:end])

    def publishable(self) -> Iterator[PublishGroup]:
        """Yield parts that are small enough for one publish."""
        start = 0
        size_bytes = 0
        for index, body in enumerate(self.bodies):
            if size_bytes + len(body) > MAX_GROUP_BYTES and index > start:
                yield self.part(start, index)
                start = index
                size_bytes = 0
            size_bytes += len(body)
        yield self.part(start, len(self)) if start else self


@dataclass(slots=True, eq=False, repr=False)
class Forwarder:
    """Publishes the messages of batches, and finishes a message only after its destination has answered OK.

    If a destination fails, its messages go to another one; if there is none, they are requeued with back-off.

    `destinations` and `balancer` have the same names; `clock` returns monotonic seconds. `on_circle` is called with an nsqd
    whose messages would go back to it, and must end the tool.
    """

    destinations: Mapping[str, Producer]
    balancer: HostBalancer
    rules: JsonFilter
    timings: Timings
    log: Log
    clock: Callable[[], float]
    circles: Circles = field(default_factory=Circles)
    on_circle: Callable[[str], None] = lambda nsqd: None
    second_tries: Group = field(default_factory=Group)
    _is_stopping: bool = False

    def handle(self, topic: str, batch: MessageBatch) -> None:
        """Begin forwarding a batch to this topic."""
        if topic == batch.topic and self.circles.has(batch.nsqd):
            self.on_circle(batch.nsqd)
            batch.requeue(0.0, backoff=False)
            return
        # By id: a message that timed out and was delivered again may be in the batch twice, but is answered once.
        messages = dict(zip(batch.ids, batch.bodies, strict=True))
        if self.rules.is_on:
            messages = self._filtered(batch, messages)
        if messages:
            group = PublishGroup(batch, topic, list(messages), list(messages.values()), self.clock())
            self._distribute(group, "no destination is free")

    def stop_retrying(self) -> None:
        """Do not try other destinations any more, because the tool is stopping."""
        self._is_stopping = True

    # --- filtering

    def _filtered(self, batch: MessageBatch, messages: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the messages that pass, with the bodies to send. Answer the others."""
        passed = {}
        finished = []
        incomplete = []
        for message_id, body in messages.items():
            verdict, passed_body = self.rules.judge(body)
            if verdict is FilterResult.PASS:
                passed[message_id] = passed_body
            elif verdict is FilterResult.INCOMPLETE:
                incomplete.append(message_id)
            else:
                finished.append(message_id)
                if verdict is FilterResult.UNREADABLE:
                    shown = body[:_SHOWN_BYTES].decode(errors="backslashreplace")
                    self.log.of_clients.error("unable to decode json: %s", shown)
        if incomplete:
            finished += self._put_off(batch, incomplete)
        if finished:
            batch.finish_some(finished)
        return passed

    def _put_off(self, batch: MessageBatch, incomplete: list[bytes]) -> list[bytes]:
        """Requeue incomplete messages. Return those that have had too many attempts."""
        self.log.of_clients.error("missing field to check required value")
        attempts = dict(zip(batch.ids, batch.attempts, strict=True))
        again = [message_id for message_id in incomplete if attempts[message_id] <= MAX_INCOMPLETE_ATTEMPTS]
        if again:
            batch.requeue(None, again, backoff=True)
        return [message_id for message_id in incomplete if attempts[message_id] > MAX_INCOMPLETE_ATTEMPTS]

    # --- publishing

    def _distribute(self, group: PublishGroup, reason: object) -> None:
        """Send the messages to destinations that were not tried. Requeue the rest, and log `reason`."""
        counts = self.balancer.distribute(len(group), self.clock(), group.tried)
        start = 0
        for name, count in counts.items():
            for publishable in group.part(start, start + count).publishable():
                self._send(name, publishable)
            start += count
        if start < len(group):
            self._requeue(group.part(start, len(group)), reason)

    def _send(self, name: str, group: PublishGroup) -> None:
        on_done = partial(self._answered, name, group, self.clock())
        try:
            self.destinations[name].multi_publish_soon(group.topic, list(group.bodies), on_done)
        except NsqClientError as error:  # nothing was sent
            on_done(error)

    def _answered(self, name: str, group: PublishGroup, sent_s: float, error: NsqClientError | None) -> None:
        is_about_messages = isinstance(error, PublishFailed) and error.code in _ABOUT_MESSAGES
        if is_about_messages and len(group) > 1:
            # nsqd refused one of them; the others can still be published.
            self.second_tries.spawn(self._send_halves, name, group)
            return
        now_s = self.clock()
        is_good = error is None or is_about_messages
        self.balancer.give_back(name, is_good, now_s - sent_s, now_s, len(group))
        if error is None:
            self.timings.add(now_s - group.began_s, name, AGGREGATE, count=len(group))
            group.batch.finish_some(group.ids)
        elif is_about_messages or self._is_stopping:
            self._requeue(group, error)
        else:
            self.second_tries.spawn(self._try_elsewhere, name, group, error)

    # --- retries; each in a new greenlet, as sending may block

    def _send_halves(self, name: str, group: PublishGroup) -> None:
        middle = len(group) // 2
        self._send(name, group.part(0, middle))
        self._send(name, group.part(middle, len(group)))

    def _try_elsewhere(self, name: str, group: PublishGroup, error: NsqClientError) -> None:
        self.log.of_clients.warning("%s; looking for another destination for %d messages", error, len(group))
        self._distribute(replace(group, tried=group.tried | {name}), error)

    def _requeue(self, group: PublishGroup, reason: object) -> None:
        self.log.of_clients.warning("%s; %d messages are requeued", reason, len(group))
        group.batch.requeue(None, group.ids, backoff=True)


def run(options: NsqToNsqOptions, log: Log) -> int:
    """Forward messages until a stop signal. Messages that are being published then are answered first."""
    client = client_options(options.producer_opt, "producer-opt", user_agent=user_agent("nsq_to_nsq"))
    producers = {
        address: Producer(
            address,
            options=client,
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
    rules = JsonFilter(options.require_json_field, options.require_json_value, options.whitelist_json_field)
    balancer = HostBalancer(
        options.mode, list(producers), options.max_in_flight * len(options.topic), Random()
    )
    circles = Circles(producers)
    forwarder = Forwarder(
        producers, balancer, rules, Timings(producers, options.status_every, log), log, monotonic, circles
    )
    # Each consumer has the full --max-in-flight, as in Go's tool.
    consumers = []
    for topic in dict.fromkeys(options.topic):
        consumers.append(
            make_consumer(
                options,
                "nsq_to_nsq",
                topic,
                log,
                batch_handler=partial(forwarder.handle, options.destination_topic or topic),
            )
        )
    tune_gc()
    in_circle: list[str] = []
    with StopSignals() as signals:

        def on_circle(nsqd: str) -> None:
            in_circle.append(nsqd)
            signals.stop()

        forwarder.on_circle = on_circle
        for consumer in consumers:
            consumer.start()
        signals.wait()
        forwarder.stop_retrying()
        gevent.joinall([gevent.spawn(consumer.stop, timeout_s=STOP_TIMEOUT_S) for consumer in consumers])
    for producer in producers.values():
        with suppress(NsqClientError):  # the messages without an answer were not finished
            producer.close(timeout_s=0)
    if in_circle:
        raise ToolError(_circle_text(in_circle[0]))
    return DONE


def check(options: NsqToNsqOptions) -> None:
    """Raise BadOptions if the options contradict each other. The order of the checks is that of Go's nsq_to_nsq."""
    if not options.topic or not options.channel:
        raise BadOptions("--topic and --channel are required")
    for topic in options.topic:
        check_name(topic, "topic")
    if options.destination_topic:
        check_name(options.destination_topic, "destination-topic")
    check_name(options.channel, "channel")
    check_sources(options)
    if not options.destination_nsqd_tcp_address:
        raise BadOptions("--destination-nsqd-tcp-address required")
    _check_destinations(options)
    if options.require_json_value and not options.require_json_field:
        raise BadOptions(
            "--require-json-value needs --require-json-field: which field is to have this value?"
        )
    client_options(options.consumer_opt, "consumer-opt")
    client_options(options.producer_opt, "producer-opt")


def _check_destinations(options: NsqToNsqOptions) -> None:
    destinations = options.destination_nsqd_tcp_address
    check_nsqd_addresses(destinations, "destination-nsqd-tcp-address")
    circle = set(destinations).intersection(options.nsqd_tcp_address)
    if circle and (not options.destination_topic or options.destination_topic in options.topic):
        raise BadOptions(_circle_text(circle.pop()))


def _circle_text(nsqd: str) -> str:
    return (
        f"messages would go from {nsqd} to itself without end; give another --destination-topic "
        "or --destination-nsqd-tcp-address"
    )
