"""Consumes, shows, and finishes what was shown: in this order, and nothing else is finished."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence

import gevent
from gevent.lock import RLock
from gevent.threadpool import ThreadPool

from nsq_tools.cli import DONE, ToolError, is_terminal, wants_colour
from nsq_tools.options import client_options, user_agent
from nsq_tools.tail.json_text import parse_path
from nsq_tools.tail.options import TailOptions, channel_of
from nsq_tools.tail.rendering import Renderer, compile_search
from nsq_tools.tail.template import Template
from nsqd_py.client import Consumer, MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals


class Allowance:
    """Counts down from `-n`; 0 or less is no limit."""

    def __init__(self, count: int) -> None:
        self._left = count if count > 0 else None

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def take(self, matching: Sequence[int], count: int) -> tuple[Sequence[int], int]:
        """Of a batch of `count` messages, those that are to be shown, and how many have been seen with them.

        What comes behind the last one that is shown has not been seen: it is for others.
        """
        if self._left is None:
            return matching, count
        if len(matching) < self._left:
            self._left -= len(matching)
            return matching, count
        shown = matching[: self._left]
        self._left = 0
        return shown, shown[-1] + 1 if shown else 0


_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Output:
    """A descriptor to write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A pool of its own with one thread: resolving names must not wait behind a pipe that nobody reads.
        self._writer = ThreadPool(1)
        self._poll = select.poll()
        self._poll.register(descriptor, 0)

    def write(self, data: bytes) -> None:
        """Returns when all of it is written; other greenlets run meanwhile. Raises OSError."""
        if data:
            self._writer.apply(_write_all, (self._descriptor, data))

    def is_reader_gone(self) -> bool:
        """Whether nobody can read any more what is written; known without writing."""
        return any(event & _GONE for _, event in self._poll.poll(0))


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # somebody who shares the descriptor has made it so
            select.select((), (descriptor,), ())


# How long messages that have come may still be written when it is time to stop.
_LAST_WRITES_S = 2.0
_FOR_ANSWERS_S = 0.5  # of it: to give back what was not written
# How often to look whether anybody still reads, while there is nothing to write.
_LOOK_S = 1.0


def run(options: TailOptions, log: Log) -> int:
    """Until `-n` messages are shown, a signal comes, or nobody reads any more. Raises ToolError, BrokenPipeError."""
    if sys.stdout is None:
        raise ToolError("standard output is closed")
    with StopSignals() as stop:
        tail = Tail(options, Output(sys.stdout.fileno()), stop, log)
        tail.start()
        try:
            tail.wait()
        finally:
            tail.stop()
    return DONE


class Tail:
    """The consumers of all topics, which write in turn."""

    def __init__(self, options: TailOptions, output: Output, stop: StopSignals, log: Log) -> None:
        self._output = output
        self._stop = stop
        self._log = log
        self._renderer = renderer_of(options)
        self._allowance = Allowance(options.n)
        self._turns = RLock()
        self._unwritten: set[MessageBatch] = set()  # one of them is being written, the others wait for their turn
        self._failure: OSError | None = None
        channel = channel_of(options)
        self._consumers = [self._consumer(topic, channel, options) for topic in dict.fromkeys(options.topic)]

    def _consumer(self, topic: str, channel: str, options: TailOptions) -> Consumer:
        self._log.info("Adding consumer for topic: %s", topic)
        return Consumer(
            topic,
            channel,
            batch_handler=self._show,
            nsqd_tcp_addresses=options.nsqd_tcp_address,
            lookupd_http_addresses=options.lookupd_http_address,
            options=consumer_options(options),
            log=self._log,
        )

    # --- its life

    def start(self) -> None:
        for consumer in self._consumers:
            consumer.start()

    def wait(self) -> None:
        """Returns when it is time to stop. Raises ToolError or BrokenPipeError when nothing can be written any more."""
        while not self._stop.wait(_LOOK_S):
            if self._output.is_reader_gone():
                raise BrokenPipeError
        if isinstance(self._failure, BrokenPipeError):
            raise self._failure
        if self._failure is not None:
            raise ToolError(f"cannot write to standard output: {self._failure.strerror}")

    def stop(self) -> None:
        """Write what has come, as far as it is taken; give back the rest."""
        stoppers = [gevent.spawn(consumer.stop, _LAST_WRITES_S) for consumer in self._consumers]
        gevent.joinall(stoppers, _LAST_WRITES_S - _FOR_ANSWERS_S)
        for batch in self._unwritten:
            batch.requeue(0)
        gevent.joinall(stoppers)
        if self._renderer.not_json_count:
            self._log.warning("%d bodies were not JSON: nothing was picked from them", self._renderer.not_json_count)

    # --- messages

    def _show(self, batch: MessageBatch) -> None:
        """A batch handler: whole messages, one batch after the other."""
        self._unwritten.add(batch)
        with self._turns:
            seen = self._shown(batch) if batch.is_live else 0
        self._unwritten.remove(batch)
        answer(batch, seen)

    def _shown(self, batch: MessageBatch) -> int:
        """Show what is to be shown; how many messages of the batch are done with."""
        if self._failure is not None:
            return 0
        renderer = self._renderer
        shown, seen = self._allowance.take(renderer.matching(batch.bodies), len(batch))
        try:
            self._output.write(renderer.render(batch, shown))
        except OSError as error:
            self._failure = error
            seen = 0
        if self._failure is not None or self._allowance.is_over:
            self._stop.stop()
        return seen


def answer(batch: MessageBatch, seen: int) -> None:
    """Finish the first `seen` messages; the others are given back, for whoever comes next."""
    if batch.is_answered:  # given back while it was written, as it was time to stop
        return
    if seen == len(batch):
        batch.finish()
        return
    if seen:
        batch.finish_some(batch.ids[:seen])
    batch.requeue(0)


def consumer_options(options: TailOptions) -> ClientOptions:
    """With no more messages in flight than will be shown, where all are."""
    in_flight = options.max_in_flight
    if options.n > 0 and not options.grep:
        in_flight = min(options.n, in_flight)
    return client_options(
        options.consumer_opt, "consumer-opt", max_in_flight=in_flight, user_agent=user_agent("nsq_tail")
    )


def renderer_of(options: TailOptions) -> Renderer:
    """As the settings say, and standard output is."""
    return Renderer(
        search=compile_search(options.grep) if options.grep else None,
        picks=[parse_path(path) for path in options.pick],
        as_json=options.json,
        template=Template(options.format) if options.format else None,
        print_topic=options.print_topic,
        is_terminal=is_terminal(sys.stdout),
        has_colour=wants_colour(),
    )
