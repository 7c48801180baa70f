"""Assigns publishes to nsqds, and determines their results: the producer without its sockets.

Its methods report events (`submit`, `opened`, `answered_ok`, `closed`, ...), with the time in seconds of a monotonic
clock. They return what to send (`next_to_send`), and the publishes that are over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed, TimedOut
from nsqd_py.client.publishing.publish import SENT, PendingPublish, verdict_on
from nsqd_py.client.publishing.writer import ConnectionWriter, WaitingRoom, WindowLimits
from nsqd_py.runtime.outages import Backoff

# A publish fails after this many connections were lost while its answer was due.
MAX_LOSSES = 5
# How many publishes go to one of several nsqds before the next has its turn.
RUN = 64


# The longest pause before an nsqd is tried again, while no other one is connected.
MOST_LONELY_PAUSE_S = 1.0


class SendOrder(NamedTuple):
    """Publishes to send over one connection, in this order."""

    writer: ConnectionWriter
    publishes: list[PendingPublish]


class Overdue(NamedTuple):
    """Publishes that failed because their time is over, and writers whose nsqd owes an answer for too long."""

    publishes: list[PendingPublish]
    hung: list[ConnectionWriter]


class Dispatcher:
    """Each publish is waiting, in the window of one writer, or over.

    waiting       publishes to be sent; check that it has room before `submit`
    unfinished    how many are not over
    lookup_failures  why each nsqlookupd did not answer, by its address
    is_connected  True if there is an nsqd to send to
    """

    def __init__(self, limits: WindowLimits, *, retry_unknown: bool, answer_timeout_s: float) -> None:
        """The limits apply to each window, and to the publishes that wait.

        With `retry_unknown`, a publish whose connection was lost before its answer is sent again, and may be stored
        twice. Without it, the publish fails with ConnectionLost.
        """
        self.writers: dict[str, ConnectionWriter] = {}
        self.lookup_failures: dict[str, NsqClientError] = {}
        self.waiting = WaitingRoom(limits)
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
            writer = self.writers[address] = ConnectionWriter(address, self._limits, pause)
        writer.is_wanted = True
        return writer

    def keep_writers(self, addresses: Iterable[str]) -> list[ConnectionWriter]:
        """Drop the other nsqds; one that is connected goes when it disconnects.

        Return the writers that were dropped.
        """
        wanted = set(addresses)
        for writer in self.writers.values():
            writer.is_wanted = writer.address in wanted
        return self._forget_unwanted()

    def opened(self, writer: ConnectionWriter) -> None:
        """Note that an writer is connected."""
        self.is_connected = self._was_connected = True
        self._open.append(writer)
        writer.is_open = True
        writer.failure = None
        writer.has_refused = writer.is_rest_unread = False

    def not_opened(self, writer: ConnectionWriter, error: NsqClientError, now_s: float) -> list[PendingPublish]:
        """Note that connecting failed. Return the publishes that fail because there is no nsqd at all."""
        writer.failure = error
        self._leave_alone(writer, now_s)
        no_nsqd = self.no_nsqd()
        return self._fail_all(self.waiting.take_all(), no_nsqd) if no_nsqd else []

    def no_nsqd(self) -> NoNsqd | None:
        """Return the error if each nsqd was tried and none ever connected: the addresses may be wrong.

        After a first connection, publishes wait for an nsqd that is away.
        """
        if self._was_connected or any(writer.failure is None for writer in self.writers.values()):
            return None
        return self._no_nsqd_error()

    def still_open(self) -> TimedOut:
        """Return the error of a `flush` whose time is over."""
        why = "" if self._open else f"; {self._no_nsqd_error()}"
        return TimedOut(", ".join(list(self.writers)), f"{self.unfinished} publishes are open{why}")

    def not_connected(self, timeout_s: float) -> NoNsqd:
        """Return the error of a `ping` whose time is over."""
        return self._no_nsqd_error(f"no nsqd could be connected for {timeout_s:g}s: ")

    def pause_s(self, writer: ConnectionWriter, now_s: float) -> float:
        """Return the time until an writer may be tried again.

        While no nsqd is connected, that is at most `MOST_LONELY_PAUSE_S` after the last failure: a standby refuses
        publishes for as long as its primary lives, and must be tried soon after that.
        """
        pause_s = writer.pause.wait_s(now_s)
        return pause_s if self._open else min(pause_s, max(0.0, writer.failed_s + MOST_LONELY_PAUSE_S - now_s))

    # ---- what is to be sent

    def submit(self, publish: PendingPublish) -> None:
        """Add a publish."""
        self.waiting.add(publish)
        self.unfinished += 1

    def submit_all(self, publishes: Collection[PendingPublish], size_bytes: int) -> None:
        """Add publishes of `size_bytes` together: 0.5 us a publish less than `submit`."""
        self.waiting.add_all(publishes, size_bytes)
        self.unfinished += len(publishes)

    def next_to_send(self, now_s: float) -> SendOrder | None:
        """Return the next publishes that an writer has room for. Call it after each event until it returns None."""
        if not self.waiting or not self._open:
            return None
        if self.waiting.is_next_alone:
            return self._one_alone(now_s)
        most = RUN if len(self._open) > 1 else self._limits.publishes
        for _ in self._open:
            self._turn = turn = (self._turn + 1) % len(self._open)
            writer = self._open[turn]
            room = writer.room
            publishes = self.waiting.take(WindowLimits(min(room.publishes, most), room.size_bytes))
            if publishes:
                writer.add(publishes, now_s)
                return SendOrder(writer, publishes)
        return None

    def _one_alone(self, now_s: float) -> SendOrder | None:
        writer = next((writer for writer in self._open if not writer.unanswered), None)
        if writer is None:
            return None
        publishes = self.waiting.take_one()
        writer.add(publishes, now_s, is_alone=True)
        return SendOrder(writer, publishes)

    # ---- what became of it

    def answered_ok(self, writer: ConnectionWriter, count: int, now_s: float) -> list[PendingPublish]:
        """Note `count` answers OK. Return the publishes that are done now."""
        writer.pause.reset()
        done = writer.take_done(count, now_s)
        self.unfinished -= len(done)
        return done

    def answered_error(self, writer: ConnectionWriter, code: str, text: str, now_s: float) -> list[PendingPublish]:
        """Note a refusal. Return the publish if that is final. Nothing more is sent over this connection."""
        verdict = verdict_on(code, text)
        refusal = PublishFailed(writer.address, code, text)
        self._take_out(writer)
        writer.has_refused = True
        writer.is_rest_unread = verdict.is_rest_unread
        if verdict.is_for_another:
            self._leave_alone(writer, now_s)
        publish = writer.take_refused(now_s)
        if publish is None:
            return []
        if verdict.is_standby and len(self.writers) > 1:
            writer.failure = refusal
        else:
            publish.refusals += 1
        if verdict.is_for_another and publish.refusals < len(self.writers):
            self.waiting.put_back([publish])
            return []
        return [self._fail(publish, refusal)]

    def closed(self, writer: ConnectionWriter, reason: str, now_s: float) -> list[PendingPublish]:
        """Note a lost connection. Return the publishes that fail; the others wait for another one."""
        self._take_out(writer)
        lost = ConnectionLost(writer.address, reason)
        if not writer.has_refused:
            writer.failure = lost
            self._leave_alone(writer, now_s)
        failed, again = [], []
        for publish in writer.take_unanswered():
            if self._may_go_again(publish, writer):
                again.append(publish)
            else:
                failed.append(self._fail(publish, lost))
        self.waiting.put_back(again)
        self._forget_unwanted()
        return failed

    def expire(self, now_s: float) -> Overdue:
        """Return what is overdue. Call it a few times a second, and close writers that hang."""
        waiting = self.waiting.take_overdue(now_s)
        overdue = [self._fail(publish, self.not_taken(publish)) for publish in waiting]
        for writer in self.writers.values():
            late = [publish for publish in writer.unanswered if publish.deadline_s <= now_s and publish.state is SENT]
            overdue += self._fail_all(late, TimedOut(writer.address, "no answer to a publish in time"))
        hung = [writer for writer in self.writers.values() if writer.is_hung(now_s, self._answer_timeout_s)]
        return Overdue(overdue, hung)

    def give_up(self, error: NsqClientError) -> list[PendingPublish]:
        """Fail everything that is not over: the producer closes."""
        left = self.waiting.take_all()
        for writer in self.writers.values():
            left += writer.take_unanswered()
        return self._fail_all(left, error)

    def not_taken(self, publish: PendingPublish) -> NsqClientError:
        """Return why no nsqd took it in time. NoNsqd means that it is stored nowhere, TimedOut does not."""
        if publish.losses:
            return TimedOut(", ".join(self.writers), "a connection was lost while an answer was due, and no other came")
        if self._open:
            return TimedOut(", ".join(writer.address for writer in self._open), "no room for a publish in time")
        return self._no_nsqd_error()

    # ----

    def _take_out(self, writer: ConnectionWriter) -> None:
        if writer.is_open:
            writer.is_open = False
            self._open.remove(writer)
            self.is_connected = bool(self._open)

    def _leave_alone(self, writer: ConnectionWriter, now_s: float) -> None:
        writer.pause.failed(now_s)
        writer.failed_s = now_s

    def _may_go_again(self, publish: PendingPublish, writer: ConnectionWriter) -> bool:
        if writer.is_rest_unread:
            return True
        publish.losses += 1
        return self._retry_unknown and publish.losses < MAX_LOSSES

    def _forget_unwanted(self) -> list[ConnectionWriter]:
        unwanted = [writer for writer in self.writers.values() if not writer.is_wanted]
        forgotten = [writer for writer in unwanted if not writer.is_open and not writer.unanswered]
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
            head, reasons = f"{head}no nsqd is known: ", unasked or ["no nsqlookupd names one"]
        return NoNsqd(head + "; ".join(reasons), failures)
