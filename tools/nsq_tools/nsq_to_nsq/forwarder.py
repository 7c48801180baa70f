"""What becomes of a batch: filter, share out, publish, try elsewhere, requeue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gevent.pool import Group

from nsq_tools.hosts import Places
from nsq_tools.nsq_to_nsq.filters import JsonFilter, Verdict
from nsq_tools.timings import TimingsByHost
from nsqd_py.client.errors import NsqClientError, PublishFailed
from nsqd_py.client.message import MessageBatch
from nsqd_py.runtime.logs import Log

# Well below nsqd's --max-body-size, which is 5 MB unless it was changed.
MAX_PORTION_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """They are published together, and finished or requeued together.

    topic    where they go
    began_s  when they came (monotonic)
    tried    destinations that did not take them
    """

    batch: MessageBatch
    topic: str
    ids: Sequence[bytes]
    bodies: Sequence[bytes]
    began_s: float
    tried: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> Portion:
        return Portion(self.batch, self.topic, self.ids[start:end], self.bodies[start:end], self.began_s, self.tried)

    def halves(self) -> tuple[Portion, Portion]:
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def without(self, destination: str) -> Portion:
        """The same, of which is known that this destination did not take them."""
        return Portion(self.batch, self.topic, self.ids, self.bodies, self.began_s, self.tried | {destination})

    def publishable(self) -> Iterator[Portion]:
        """Cut where it would be too large for one publish."""
        start = size_bytes = 0
        for place, body in enumerate(self.bodies):
            if size_bytes + len(body) > MAX_PORTION_BYTES and place > start:
                yield self.part(start, place)
                start, size_bytes = place, 0
            size_bytes += len(body)
        yield self.part(start, len(self)) if start else self


# What nsqd says of a message that it will not take; another message may be welcome.
_ABOUT_MESSAGES = frozenset(("E_BAD_MESSAGE", "E_BAD_BODY"))
# A message without the field to compare is requeued, as Go's tool does, and after so many attempts it is finished:
# it would not have passed.
MAX_INCOMPLETE_ATTEMPTS = 5
_SHOWN_BYTES = 200

OnDone = Callable[[NsqClientError | None], object]


class Destination(Protocol):
    """Publishes; `nsqd_py.client.Producer` is one. `on_done` must not wait; it is not called for what raises."""

    def publish_soon(self, topic: str, body: bytes, on_done: OnDone) -> object: ...

    def multi_publish_soon(self, topic: str, bodies: list[bytes], on_done: OnDone) -> object: ...


class Forwarder:
    """Publishes what batches hold and answers them: no message is finished before its destination said OK.

    What a destination does not take goes to another; where there is none, it is requeued, with back-off.
    """

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        places: Places,
        rules: JsonFilter,
        timings: TimingsByHost,
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        """`destinations` and `places` by the same names; `clock` gives monotonic seconds."""
        self._destinations = destinations
        self._places = places
        self._rules = rules
        self._timings = timings
        self._log = log
        self._clock = clock
        self._second_tries = Group()
        self._is_in_a_hurry = False

    def handle(self, topic: str, batch: MessageBatch) -> None:
        """Begin to forward a batch to this topic."""
        # By id: one that timed out and came again before it was read is here twice, and is answered once.
        messages = dict(zip(batch.ids, batch.bodies, strict=True))
        if self._rules.is_on:
            messages = self._filtered(batch, messages)
        if messages:
            portion = Portion(batch, topic, list(messages), list(messages.values()), self._clock())
            self._share_out(portion, "no destination is free")

    def hurry(self) -> None:
        """The tool is about to end: no second tries elsewhere."""
        self._is_in_a_hurry = True

    def join(self, timeout_s: float) -> None:
        """Wait for second tries that have begun."""
        self._second_tries.join(timeout_s)

    # --- what passes

    def _filtered(self, batch: MessageBatch, messages: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Those that pass, as they are to be sent; the others are answered."""
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
                    self._log.error("unable to decode json: %s", body[:_SHOWN_BYTES].decode(errors="backslashreplace"))
        if incomplete:
            finished += self._put_off(batch, incomplete)
        if finished:
            batch.finish_some(finished)
        return passed

    def _put_off(self, batch: MessageBatch, incomplete: list[bytes]) -> list[bytes]:
        """Requeue those that have not come too often; the others."""
        self._log.error("missing field to check required value")
        attempts = dict(zip(batch.ids, batch.attempts, strict=True))
        again = [message_id for message_id in incomplete if attempts[message_id] <= MAX_INCOMPLETE_ATTEMPTS]
        if again:
            batch.requeue(None, again, backoff=True)
        return [message_id for message_id in incomplete if attempts[message_id] > MAX_INCOMPLETE_ATTEMPTS]

    # --- where it goes

    def _share_out(self, portion: Portion, reason: object) -> None:
        """Send its messages to destinations that may have them; for those that find none, `reason` says why."""
        dealt = self._places.deal(len(portion), self._clock(), portion.tried)
        start = 0
        for name, count in dealt.items():
            for publishable in portion.part(start, start + count).publishable():
                self._send(name, publishable)
            start += count
        if start < len(portion):
            self._requeue(portion.part(start, len(portion)), reason)

    def _send(self, name: str, portion: Portion) -> None:
        on_done = partial(self._answered, name, portion, self._clock())
        destination = self._destinations[name]
        try:
            if len(portion) == 1:
                destination.publish_soon(portion.topic, portion.bodies[0], on_done)
            else:
                destination.multi_publish_soon(portion.topic, list(portion.bodies), on_done)
        except NsqClientError as error:  # it did not even begin
            on_done(error)

    def _answered(self, name: str, portion: Portion, sent_s: float, error: NsqClientError | None) -> None:
        is_about_messages = isinstance(error, PublishFailed) and error.code in _ABOUT_MESSAGES
        if is_about_messages and len(portion) > 1:
            # One of them is the reason; the others shall arrive.
            self._second_tries.spawn(self._send_halves, name, portion)
            return
        now_s = self._clock()
        is_good = error is None or is_about_messages
        self._places.give_back(name, is_good, now_s - sent_s, now_s, len(portion))
        if error is None:
            self._timings.add(name, now_s - portion.began_s, len(portion))
            portion.batch.finish_some(portion.ids)
        elif is_about_messages or self._is_in_a_hurry:
            self._requeue(portion, error)
        else:
            self._second_tries.spawn(self._try_elsewhere, name, portion, error)

    # --- what failed; in greenlets of their own, for sending may wait

    def _send_halves(self, name: str, portion: Portion) -> None:
        for half in portion.halves():
            self._send(name, half)

    def _try_elsewhere(self, name: str, portion: Portion, error: NsqClientError) -> None:
        self._log.warning("%s; looking for another destination for %d messages", error, len(portion))
        self._share_out(portion.without(name), error)

    def _requeue(self, portion: Portion, reason: object) -> None:
        self._log.warning("%s; %d messages are requeued", reason, len(portion))
        portion.batch.requeue(None, portion.ids, backoff=True)
