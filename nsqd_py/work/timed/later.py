"""Messages that wait for longer than nsqd defers one: they wait in a topic of the app, as often as it takes.

Such a message is published to `<app>.later` at once, in an envelope that says when it is due and for which topic. A handler
requeues it until then, and publishes the body to its topic, where it is a message as any other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from nsqd_py.client.blocking.producer import Producer
from nsqd_py.client.errors import BadClientOption, NsqClientError, PublishFailed
from nsqd_py.client.message import Message, Requeue
from nsqd_py.client.options import Delay, seconds_of
from nsqd_py.protocol.envelope import wrap
from nsqd_py.protocol.outgoing import name_bytes
from nsqd_py.work.handlers import Handler, Headers
from nsqd_py.work.outcomes import Retry
from nsqd_py.work.timed.tokens import MOST_ATTEMPTS

DUE_HEADER = "due"
TOPIC_HEADER = "topic"

_CONCURRENCY = 16
_RETRY = Retry(attempts=None, first_s=1.0, most_s=60.0, never=(KeyError, ValueError))
_LATEST_S = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_REFUSED_DELAY = "E_INVALID"


def later_topic(app_name: str) -> str:
    return f"{app_name}.later"


def delay_s_of(defer_s: Delay, at: datetime | None, now_s: float) -> float:
    """Return the delay of a publish in seconds. Raises BadClientOption."""
    if at is None:
        return _checked(seconds_of(defer_s), now_s)
    if defer_s:
        raise BadClientOption("give defer_s or at, not both")
    if at.utcoffset() is None:
        raise BadClientOption(
            f"at={at!r} has no time zone: give one, as in datetime(2030, 1, 31, 8, tzinfo=ZoneInfo('Europe/Zurich')), or "
            "datetime.now(UTC) + timedelta(hours=3)"
        )
    return max(0.0, at.timestamp() - now_s)


def _checked(delay_s: float, now_s: float) -> float:
    """Return the delay. Raises BadClientOption for one that is no time at all, or beyond all dates."""
    if not isinstance(delay_s, (int, float)):
        raise BadClientOption(f"defer_s={delay_s!r} is no delay: give a number of seconds, or a timedelta")
    if not now_s + delay_s <= _LATEST_S:  # so is NaN
        raise BadClientOption(
            f"defer_s={delay_s} is no delay: give a number of seconds that ends before the year 10000, or a time as at=…"
        )
    return delay_s


def chained(app_name: str, topic: str, body: bytes, due_s: float) -> tuple[str, bytes]:
    """Return the topic and the body to publish now, for a message that is due at a later time. Raises BadName."""
    name_bytes(topic)
    return later_topic(app_name), wrap(body, {DUE_HEADER: f"{due_s:.3f}", TOPIC_HEADER: topic})


def refusal(error: PublishFailed, delay_s: float) -> NsqClientError:
    """Return what to raise for an error of a deferred publish: with the remedy, if nsqd does not defer for that long."""
    if error.code != _REFUSED_DELAY or not delay_s:
        return error
    return BadClientOption(
        f"{error}: this nsqd defers a message for less than {delay_s:g} s. Give App(longest_defer_s=…) its "
        "--max-defer-timeout, which is --max-req-timeout in Go's nsqd, or raise that"
    )


class Later:
    """The handler of the topic `<app>.later`."""

    def __init__(
        self, producer: Producer, longest_wait_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._producer = producer
        self._longest_wait_s = longest_wait_s
        self._clock = clock

    def handler(self, app_name: str) -> Handler:
        longest_s = self._longest_wait_s
        return Handler(
            function=self.pass_on,
            topic=later_topic(app_name),
            channel=app_name,
            concurrency=_CONCURRENCY,
            retry=_RETRY.within(longest_s),
            longest_defer_s=longest_s,
        )

    def pass_on(self, body: bytes, headers: Headers, message: Message) -> None:
        """Publish a message that is due to its topic. Raises Requeue for one that is not, and as `Producer.publish`."""
        wait_s = float(headers[DUE_HEADER]) - self._clock()
        if wait_s <= 0:
            self._producer.publish(headers[TOPIC_HEADER], body)
        elif message.attempts < MOST_ATTEMPTS:
            raise Requeue(math.ceil(min(wait_s, self._longest_wait_s) * 1000) / 1000, backoff=False)
        else:
            # It has no attempts again: an nsqd with --max-attempts would take it for a dead letter.
            self._producer.publish(message.topic, wrap(body, headers))
