"""to-nsq, from the first byte of its input to the last acknowledgement."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import inf
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from nsq_tools.clients import STOP_TIMEOUT_S
from nsq_tools.to_nsq.destination import PublishTarget
from nsq_tools.to_nsq.options import ToNsqOptions
from nsq_tools.to_nsq.pace import Pace
from nsq_tools.to_nsq.records import RecordBatch, RecordReader, RefusedRecord, parse_delimiter
from nsqd_py.client.tool_checks import check_name, check_nsqd_addresses, client_options, user_agent
from nsqd_py.runtime.command import is_terminal
from nsqd_py.runtime.logs.daemon_log import TEXT, Log
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.declaration import BadOptions, bad_options
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.settings.values import size_text

# With --rate, how long what was read is still published after a signal to stop.
_LAST_MESSAGES_S = 0.75
_READABLE = 1
STANDARD_INPUT = "-"
_STDIN = 0
_POLL_S = 0.1
# Log lines erase the line with the progress, whose cursor stays behind it.
_ERASE_LINE = "\r\x1b[K"
_REDRAW_S = 0.1


def run(options: ToNsqOptions, log: Log) -> int:
    """Publish all files, or until a signal; return the exit status. Raises ToolError.

    Returns when nsqd has acknowledged or refused everything that was read.
    """
    if sys.stdin is None and STANDARD_INPUT in options.files:
        raise ToolError("standard input is closed")
    is_typed = STANDARD_INPUT in options.files and is_terminal(sys.stdin)
    shows_progress = is_terminal(sys.stderr) and not is_typed and options.log_format == TEXT
    if shows_progress:
        log = Log(_ERASE_LINE + options.log_prefix, options.log_level)
    with StopSignals() as stop:
        publisher = InputPublisher(options, stop, log)
        try:
            with _progress(publisher) if shows_progress else nullcontext():
                publisher.publish_all()
        finally:
            publisher.close()
    return publisher.status


@contextmanager
def _progress(publisher: InputPublisher) -> Iterator[None]:
    """Show on standard error how much is read, in one line that is erased at the end."""
    from rich import progress  # 30 ms
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task("", total=publisher.input_bytes or None)

        def redraw() -> None:
            while True:
                bar.update(task, completed=publisher.read_bytes, refresh=True)
                gevent.sleep(_REDRAW_S)

        redrawing = gevent.spawn(redraw)
        try:
            yield
        finally:
            redrawing.kill()


class InputPublisher:
    """Publishes the records of all files to every nsqd."""

    def __init__(self, options: ToNsqOptions, stop: StopSignals, log: Log) -> None:
        self._log = log
        self._stop = stop
        self._began_s = monotonic()
        self.read_bytes = 0
        self._left_bytes = 0  # read, and not sent to any nsqd
        self._refused_bytes: Counter[str] = Counter()  # by the address of the nsqd
        self._not_taken = 0
        self._delimiter = parse_delimiter(options.delimiter)
        self._unit = "line" if self._delimiter == b"\n" else "record"
        self._files = options.files
        self._pace = Pace(options.rate)
        self._ends_at_s = inf
        self._wake = Event()
        self._stopper = gevent.spawn(self._at_stop)
        if options.rate > 0:
            log.info("Throttling messages rate to max:%d/second", options.rate)
        client = client_options(options.producer_opt, "producer-opt", user_agent=user_agent("to_nsq"))
        retry_timeout_s = options.retry_timeout_ns / SECOND_NS
        self._destinations = [
            PublishTarget(address, options.topic, client, retry_timeout_s, log, self._refused)
            for address in dict.fromkeys(options.nsqd_tcp_address)
        ]

    @property
    def status(self) -> int:
        """Return the exit status of the process."""
        return FAILED if self._not_taken else DONE

    @property
    def input_bytes(self) -> int:
        """The size of all files; 0 if one of them is a pipe, which has none."""
        sizes = []
        for name in self._files:
            file: str | int = name
            if name == STANDARD_INPUT:
                file = sys.stdin.fileno()
            sizes.append(os.stat(file).st_size)
        if all(sizes):
            return sum(sizes)
        return 0

    def publish_all(self) -> None:
        """Publish until the end of all files, or until a signal. Raises ToolError if an nsqd is given up."""
        gevent.joinall([gevent.spawn(destination.connect, self._stop) for destination in self._destinations])
        self._check()
        if self._stop.is_asked and any(destination.is_waited_for for destination in self._destinations):
            raise ToolError("stopped before nsqd could be reached: nothing is published")
        try:
            for batch in self._batches():
                self._publish(batch)
        finally:
            self._finish()

    def close(self) -> None:
        self._stopper.kill()
        for destination in self._destinations:
            destination.close()

    def _batches(self) -> Iterator[RecordBatch]:
        for name in self._files:
            if self._stop.is_asked:
                return
            source = "" if name == STANDARD_INPUT else name
            try:
                with _opened(name) as descriptor:
                    yield from self._batches_of(RecordReader(self._delimiter, source), descriptor)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ToolError(f"cannot read {source or 'standard input'}: {reason}") from error

    def _batches_of(self, reader: RecordReader, descriptor: int) -> Iterator[RecordBatch]:
        """Raises OSError, and ValueError for a record that is too large."""
        for chunk in self._chunks(descriptor):
            self.read_bytes += len(chunk)
            batch = reader.feed(chunk)
            self._pace.has_read(len(chunk), len(batch.records))
            yield batch
        if not self._stop.is_asked:
            yield reader.finish()
        elif reader.unended_bytes:
            self._not_taken += 1
            self._left_bytes += reader.unended_bytes
            name = self._name(reader.lines + 1, reader.source)
            self._log.warning("%s is not published, because it is incomplete", name)

    def _name(self, line: int, source: str) -> str:
        """Return what people call a record: `line 5`, or `line 5 of orders.jsonl`."""
        return f"{self._unit} {line}" + (f" of {source}" if source else "")

    def _chunks(self, descriptor: int) -> Iterator[bytes]:
        """Yield data as soon as it is available, until its end or a stop signal, without blocking the event loop.

        Raises OSError.
        """
        is_begun = False
        is_pipe = descriptor != _STDIN and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        ready: Any = gevent.get_hub().loop.io(descriptor, _READABLE)  # a file is always ready
        try:
            while not self._stop.wait(self._pace.wait_s(monotonic())):
                self._wake.clear()
                ready.start(self._wake.set)
                self._wake.wait()
                ready.stop()
                if self._stop.is_asked:
                    return
                chunk = os.read(descriptor, self._pace.chunk_bytes)
                if chunk:
                    is_begun = True
                    yield chunk
                elif is_begun or not is_pipe:
                    return
                else:  # no program has opened it for writing yet
                    self._stop.wait(_POLL_S)
        finally:
            ready.close()

    def _at_stop(self) -> None:
        self._stop.wait()
        self._ends_at_s = monotonic() + _LAST_MESSAGES_S
        self._log.info("stopping: what was read is still published; a second signal ends it")
        for destination in self._destinations:
            destination.retry_timeout_s = min(destination.retry_timeout_s, STOP_TIMEOUT_S)
        self._wake.set()

    def _publish(self, batch: RecordBatch) -> None:
        for part in self._paced(batch):
            for destination in self._destinations:
                destination.send(part)
            self._check()

    def _paced(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield parts of the batch at the speed of --rate, for a short time also after a stop signal."""
        pace = self._pace
        count = len(batch.records)
        start = 0
        while start < count:
            wait_s = pace.wait_s(monotonic())
            if wait_s:
                gevent.sleep(wait_s)
                if monotonic() > self._ends_at_s:
                    self._leave(batch.part(start, count))
                    return
            part = batch.part(start, start + pace.step(count - start))
            pace.has_sent(len(part.records), monotonic())
            yield part
            start += len(part.records)

    def _leave(self, rest: RecordBatch) -> None:
        """Report records that --rate leaves no time for after a signal to stop."""
        self._not_taken += len(rest.records)
        self._left_bytes += rest.size_bytes
        self._log.warning(
            "%s and those after it are not published: %d were read, and --rate leaves no time for them",
            self._name(rest.lines[0], rest.source),
            len(rest.records),
        )

    def _check(self) -> None:
        failures = [
            destination.failure for destination in self._destinations if destination.failure is not None
        ]
        if failures:
            raise ToolError("; ".join(failures))

    def _finish(self) -> None:
        for destination in self._destinations:
            destination.finish()
        last = min(self._destinations, key=lambda destination: destination.acknowledged)
        count = last.acknowledged
        size_bytes = self.read_bytes - self._left_bytes - self._refused_bytes[last.address]
        took_s = monotonic() - self._began_s
        self._log.info(
            "published %s to %s: %s in %.2f s%s",
            f"{count:,} {'message' if count == 1 else 'messages'}",
            ", ".join(destination.address for destination in self._destinations),
            size_text(size_bytes),
            took_s,
            f" ({count / took_s:,.0f}/s)" if count > 1 else "",
        )
        self._check()

    def _refused(self, address: str, refusal: RefusedRecord) -> None:
        self._not_taken += 1
        self._refused_bytes[address] += refusal.size_bytes
        name = self._name(refusal.line, refusal.source)
        self._log.error(
            "%s (%d bytes) is not published to %s: %s", name, refusal.size_bytes, address, refusal.reason
        )


@contextmanager
def _opened(name: str) -> Iterator[int]:
    """Yield the descriptor of a file. A pipe without a writer does not block. Raises OSError."""
    if name == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check(options: ToNsqOptions) -> None:
    """Raise BadOptions if the options cannot be used, and ToolError if a file cannot be read."""
    if not options.topic:
        raise BadOptions("--topic required")
    check_name(options.topic, "topic")
    with bad_options(""):
        parse_delimiter(options.delimiter)
    if not options.nsqd_tcp_address:
        raise BadOptions("--nsqd-tcp-address required")
    check_nsqd_addresses(options.nsqd_tcp_address)
    for name in options.files:
        _check_file(name)
    client_options(options.producer_opt, "producer-opt")


def _check_file(name: str) -> None:
    if name == STANDARD_INPUT:
        return
    code = 0
    if not os.path.exists(name):
        code = errno.ENOENT
    elif os.path.isdir(name):
        code = errno.EISDIR
    elif not os.access(name, os.R_OK):
        code = errno.EACCES
    if code:
        raise ToolError(f"cannot read {name}: {os.strerror(code)}")
