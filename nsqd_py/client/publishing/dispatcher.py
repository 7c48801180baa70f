"""Assigns publishes to nsqds, and determines their results: the producer without its sockets.

Its methods report events (`submit`, `opened`, `answered_ok`, `closed`, ...), with the time in seconds of a monotonic
clock. They return what to send (`next_to_send`), and the publishes that are over. nsqd answers in the order of the
commands, without naming them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed, TimedOut
from nsqd_py.client.publishing.publish import DONE, SENT, WAITING, PendingPublish, Verdict, verdict_on
from nsqd_py.runtime.logs.outages import Backoff

# A publish fails after this many connections were lost while its answer was due.
MAX_LOSSES = 5
# One of many publishes may be what ends the connections. After this many losses each is sent alone.
ALONE_AFTER_LOSSES = 2
# How many publishes go to one of several nsqds before the next has its turn.
RUN = 64
# The longest pause before an nsqd is retried, while no other one is connected.
MOST_LONELY_PAUSE_S = 1.0


class WindowLimits(NamedTuple):
    """The size of a window. The last publish may exceed `size_bytes`, so that no body is too large."""

    publishes: int
    size_bytes: int


class ConnectionWriter:
    """An nsqd, its connection if it has one, and its unanswered publishes, in order.

    pause           when it may be retried after a failure; `Dispatcher.pause_s` may shorten it
    failed_s        time of the last failure
    is_open         True if publishes may be sent
    failure         why it could not be connected, or was lost; None while it is open
    is_rest_unread  True if nsqd refused a command in a way that shows that it read nothing behind it
    has_refused     True if it answered with an error: it is about to close the connection
    is_needed       False if nsqlookupd does not know it any more
    size_bytes      of all unanswered publishes on the wire
    opened_s        when its connection was opened
    reported_s      when the log last said that it is away; None if it is not, or if the log has not said so
    stirred_s       the time of the last answer, or when the first unanswered publish was sent
    """

    def __init__(self, address: str, limits: WindowLimits, pause: Backoff) -> None:
        self.address = address
        self.pause = pause
        self.failed_s = 0.0
        self.opened_s = 0.0
        self.reported_s: float | None = None
        self.connection: Any = None  # belongs to the shell
        self.is_open = False
        self.is_needed = True
        self.failure: NsqClientError | None = None
        self.is_rest_unread = False
        self.has_refused = False
        self.unanswered: deque[PendingPublish] = deque()
        self.size_bytes = 0
        self.stirred_s = 0.0
        self._limits = limits

    def take(self, waiting: deque[PendingPublish], most: int, now_s: float) -> list[PendingPublish]:
        """Move the first waiting publishes that there is room for, at most `most`, to this window. Return them."""
        taken: list[PendingPublish] = []
        if self.unanswered and self.unanswered[0].losses >= ALONE_AFTER_LOSSES:
            return taken
        most_bytes = self._limits.size_bytes
        for _ in range(min(most, self._limits.publishes - len(self.unanswered), len(waiting))):
            is_alone = waiting[0].losses >= ALONE_AFTER_LOSSES
            if self.size_bytes >= most_bytes or (is_alone and self.size_bytes):
                break
            publish = waiting.popleft()
            publish.state = SENT
            self.size_bytes += publish.size_bytes
            taken.append(publish)
            if is_alone:
                break
        if not self.unanswered:
            self.stirred_s = now_s
        self.unanswered.extend(taken)
        return taken

    def take_done(self, count: int, now_s: float) -> list[PendingPublish]:
        """Remove the next `count` publishes, which were answered OK. Return those that were not over before."""
        done = []
        self.stirred_s = now_s
        for _ in range(min(count, len(self.unanswered))):
            publish = self.unanswered.popleft()
            self.size_bytes -= publish.size_bytes
            if publish.state is SENT:
                publish.state = DONE
                done.append(publish)
        return done

    def take_refused(self, now_s: float) -> PendingPublish | None:
        """Remove the next publish, which was refused. Return it as waiting again; None if it was over before."""
        if not self.unanswered:
            return None
        publish = self.unanswered.popleft()
        self.size_bytes -= publish.size_bytes
        self.stirred_s = now_s
        return _waiting(publish)

    def take_unanswered(self) -> list[PendingPublish]:
        """Remove all publishes of a lost connection. Return them in order, as waiting again."""
        left = [publish for publish in self.unanswered if _waiting(publish)]
        self.unanswered.clear()
        self.size_bytes = 0
        return left

    def is_hung(self, now_s: float, answer_timeout_s: float) -> bool:
        """True if an answer is due and none has come for `answer_timeout_s`."""
        return bool(self.unanswered) and now_s - self.stirred_s >= answer_timeout_s


def _waiting(publish: PendingPublish) -> PendingPublish | None:
    """Mark the publish as waiting, and return it; None if it has failed already."""
    if publish.state is not SENT:
        return None
    publish.state = WAITING
    return publish


class SendOrder(NamedTuple):
    """Publishes to send over one connection, in this order."""

    writer: ConnectionWriter
    publishes: list[PendingPublish]


class Dispatcher:
    """Each publish is waiting, in the window of one writer, or over.

    waiting       publishes to be sent, in order: at most a window of new ones, and those that must be resent
    waiting_bytes  of all of them on the wire
    unfinished    how many are not over
    lookup_failures  why each nsqlookupd did not answer, by its address
    is_connected  True if there is an nsqd to send to
    """

    def __init__(self, limits: WindowLimits, *, retry_unknown: bool, answer_timeout_s: float) -> None:
        """The limits apply to each window, and to the publishes that wait.

        With `retry_unknown`, a publish whose connection was lost before its answer is resent, and may be stored
        twice. Without it, the publish fails with ConnectionLost.
        """
        self.writers: dict[str, ConnectionWriter] = {}
        self.lookup_failures: dict[str, NsqClientError] = {}
        self.waiting: deque[PendingPublish] = deque()
        self.waiting_bytes = 0
        self.unfinished = 0
        self.is_connected = False
        self._limits = limits
        self._retry_unknown = retry_unknown
        self._answer_timeout_s = answer_timeout_s
        self._open: list[ConnectionWriter] = []
        self._turn = 0
        self._was_connected = False

    # ---- the nsqds

    def add_writer(self, address: str, pause: Backoff) -> ConnectionWriter:
        """Add an nsqd. A known one keeps its state."""
        writer = self.writers.get(address)
        if writer is None:
            writer = ConnectionWriter(address, self._limits, pause)
            self.writers[address] = writer
        writer.is_needed = True
        return writer

    def keep_writers(self, addresses: Iterable[str]) -> list[ConnectionWriter]:
        """Drop the other nsqds; one that is connected goes when it disconnects.

        Return the writers that were dropped.
        """
        needed = set(addresses)
        for writer in self.writers.values():
            writer.is_needed = writer.address in needed
        return self._forget_unneeded()

    def opened(self, writer: ConnectionWriter) -> None:
        """Note that a writer is connected."""
        self.is_connected = True
        self._was_connected = True
        self._open.append(writer)
        writer.is_open = True
        writer.failure = None
        writer.has_refused = False
        writer.is_rest_unread = False

    def not_opened(
        self, writer: ConnectionWriter, error: NsqClientError, now_s: float
    ) -> list[PendingPublish]:
        """Note that connecting failed. Return the publishes that fail because there is no nsqd at all."""
        writer.failure = error
        self._leave_alone(writer, now_s)
        no_nsqd = self.no_nsqd()
        if no_nsqd:
            return self._fail_all(self._take_waiting(), no_nsqd)
        return []

    def no_nsqd(self) -> NoNsqd | None:
        """Return the error if each nsqd was tried and none ever connected: the addresses may be wrong.

        After a first connection, publishes wait for an nsqd that is away.
        """
        if self._was_connected or any(writer.failure is None for writer in self.writers.values()):
            return None
        return self._no_nsqd_error()

    def still_open(self, count: int) -> TimedOut:
        """Return the error of a `BaseProducer.flush` whose time is over while `count` publishes are not."""
        why = "" if self._open else f"; {self._no_nsqd_error()}"
        return TimedOut(
            ", ".join(list(self.writers)), f"{count} publish{'es are' if count > 1 else ' is'} open{why}"
        )

    def not_connected(self, timeout_s: float) -> NoNsqd:
        """Return the error of a `BaseProducer.ping` whose time is over."""
        return self._no_nsqd_error(f"no nsqd could be connected for {timeout_s:g}s: ")

    def pause_s(self, writer: ConnectionWriter, now_s: float) -> float:
        """Return the time until a writer may be retried.

        While no nsqd is connected, that is at most `MOST_LONELY_PAUSE_S` after the last failure: a standby refuses
        publishes for as long as its primary lives, and must be tried soon after that.
        """
        pause_s = writer.pause.wait_s(now_s)
        if self._open:
            return pause_s
        return min(pause_s, max(0.0, writer.failed_s + MOST_LONELY_PAUSE_S - now_s))

    # ---- what is to be sent

    @property
    def has_room(self) -> bool:
        """True if `submit` may be called."""
        return len(self.waiting) < self._limits.publishes and self.waiting_bytes < self._limits.size_bytes

    @property
    def is_half_empty(self) -> bool:
        """True if callers that wait for room should be woken: sending hundreds at a time costs less."""
        return (
            2 * len(self.waiting) <= self._limits.publishes
            and 2 * self.waiting_bytes <= self._limits.size_bytes
        )

    def submit(self, publish: PendingPublish) -> None:
        """Add a publish."""
        self.waiting.append(publish)
        self.waiting_bytes += publish.size_bytes
        self.unfinished += 1

    def submit_all(self, publishes: Collection[PendingPublish], size_bytes: int) -> None:
        """Add publishes of `size_bytes` together: 0.5 us a publish less than `submit`."""
        self.waiting.extend(publishes)
        self.waiting_bytes += size_bytes
        self.unfinished += len(publishes)

    def next_to_send(self, now_s: float) -> SendOrder | None:
        """Return the next publishes that a writer has room for. Call it after each event until it returns None."""
        if len(self._open) > 1:
            most = RUN
        else:
            most = self._limits.publishes
        for _ in self._open:
            turn = (self._turn + 1) % len(self._open)
            self._turn = turn
            writer = self._open[turn]
            before_bytes = writer.size_bytes
            publishes = writer.take(self.waiting, most, now_s)
            if publishes:
                self.waiting_bytes -= writer.size_bytes - before_bytes
                return SendOrder(writer, publishes)
        return None

    # ---- what became of it

    def answered_ok(self, writer: ConnectionWriter, count: int, now_s: float) -> list[PendingPublish]:
        """Note `count` answers OK. Return the publishes that are done now."""
        writer.pause.reset()
        done = writer.take_done(count, now_s)
        self.unfinished -= len(done)
        return done

    def answered_error(
        self, writer: ConnectionWriter, code: str, text: str, now_s: float
    ) -> list[PendingPublish]:
        """Note a refusal. Return the publish if that is final. Nothing more is sent over this connection."""
        verdict = verdict_on(code, text)
        refusal = PublishFailed(writer.address, code, text)
        self._take_out(writer)
        publish = writer.take_refused(now_s)
        # An error that answers nothing may follow each connection.
        if verdict.is_for_another or (publish is None and not writer.has_refused):
            self._leave_alone(writer, now_s)
        writer.has_refused = True
        writer.is_rest_unread = verdict.is_rest_unread
        if publish is None:
            return []
        if verdict is Verdict.STANDBY and len(self.writers) > 1:
            writer.failure = refusal
        else:
            publish.refusals += 1
        if verdict.is_for_another and publish.refusals < len(self.writers):
            self._put_back([publish])
            return []
        return [self._fail(publish, refusal)]

    def closed(self, writer: ConnectionWriter, reason: str, now_s: float) -> list[PendingPublish]:
        """Note a lost connection. Return the publishes that fail; the others wait for another one."""
        self._take_out(writer)
        lost = ConnectionLost(writer.address, reason)
        if not writer.has_refused:
            writer.failure = lost
            self._leave_alone(writer, now_s)
        failed = []
        retried = []
        for publish in writer.take_unanswered():
            if self._may_be_resent(publish, writer):
                retried.append(publish)
            else:
                failed.append(self._fail(publish, lost))
        self._put_back(retried)
        self._forget_unneeded()
        return failed

    def expire(self, now_s: float) -> tuple[list[PendingPublish], list[ConnectionWriter]]:
        """Return the publishes whose time is over, which failed, and the writers whose nsqd owes an answer for too long.

        Call it a few times a second, and close those writers.
        """
        overdue = []
        if any(publish.deadline_s <= now_s for publish in self.waiting):
            waiting = self._take_waiting()
            self._put_back([publish for publish in waiting if publish.deadline_s > now_s])
            late = [publish for publish in waiting if publish.deadline_s <= now_s]
            overdue += [self._fail(publish, self.not_taken(publish)) for publish in late]
        for writer in self.writers.values():
            late = [
                publish
                for publish in writer.unanswered
                if publish.deadline_s <= now_s and publish.state is SENT
            ]
            overdue += self._fail_all(late, TimedOut(writer.address, "no answer to a publish in time"))
        return overdue, [
            writer for writer in self.writers.values() if writer.is_hung(now_s, self._answer_timeout_s)
        ]

    def give_up(self, error: NsqClientError) -> list[PendingPublish]:
        """Fail everything that is not over: the producer closes."""
        left = self._take_waiting()
        for writer in self.writers.values():
            left += writer.take_unanswered()
        return self._fail_all(left, error)

    def not_taken(self, publish: PendingPublish) -> NsqClientError:
        """Return why no nsqd took it in time. NoNsqd means that it is stored nowhere, TimedOut does not."""
        if publish.losses:
            return TimedOut(
                ", ".join(self.writers), "a connection was lost while an answer was due, and no other came"
            )
        if self._open:
            return TimedOut(
                ", ".join(writer.address for writer in self._open), "no room for a publish in time"
            )
        return self._no_nsqd_error()

    # ----

    def _take_waiting(self) -> list[PendingPublish]:
        taken = list(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        return taken

    def _put_back(self, publishes: Sequence[PendingPublish]) -> None:
        """Put publishes before all others, in their order."""
        self.waiting.extendleft(reversed(publishes))
        self.waiting_bytes += sum(publish.size_bytes for publish in publishes)

    def _take_out(self, writer: ConnectionWriter) -> None:
        if writer.is_open:
            writer.is_open = False
            self._open.remove(writer)
            self.is_connected = bool(self._open)

    def _leave_alone(self, writer: ConnectionWriter, now_s: float) -> None:
        writer.pause.failed(now_s)
        writer.failed_s = now_s

    def _may_be_resent(self, publish: PendingPublish, writer: ConnectionWriter) -> bool:
        if writer.is_rest_unread:
            return True
        publish.losses += 1
        return self._retry_unknown and publish.losses < MAX_LOSSES

    def _forget_unneeded(self) -> list[ConnectionWriter]:
        unneeded = [writer for writer in self.writers.values() if not writer.is_needed]
        forgotten = [writer for writer in unneeded if not writer.is_open and not writer.unanswered]
        for writer in forgotten:
            del self.writers[writer.address]
        return forgotten

    def _fail(self, publish: PendingPublish, error: NsqClientError) -> PendingPublish:
        publish.fail(error)
        self.unfinished -= 1
        return publish

    def _fail_all(self, publishes: list[PendingPublish], error: NsqClientError) -> list[PendingPublish]:
        return [self._fail(publish, error) for publish in publishes]

    def _no_nsqd_error(self, head: str = "") -> NoNsqd:
        """Return the error with the last failure of each nsqd or, if none is known, of each nsqlookupd."""
        writers = list(self.writers.values())
        failures = [writer.failure for writer in writers if writer.failure is not None]
        reasons = [str(writer.failure or f"{writer.address}: not connected yet") for writer in writers]
        if not writers:
            unasked = [f"nsqlookupd {failure}" for failure in list(self.lookup_failures.values())]
            head = f"{head}no nsqd is known: "
            reasons = unasked or ["no nsqlookupd names one"]
        return NoNsqd(head + "; ".join(reasons), failures)
