"""One batch of messages: filter, distribute, publish, try another destination, requeue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gevent.pool import Group

from nsq_tools.hosts import HostShares
from nsq_tools.nsq_to_nsq.filters import JsonFilter, Verdict
from nsq_tools.timings import TimingsByHost
from nsqd_py.client.errors import NsqClientError, PublishFailed
from nsqd_py.client.message import MessageBatch
from nsqd_py.runtime.logs import Log

# Well below the default of nsqd's --max-body-size, 5 MB.
MAX_GROUP_BYTES = 1024 * 1024


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
        ids, bodies = self.ids[start:end], self.bodies[start:end]
        return PublishGroup(self.batch, self.topic, ids, bodies, self.began_s, self.tried)

    def halves(self) -> tuple[PublishGroup, PublishGroup]:
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def without(self, destination: str) -> PublishGroup:
        """Return the same messages, with `destination` among the failed ones."""
        return PublishGroup(self.batch, self.topic, self.ids, self.bodies, self.began_s, self.tried | {destination})

    def publishable(self) -> Iterator[PublishGroup]:
        """Yield parts that are small enough for one publish."""
        start = size_bytes = 0
        for place, body in enumerate(self.bodies):
            if size_bytes + len(body) > MAX_GROUP_BYTES and place > start:
                yield self.part(start, place)
                start, size_bytes = place, 0
            size_bytes += len(body)
        yield self.part(start, len(self)) if start else self


# Errors about one message; nsqd may accept other messages.
_ABOUT_MESSAGES = frozenset(("E_BAD_MESSAGE", "E_BAD_BODY"))
# A message without the required field is requeued, as in Go's tool; after this number of attempts it is finished.
MAX_INCOMPLETE_ATTEMPTS = 5
_SHOWN_BYTES = 200

OnDone = Callable[[NsqClientError | None], object]


class Destination(Protocol):
    """Publishes messages; `nsqd_py.client.Producer` implements it.

    `on_done` must not block. It is not called if the method raises.
    """

    def publish_soon(self, topic: str, body: bytes, on_done: OnDone) -> object: ...

    def multi_publish_soon(self, topic: str, bodies: list[bytes], on_done: OnDone) -> object: ...


class Forwarder:
    """Publishes the messages of batches, and finishes a message only after its destination has answered OK.

    If a destination fails, its messages go to another one; if there is none, they are requeued with back-off.
    """

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        shares: HostShares,
        rules: JsonFilter,
        timings: TimingsByHost,
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        """`destinations` and `shares` have the same names; `clock` returns monotonic seconds."""
        self._destinations = destinations
        self._shares = shares
        self._rules = rules
        self._timings = timings
        self._log = log
        self._clock = clock
        self._second_tries = Group()
        self._is_stopping = False

    def handle(self, topic: str, batch: MessageBatch) -> None:
        """Begin forwarding a batch to this topic."""
        # By id: a message that timed out and was delivered again may be in the batch twice, but is answered once.
        messages = dict(zip(batch.ids, batch.bodies, strict=True))
        if self._rules.is_on:
            messages = self._filtered(batch, messages)
        if messages:
            group = PublishGroup(batch, topic, list(messages), list(messages.values()), self._clock())
            self._distribute(group, "no destination is free")

    def stop_retrying(self) -> None:
        """Do not try other destinations any more, because the tool is stopping."""
        self._is_stopping = True

    def join(self, timeout_s: float) -> None:
        """Wait for the retries that have begun."""
        self._second_tries.join(timeout_s)

    # --- filtering

    def _filtered(self, batch: MessageBatch, messages: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the messages that pass, with the bodies to send. Answer the others."""
        passed, finished, incomplete = {}, [], []
        for message_id, body in messages.items():
            verdict, passed_body = self._rules.judge(body)
            if verdict is Verdict.PASS:
                passed[message_id] = passed_body
            elif verdict is Verdict.INCOMPLETE:
                incomplete.append(message_id)
            else:
                finished.append(message_id)
                if verdict is Verdict.UNREADABLE:
                    shown = body[:_SHOWN_BYTES].decode(errors="backslashreplace")
                    self._log.of_clients.error("unable to decode json: %s", shown)
        if incomplete:
            finished += self._put_off(batch, incomplete)
        if finished:
            batch.finish_some(finished)
        return passed

    def _put_off(self, batch: MessageBatch, incomplete: list[bytes]) -> list[bytes]:
        """Requeue incomplete messages. Return those that have had too many attempts."""
        self._log.of_clients.error("missing field to check required value")
        attempts = dict(zip(batch.ids, batch.attempts, strict=True))
        again = [message_id for message_id in incomplete if attempts[message_id] <= MAX_INCOMPLETE_ATTEMPTS]
        if again:
            batch.requeue(None, again, backoff=True)
        return [message_id for message_id in incomplete if attempts[message_id] > MAX_INCOMPLETE_ATTEMPTS]

    # --- publishing

    def _distribute(self, group: PublishGroup, reason: object) -> None:
        """Send the messages to destinations that were not tried. Requeue the rest, and log `reason`."""
        counts = self._shares.distribute(len(group), self._clock(), group.tried)
        start = 0
        for name, count in counts.items():
            for publishable in group.part(start, start + count).publishable():
                self._send(name, publishable)
            start += count
        if start < len(group):
            self._requeue(group.part(start, len(group)), reason)

    def _send(self, name: str, group: PublishGroup) -> None:
        on_done = partial(self._answered, name, group, self._clock())
        destination = self._destinations[name]
        try:
            if len(group) == 1:
                destination.publish_soon(group.topic, group.bodies[0], on_done)
            else:
                destination.multi_publish_soon(group.topic, list(group.bodies), on_done)
        except NsqClientError as error:  # nothing was sent
            on_done(error)

    def _answered(self, name: str, group: PublishGroup, sent_s: float, error: NsqClientError | None) -> None:
        is_about_messages = isinstance(error, PublishFailed) and error.code in _ABOUT_MESSAGES
        if is_about_messages and len(group) > 1:
            # nsqd refused one of them; the others can still be published.
            self._second_tries.spawn(self._send_halves, name, group)
            return
        now_s = self._clock()
        is_good = error is None or is_about_messages
        self._shares.give_back(name, is_good, now_s - sent_s, now_s, len(group))
        if error is None:
            self._timings.add(name, now_s - group.began_s, len(group))
            group.batch.finish_some(group.ids)
        elif is_about_messages or self._is_stopping:
            self._requeue(group, error)
        else:
            self._second_tries.spawn(self._try_elsewhere, name, group, error)

    # --- retries; each in a new greenlet, as sending may block

    def _send_halves(self, name: str, group: PublishGroup) -> None:
        for half in group.halves():
            self._send(name, half)

    def _try_elsewhere(self, name: str, group: PublishGroup, error: NsqClientError) -> None:
        self._log.of_clients.warning("%s; looking for another destination for %d messages", error, len(group))
        self._distribute(group.without(name), error)

    def _requeue(self, group: PublishGroup, reason: object) -> None:
        self._log.of_clients.warning("%s; %d messages are requeued", reason, len(group))
        group.batch.requeue(None, group.ids, backoff=True)
