"""Consuming, writing, finishing: a message is finished only after it was written."""

from __future__ import annotations

import random

import gevent

from nsq_tools.clients import make_consumer
from nsq_tools.tail.options import TailOptions
from nsq_tools.tail.output import LAST_WRITES_S, Output, open_output
from nsq_tools.tail.rendering import Renderer, check_shown
from nsqd_py.client import MessageBatch
from nsqd_py.client.gevent import Consumer
from nsqd_py.client.tool_checks import check_name, check_sources, check_topics, client_options
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import StopSignals
from nsqd_py.runtime.threads import GreenletLock
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import DONE, ToolError

# The part of LAST_WRITES_S for requeueing unwritten messages.
_FOR_ANSWERS_S = 0.5
# Interval of the check for a closed output while there are no messages.
_POLL_S = 1.0


def check(options: TailOptions) -> None:
    """Raise BadOptions if the options cannot be used."""
    if options.since_ns or options.last:
        _check_log_reading(options)
    elif options.nsqd_http_address:
        raise BadOptions("--nsqd-http-address is for --since and --last; use --nsqd-tcp-address")
    if not options.nsqd_http_address:
        check_sources(options)
    check_topics(options.topic)
    if options.channel:
        check_name(options.channel, "channel")
    client_options(options.consumer_opt, "consumer-opt")
    check_shown(options)


def _check_log_reading(options: TailOptions) -> None:
    if options.since_ns and options.last:
        raise BadOptions("use --since or --last not both")
    if options.channel:
        raise BadOptions("--since and --last read without a channel: leave out --channel")
    if any(topic.endswith("#ephemeral") for topic in options.topic):
        raise BadOptions("--since and --last read the log of a topic, and an ephemeral topic has none")
    if options.nsqd_http_address and options.lookupd_http_address:
        raise BadOptions("use --nsqd-http-address or --lookupd-http-address not both")


def run(options: TailOptions, log: Log) -> int:
    """Show messages until `-n` are shown, a signal comes or the output is closed. Raises ToolError, BrokenPipeError."""
    output = open_output()
    with StopSignals() as stop:
        tail = Tail(options, output, stop, log)
        tail.start()
        try:
            tail.wait()
        finally:
            tail.stop()
    return DONE


class Tail:
    """The consumers of all topics. They write one batch at a time."""

    def __init__(self, options: TailOptions, output: Output, stop: StopSignals, log: Log) -> None:
        self._output = output
        self._stop = stop
        self._log = log
        self._renderer = Renderer(options)
        self._turns = GreenletLock()
        self._unwritten: set[MessageBatch] = set()  # one of them is being written, the others wait
        self._failure: OSError | None = None
        channel = options.channel or f"tail{random.randrange(999_999):06d}#ephemeral"
        self._consumers = [self._consumer(topic, channel, options) for topic in dict.fromkeys(options.topic)]

    def _consumer(self, topic: str, channel: str, options: TailOptions) -> Consumer:
        self._log.info("Adding consumer for topic: %s", topic)
        settings: dict[str, object] = {}
        if 0 < options.n < options.max_in_flight and not options.grep:
            settings["max_in_flight"] = options.n  # no more messages are in flight than are shown
        return make_consumer(
            options, "nsq_tail", topic, self._log, settings, channel=channel, batch_handler=self._show
        )

    # --- start and stop

    def start(self) -> None:
        for consumer in self._consumers:
            consumer.start()

    def wait(self) -> None:
        """Wait for a stop signal or the last message. Raises ToolError or BrokenPipeError if the output has failed."""
        while not self._stop.wait(_POLL_S):
            self._output.check_reader()
        if isinstance(self._failure, BrokenPipeError):
            raise self._failure
        if self._failure is not None:
            raise ToolError(f"cannot write to standard output: {self._failure.strerror}")

    def stop(self) -> None:
        """Write the messages that have arrived, as far as the reader takes them; requeue the others."""
        stoppers = [gevent.spawn(consumer.stop, LAST_WRITES_S) for consumer in self._consumers]
        gevent.joinall(stoppers, LAST_WRITES_S - _FOR_ANSWERS_S)
        for batch in self._unwritten:
            batch.requeue(0)
        gevent.joinall(stoppers)
        if self._renderer.not_json_count:
            self._log.warning(
                "%d bodies were not JSON: no values were picked from them", self._renderer.not_json_count
            )

    # --- messages

    def _show(self, batch: MessageBatch) -> None:
        """Handle a batch: write it and answer its messages."""
        self._unwritten.add(batch)
        with self._turns:
            seen = self._shown(batch) if batch.is_live else 0
        self._unwritten.remove(batch)
        _answer(batch, seen)

    def _shown(self, batch: MessageBatch) -> int:
        """Write the messages to show. Return the number of messages to finish."""
        if self._failure is not None:
            return 0
        data, seen = self._renderer.show(batch)
        try:
            self._output.write(data)
        except OSError as error:
            self._failure = error
            seen = 0
        if self._failure is not None or self._renderer.is_over:
            self._stop.stop()
        return seen


def _answer(batch: MessageBatch, seen: int) -> None:
    """Finish the first `seen` messages and requeue the others."""
    if batch.is_answered:  # requeued at the stop, while it was being written
        return
    if seen == len(batch):
        batch.finish()
        return
    if seen:
        batch.finish_some(batch.ids[:seen])
    batch.requeue(0)
