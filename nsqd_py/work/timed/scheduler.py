"""The scheduler of a process: it gets the tokens of an app, and publishes the jobs of what is due.

One thread does all of it, with two consumers. Before it decides about a token, it has read everything that nsqd had sent to
its ephemeral channel: a process that was suspended knows first what has happened.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.blocking.consuming_core import NonBlockingConsumer
from nsqd_py.client.blocking.producer import Producer, PublishFuture
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S
from nsqd_py.client.errors import NoNsqd, NsqClientError
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.envelope import wrap
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.refusals import ConsumerRefused, RefusalWatch
from nsqd_py.work.timed.occurrences import Occurrences
from nsqd_py.work.timed.tokens import (
    LISTEN_S,
    BadToken,
    Decision,
    Drop,
    Rank,
    Renew,
    Run,
    Token,
    TokenBook,
    Wait,
)

SCHEDULE_HEADER = "schedule"
DUE_HEADER = "due"

_MISSING_INTERVAL_S = 10.0
_LATE_S = 5.0  # an occurrence that is later than this is logged
_RETRY_S = 2.0  # tokens wait this long after a publish that failed
_LONGEST_NAP_S = 0.5
_LOOK_S = 5.0  # how often to ask nsqlookupds, and to connect to an nsqd that was away, at least
_TAKEN = 1000  # tokens at a time
_HEARD = 2500
_PER_PUBLISH = 1000
_HOST_LENGTH = 24


def schedules_topic(app_name: str) -> str:
    return f"{app_name}.schedules"


def due_topic(app_name: str) -> str:
    return f"{app_name}.due"


class Scheduler:
    """The thread that runs the schedules of an app in this process. `start` starts it.

    failure  the error that ended it for good, or None
    """

    def __init__(
        self,
        app_name: str,
        schedules: Mapping[str, Occurrences],
        *,
        producer: Producer,
        settings: Mapping[str, Any],
        longest_wait_s: float,
        log: LineWriter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings` are those of a Consumer: addresses, options, log."""
        self.failure: BaseException | None = None
        self._app_name = app_name
        self._producer = producer
        self._log = log
        self._clock = clock
        self._book = TokenBook(schedules, longest_wait_s, _make_nonce)
        options: ClientOptions = settings["options"] or ClientOptions()
        interval_s = min(_LOOK_S, options.lookupd_poll_interval_s)
        self._settings = {**settings, "lookupd_poll_interval": interval_s}
        self._has_lookupd = bool(settings["lookupd_http_addresses"])
        self._connections: frozenset[str] = frozenset()
        self._settled_s = math.inf
        self._next_missing_s = math.inf
        topic = schedules_topic(app_name)
        self._tokens_watch = RefusalWatch(f"the consumer of schedules, {topic}/{app_name},")
        self._hearing_watch = RefusalWatch(f"the ephemeral consumer of schedules, {topic},")
        self._stop_by_s: float | None = None
        self._is_started = False
        self._has_ended = False

    def start(self) -> None:
        """Connect, and begin. Raises as `Consumer`."""
        self._tokens = self._consumer(self._app_name, _TAKEN)
        self._tokens.pause()
        self._hearing: NonBlockingConsumer | None = None
        self._is_started = True
        THREADS.spawn("nsqd-py scheduler", self._run)

    def _consumer(self, channel: str, max_in_flight: int) -> NonBlockingConsumer:
        return NonBlockingConsumer(
            schedules_topic(self._app_name), channel, max_in_flight=max_in_flight, **self._settings
        )

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End soon. Tokens that it has not handled go back to nsqd. Signal handlers may call this."""
        stop_by_s = time.monotonic() + timeout_s
        if self._stop_by_s is None:
            self._stop_by_s = stop_by_s
        else:
            self._stop_by_s = min(self._stop_by_s, stop_by_s)

    @property
    def is_running(self) -> bool:
        """True from `start` until its thread ends."""
        return self._is_started and not self._has_ended

    # ---- its thread

    def _run(self) -> None:
        try:
            self._begin()
            while self._stop_by_s is None:
                self._turn()
        except ConsumerRefused as error:  # it says all by itself
            self.failure = error
        except BaseException as error:  # noqa: BLE001 - `failure` has it
            self.failure = error
            self._log.exception("the schedules of %s have ended: %r", self._app_name, error)
        finally:
            self._close()
            self._has_ended = True

    def _begin(self) -> None:
        """Create the topic: nsqlookupd knows it then, and the consumers find it."""
        if self._has_lookupd:
            self._publish_tokens([Token("", None, None, _make_nonce())])

    def _turn(self) -> None:
        self._wait_for_input()
        self._end_if_refused()
        self._hear()
        self._settle()
        for batch in self._tokens.step(0) or ():
            self._take(batch)

    def _end_if_refused(self) -> None:
        """Raises ConsumerRefused."""
        for consumer, watch in ((self._tokens, self._tokens_watch), (self._hearing, self._hearing_watch)):
            if consumer is not None:
                watch.end_if_refused(consumer)

    def _wait_for_input(self) -> None:
        consumers = [self._tokens]
        if self._hearing is not None:
            consumers.append(self._hearing)
        poll = select.poll()
        for consumer in consumers:
            for watched in consumer.watched:
                poll.register(watched, select.POLLIN)
        nap_s = min(_LONGEST_NAP_S, *(consumer.wait_s for consumer in consumers))
        poll.poll(math.ceil(nap_s * 1000))

    def _close(self) -> None:
        stop_by_s = self._stop_by_s or 0.0
        for consumer in (self._tokens, self._hearing):
            if consumer is None:
                continue
            consumer.begin_to_stop(max(0.0, stop_by_s - time.monotonic()))
            while (batches := consumer.step(_LONGEST_NAP_S)) is not None:
                for batch in batches:
                    batch.requeue(0)

    # ---- what it hears

    def _hear(self) -> None:
        """Read what has come to the ephemeral channel, all of it."""
        if self._hearing is None:
            # A topic gives what it has to its first channel: this must be the one that remains.
            if self._tokens.stats().connections:
                self._hearing = self._consumer(_ephemeral_channel(), _HEARD)
            return
        notices: list[Token] = []
        while batches := self._hearing.step(0):
            for batch in batches:
                notices += self._note(batch)
                batch.finish()
            self._notice_connections(self._hearing)
        self._notice_connections(self._hearing)
        self._publish_tokens(notices)

    def _note(self, batch: MessageBatch) -> Iterable[Token]:
        """Note the tokens of a batch. Yield the notices to publish."""
        now_s = self._clock()
        for message in batch.messages():
            token = self._read(message)
            if token is None:
                continue
            notice = self._book.hear(token, _rank(token, message), now_s)
            if notice is not None:
                yield notice

    def _read(self, message: Message) -> Token | None:
        try:
            return Token.from_body(message.body)
        except BadToken as error:
            self._log.warning("%s: %s", message, error)
            return None

    def _notice_connections(self, hearing: NonBlockingConsumer) -> None:
        """Begin again after each new connection: tokens may have been published before it."""
        connections = frozenset(hearing.stats().connections)
        if connections - self._connections:
            now_s = self._clock()
            self._book.begin(now_s, len(connections))
            self._tokens.pause()
            self._settled_s = self._next_missing_s = now_s + LISTEN_S
        self._connections = connections

    def _settle(self) -> None:
        """Take tokens once it has listened for long enough. Publish those that are missing, now and then."""
        now_s = self._clock()
        if now_s >= self._settled_s:
            self._settled_s = math.inf
            self._tokens.resume()
        if now_s >= self._next_missing_s:
            self._next_missing_s = now_s + _MISSING_INTERVAL_S
            self._publish_tokens(list(self._book.missing(now_s)))

    # ---- what it gets

    def _take(self, batch: MessageBatch) -> None:
        """Publish the jobs of what is due, then the tokens that follow, then finish: a crash repeats a job, and loses none."""
        now_s = self._clock()
        done: list[Message] = []
        due: list[Run] = []
        tokens: list[Token] = []
        # A process that was suspended may get a message twice.
        for message in {each.id: each for each in batch.messages()}.values():
            decision = self._decide(message, now_s)
            if isinstance(decision, Wait):
                message.requeue(math.ceil(decision.delay_s * 1000) / 1000, backoff=False)
                continue
            done.append(message)
            if isinstance(decision, Run):
                due.append(decision)
                tokens.append(decision.follower)
            elif isinstance(decision, Renew):
                tokens.append(decision.token)
            elif decision.warning:
                self._log.warning("%s", decision.warning)
        try:
            jobs = [job_of(run.schedule, run.due_s) for run in due]
            self._publish(due_topic(self._app_name), jobs)
            self._publish(schedules_topic(self._app_name), [token.to_body() for token in tokens])
        except NsqClientError as error:
            self._log.error("the schedules of %s wait: %s", self._app_name, error)
            for message in done:
                message.requeue(_RETRY_S, backoff=False)
            return
        for run in due:
            self._book.ran(run.schedule, run.due_s)
            self._log_late(run)
        for message in done:
            message.settle()

    def _decide(self, message: Message, now_s: float) -> Decision:
        token = self._read(message)
        if token is None:
            return Drop()
        return self._book.decide(token, _rank(token, message), message.attempts, now_s)

    def _log_late(self, run: Run) -> None:
        if run.late_s > _LATE_S:
            due = datetime.fromtimestamp(run.due_s, UTC).isoformat()
            self._log.warning(
                "schedule %s: the occurrence of %s runs %.0f s late", run.schedule, due, run.late_s
            )

    # ---- what it publishes

    def _publish_tokens(self, tokens: list[Token]) -> None:
        """Publish tokens that take the place of none. What fails is missing again later."""
        try:
            self._publish(schedules_topic(self._app_name), [token.to_body() for token in tokens])
        except NsqClientError as error:
            self._log.error("the schedules of %s wait: %s", self._app_name, error)

    def _publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), _PER_PUBLISH):
            together = bodies[start : start + _PER_PUBLISH]
            future = self._producer.multi_publish_soon(topic, together, _ignore)
            self._wait_for(future)

    def _wait_for(self, publish: PublishFuture) -> None:
        """Wait until it is stored. Raises its error, and NoNsqd after the time of a stop: nsqd may be away."""
        while True:
            try:
                publish.result(_LONGEST_NAP_S)
            except TimeoutError:
                if self._stop_by_s is not None and time.monotonic() >= self._stop_by_s:
                    raise NoNsqd("the worker stops, and no nsqd has stored them yet") from None
            else:
                return


def _ignore(error: Exception | None) -> None:
    """Leave the error of a publish to its future."""


def job_of(schedule: str, due_s: int) -> bytes:
    """Return the message of an occurrence. Its body is empty."""
    return wrap(b"", {SCHEDULE_HEADER: schedule, DUE_HEADER: str(due_s)})


def _rank(token: Token, message: Message) -> Rank:
    return message.timestamp_ns, token.nonce


def _make_nonce() -> str:
    return secrets.token_hex(8)


def _ephemeral_channel() -> str:
    host = re.sub(r"[^.a-zA-Z0-9_-]", "-", socket.gethostname())[:_HOST_LENGTH]
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}#ephemeral"
