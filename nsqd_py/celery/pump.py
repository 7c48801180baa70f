"""The thread that receives the messages of a connection of kombu."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

from kombu.log import get_logger

from nsqd_py.celery.deliveries import Deliveries, Source
from nsqd_py.client.blocking.backend import THREADS, Latch
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.message import Message

CLOSE_S = 2.0
LONGEST_WAIT_S = 10.0

logger = get_logger("nsqd_py.celery")


class PumpFailed(NsqClientError):
    """The thread that receives messages has ended with an error. Celery then connects again."""


class Pump:
    """A thread that does the input and output of all consumers of a connection, whatever the worker does meanwhile.

    arrived   the messages that came, with their sources
    news      is woken when there are any
    failure   the error that has ended the thread
    """

    def __init__(self) -> None:
        self._backend = THREADS
        self.arrived: deque[tuple[Source, Message]] = deque()
        self.news = self._backend.make_poller()
        self.failure: Exception | None = None
        self._poller = self._backend.make_poller()
        self._added: deque[Source] = deque()
        self._sources: list[Source] = []
        self._pid = os.getpid()
        self._is_started = False
        self._is_stopping = False
        self._abandoned: Deliveries | None = None  # those of a connection that was dropped
        self._stopped = Latch(self._backend.make_lock)

    def add(self, source: Source) -> None:
        """Receive messages of a source too."""
        self._added.append(source)
        if self._is_started:
            self._poller.wake()
            return
        self._is_started = True
        self._backend.spawn("nsqd-py celery", self._run)

    @property
    def is_own_process(self) -> bool:
        """False in a fork of the process that has made it: the thread is not there."""
        return os.getpid() == self._pid

    def begin_to_stop(self, timeout_s: float) -> None:
        """End once all messages are answered, or after the time-out. Does not wait."""
        self._is_stopping = True
        for source in [*self._added, *self._sources]:
            source.consumer.begin_to_stop(timeout_s)
        if self._is_started:
            self._poller.wake()
        else:
            self._close()

    def abandon(self, deliveries: Deliveries) -> None:
        """Let the thread give these back, and end.

        The garbage collector calls this in any thread, perhaps in the middle of a turn: it only leaves a note.
        """
        self._abandoned = deliveries
        if self._is_started:
            self._poller.wake()
        else:
            self._is_stopping = True
            self._close()

    def stop(self, timeout_s: float) -> None:
        """Wait until all answers are sent and the thread has ended, or for the time-out."""
        self.begin_to_stop(timeout_s)
        if self._is_started:
            self._stopped.wait(timeout_s + 1.0)

    def _close(self) -> None:
        self._poller.close()
        if self._is_stopping:  # otherwise the transport must see the failure
            self.news.close()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:
            self.failure = error
            logger.exception("the thread that receives messages has ended: %r", error)
        finally:
            self.news.wake()
            self._close()
            self._stopped.set()

    def _turn(self) -> bool:
        """Step all consumers, and wait. Return False at the end."""
        while self._added:
            self._sources.append(self._added.popleft())
        abandoned, self._abandoned = self._abandoned, None
        if abandoned is not None:
            self.begin_to_stop(CLOSE_S)
            abandoned.give_back_all()
        self._sources = [source for source in self._sources if self._step(source)]
        if self._is_stopping:
            self._return_arrived()
        if self._is_stopping and not self._sources and not self._added:
            return False
        watched = [each for source in self._sources for each in source.consumer.watched]
        wait_s = min([LONGEST_WAIT_S, *(source.consumer.wait_s for source in self._sources)])
        self._poller.wait(watched, wait_s)
        return True

    def _return_arrived(self) -> None:
        """Let nsqd deliver again what nothing will sort.

        Until nsqd has read that a consumer leaves, it may deliver a message to it again that was just given back. A message in
        flight when the connection closes would wait for its time-out.
        """
        with suppress(IndexError):  # it is empty, or the transport sorts the last one
            while True:
                _, message = self.arrived.popleft()
                message.requeue(0, backoff=False)

    def _step(self, source: Source) -> bool:
        """Return False once the consumer has ended."""
        batches = source.consumer.step(0)
        if batches is None:
            return False
        for batch in batches:
            if source.is_cancelled:
                batch.requeue(0)
            else:
                self.arrived.extend((source, message) for message in batch.messages())
        if batches:
            self.news.wake()
        return True
