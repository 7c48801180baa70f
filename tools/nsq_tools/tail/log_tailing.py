"""Reading the logs of topics over HTTP, without a channel: messages of the past, then new ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import partial
from time import monotonic

from gevent import ssl

from nsq_tools.tail.options import TailOptions
from nsq_tools.tail.output import LAST_WRITES_S, open_output
from nsq_tools.tail.rendering import Renderer
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.tool_checks import client_options
from nsqd_py.cluster.access import HttpAccess, servers_in
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, NO_LOG, FileHeader, batches_in
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http import Url
from nsqd_py.net.http.client import MAX_STATS_BYTES, HttpClient
from nsqd_py.net.peer_tls import PeerTls
from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.logs.hidden import hidden_url
from nsqd_py.runtime.logs.outages import OutageLog
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.durations import format_duration
from nsqd_py.settings.program import DONE, FAILED, ToolError

_POLL_S = 0.2
_LOOK_UP_S = 15.0
_NO_TOPIC = b"TOPIC_NOT_FOUND"
_EARLIEST = {"seq": "earliest"}
_NO_LOGS = "--since and --last need the log of an nsqd-py"
# By status.
_REMEDIES = {
    401: "it wants a token: give --consumer-opt=auth_secret,TOKEN, and https:// in its address or "
    "--consumer-opt=tls_root_ca_file,FILE"
}
_MOST_DIGITS = 20  # of a number in a header


class LogReader:
    """Reads the log of a topic on one nsqd, from a number on: nothing is missed, and nothing comes twice.

    damaged_bytes  bytes of the log that nsqd could not read; each part is logged
    """

    def __init__(self, client: Upstream, address: str, topic: str, log: Log) -> None:
        self._client = client
        self._address = address
        self._topic = topic
        self._log = log
        self.damaged_bytes = 0
        self._outage = OutageLog(log, monotonic)
        self._next = _EARLIEST
        self._next_seq = 0

    def begin(self, since_ns: int, last: int) -> None:
        """Begin `since_ns` or `last` messages back. Raises ToolError if this nsqd has no log to read."""
        self._next = {"time": f"-{format_duration(since_ns)}" if since_ns else "latest"}
        if last and (data := self._read()):
            with self._reading():
                self._next_seq = max(0, FileHeader.decode(data).first_seq - last)
            self._next = {"seq": str(self._next_seq)}

    def messages(self) -> Iterator[Messages]:
        """Yield the batches up to the end of the log. Raises ToolError."""
        while data := self._read():
            with self._reading():
                header = FileHeader.decode(data)
                for batch in batches_in(data, header.salt):
                    low = max(0, self._next_seq - batch.first_seq)
                    self._next_seq = max(self._next_seq, batch.end_seq)
                    if low < batch.count:
                        yield Messages.of_batch(
                            batch.part(low, batch.count) if low else batch, self._topic, self._address
                        )
            is_end = len(data) == FILE_HEADER_BYTES
            if is_end:
                self._next_seq = max(self._next_seq, header.first_seq)
            self._next = {"seq": str(self._next_seq)}
            if is_end:
                return

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise ToolError for what is not a log."""
        try:
            yield
        except NO_LOG as error:
            raise ToolError(f"{self._address}: the answer to /topic/read is not a log: {error}") from error

    def _read(self) -> bytes:
        """Return the next records, as a log file; b"" if nsqd does not answer, or has no such topic."""
        query = {"topic": self._topic, **self._next}
        try:
            with self._client.answer() as answer:
                data = self._client.get_bytes(answer, self._address, "/topic/read", query)
        except UpstreamError as error:
            self._note_refusal(error)
            self._outage.report("nsqd %s: topic %s: %s", self._address, self._topic, error.reason)
            return b""
        self._note_damage(answer.headers)
        self._outage.end("nsqd %s: answers again", self._address)
        return data

    def _note_refusal(self, error: UpstreamError) -> None:
        """Raise ToolError if this nsqd will never give a log."""
        if not 400 <= error.status < 500:
            return
        if _NO_TOPIC not in error.body:
            raise ToolError(
                f"{self._address}: {_REMEDIES.get(error.status, _NO_LOGS)}: {error.reason}"
            ) from error
        self._next = _EARLIEST  # all of a topic that is created later is new
        self._next_seq = 0

    def _note_damage(self, headers: Message) -> None:
        text = headers.get("X-Nsq-Damaged-Bytes", "0")  # earlier versions do not say it
        damaged_bytes = 0
        if text.isdecimal() and len(text) < _MOST_DIGITS:
            damaged_bytes = int(text)
        if damaged_bytes:
            self.damaged_bytes += damaged_bytes
            self._log.error(
                "nsqd %s: topic %s: %d damaged bytes of the log cannot be shown; the log of that nsqd says where they are",
                self._address,
                self._topic,
                damaged_bytes,
            )


def make_client(options: TailOptions, log: Log) -> Upstream:
    """Return the client of all requests, with the certificates and the `auth_secret` of --consumer-opt."""
    settings = client_options(options.consumer_opt, "consumer-opt")
    access = HttpAccess(
        settings, named=servers_in((*options.nsqd_http_address, *options.lookupd_http_address))
    )

    def headers_for(url: Url) -> dict[str, str]:
        if not url.is_secure:
            return {}
        return access.headers_for(join_address(url.host, url.port))

    files = [path for path in (settings.tls_root_ca_file, settings.tls_cert, settings.tls_key) if path]
    tls = PeerTls(partial(tls_context, settings, ssl.SSLContext), files, log.error)
    client = HttpClient.of(HttpClientOptions(), tls=tls, max_answer_bytes=MAX_STATS_BYTES)
    return Upstream(client, headers_for)


class LogTail:
    """The logs of all topics on all nsqds, in the order of their timestamps."""

    def __init__(self, options: TailOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._client = make_client(options, log)
        self._readers: dict[tuple[str, str], LogReader] = {}
        self._look_up_at_s = 0.0
        self._fixed = options.nsqd_http_address or tuple(map(self._http_address, options.nsqd_tcp_address))

    def batches(self) -> Iterator[Messages]:
        """Return what --since or --last asks for; in later calls, what is new. Raises ToolError."""
        is_first = not self._look_up_at_s
        self._look_up()
        if is_first:
            for reader in self._readers.values():
                reader.begin(self._options.since_ns, self._options.last)
        logs = [reader.messages() for reader in self._readers.values()]
        return heapq.merge(*logs, key=lambda messages: messages.timestamps_ns[0])

    @property
    def has_damage(self) -> bool:
        """True if a part of a log could not be read."""
        return any(reader.damaged_bytes for reader in self._readers.values())

    # --- the nsqds

    def _look_up(self) -> None:
        """Add nsqds that nsqlookupds have come to know; their messages are all new, unless `begin` is called."""
        if monotonic() < self._look_up_at_s:
            return
        self._look_up_at_s = monotonic() + _LOOK_UP_S
        for topic in self._options.topic:
            for address in [*self._fixed, *self._found(topic)]:
                if (address, topic) not in self._readers:
                    self._readers[address, topic] = LogReader(self._client, address, topic, self._log)

    def _found(self, topic: str) -> Iterator[str]:
        for lookupd in self._options.lookupd_http_address:
            try:
                answer = self._client.get(lookupd, "/lookup", {"topic": topic})
                yield from (
                    join_address(one["broadcast_address"], one["http_port"]) for one in answer["producers"]
                )
            except (UpstreamError, KeyError, TypeError) as error:
                if not (isinstance(error, UpstreamError) and _NO_TOPIC in error.body):
                    self._log.error("nsqlookupd %s: %s", hidden_url(lookupd), getattr(error, "reason", error))

    def _http_address(self, text: str) -> str:
        """Return the HTTP address of an nsqd, if its port is the one after that for TCP. Raises ToolError."""
        address = parse_address(text)
        guess = join_address(address.host, address.port + 1)
        try:
            if not address.path and self._client.get(guess, "/info")["tcp_port"] == address.port:
                return guess
            reason = "it is not this nsqd's"
        except (UpstreamError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", str(error))
        raise ToolError(
            f"--since and --last read over HTTP, and {text} does not answer at {guess} ({reason}): use --nsqd-http-address"
        )


def run(options: TailOptions, log: Log) -> int:
    """Show messages until `-n` are shown, a signal comes or the output is closed. Raises ToolError, OSError.

    Return FAILED if a part of a log could not be read.
    """
    output = open_output()
    renderer = Renderer(options)
    with StopSignals() as stop, stop.cutting(LAST_WRITES_S):
        tail = LogTail(options, log)
        while not stop.is_asked:
            for messages in tail.batches():
                data, _ = renderer.show(messages)
                output.write(data)
                if renderer.is_over or stop.is_asked:
                    return FAILED if tail.has_damage else DONE
            output.check_reader()
            stop.wait(_POLL_S)
    return FAILED if tail.has_damage else DONE
