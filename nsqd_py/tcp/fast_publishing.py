"""A shortcut in front of `connection`, for a client that sends one PUB or DPUB and waits for its answer.

It makes no command object and consults no table: the line is that of the last one, or the topic is open. User CPU time of
nsqd for a PUB: 2.7 us instead of 4.2 with 16 such clients, 6.5 instead of 7.8 with 4 consumers in addition, 8.4 instead of 11.3
for 100 topics in turn. nsqd works without this file: let `daemon` make a `ClientConnection`.

If the client is the only active one, its next PUB is awaited for 100 us without sleeping: an event loop takes 50 to 200 us to
wake up on a virtual machine, and the client sends after 12 us. With client and nsqd on two processors: 1.5 times the PUBs.
"""

from __future__ import annotations

import socket
from os import sched_yield
from struct import Struct
from time import monotonic_ns
from typing import Any

from nsqd_py.broker.broker import Broker
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.socket_buffers import SMALL_READ
from nsqd_py.net.transport import CLOSING, PAUSED
from nsqd_py.protocol import frames
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.commands import PUB
from nsqd_py.protocol.names import MAX_NAME_LENGTH
from nsqd_py.protocol.session import Limits
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.tcp.connection import ClientConnection

_LONGEST_LINE = len("PUB \n") + MAX_NAME_LENGTH
# The longest wait without sleeping, and the number of PUBs after which the event loop goes on.
_LONGEST_WAIT_NS = 100_000
_MOST_PUBS = 24
# A wait without effect takes 100 us, another saves 40. With fewer PUBs than this, the reads until the next wait are doubled.
_FEWEST_PUBS = 3
_FEWEST_READS = 16
_MOST_READS = 4096
# The line of a publish, which of PUB and DPUB it is, its topic, and its delay in ns. An empty line stands for none.
LastPub = tuple[bytes, int, str, int]

_NO_PUB: LastPub = (b"", PUB, "", 0)
_read_int32 = Struct(">i").unpack_from


class FastConnection(ClientConnection):
    """A connection that recognises a read of exactly one PUB or DPUB with the line of the last one."""

    __slots__ = ("_last_pub", "_max_msg_size", "_reads_between_waits", "_reads_until_wait")

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: Any,
        iteration: LoopIteration,
        log: Log,
        broker: Broker,
        limits: Limits,
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, broker, limits)
        self._last_pub = _NO_PUB
        self._max_msg_size = limits.max_msg_size
        self._reads_between_waits = _FEWEST_READS
        self._reads_until_wait = _FEWEST_READS

    def forget_pub(self) -> None:
        super().forget_pub()
        self._last_pub = _NO_PUB

    def _pub_to_open_topic(self, data: bytes) -> LastPub:
        """Return the line of a PUB to another topic, and note it like the last one; `_NO_PUB` if no such topic is open.

        The name of an open topic needs no check. A client with permissions has each new line checked.
        """
        newline = data.find(b"\n", 4, _LONGEST_LINE)
        if newline < 0 or self.guard is not None or not data.startswith(b"PUB "):
            return _NO_PUB
        topic_name = str(data[4:newline], "latin-1")
        if topic_name not in self.broker.open_topics:
            return _NO_PUB
        self._last_pub = data[: newline + 1], PUB, topic_name, 0
        return self._last_pub

    def on_data(self, data: bytes) -> None:
        line, kind, topic_name, defer_ns = self._last_pub
        body = data.removeprefix(line)
        if line and body is data:  # another line
            line, kind, topic_name, defer_ns = self._pub_to_open_topic(data)
            body = data.removeprefix(line)
        if body is not data:
            size = len(body) - SIZE_BYTES
            if 0 < size <= self._max_msg_size and _read_int32(body)[0] == size:
                topic = self.broker.open_topics.get(topic_name)
                if topic is not None:
                    # The same, without a call.
                    ticket = self.early.ticket(kind) if self.out else kind
                    topic.buffer.publish(body, 1, SIZE_BYTES + size, self, ticket, defer_ns)
                    self.out.append(frames.OK)
                    if not self._in_iteration:
                        self._in_iteration = True
                        self._iteration.add_flusher(self)
                    self.pub_counts[topic.name] += 1
                    pulse = self.pulse
                    pulse.heard_s = pulse.loop.now()
                    self.is_quick = True
                    self._reads_until_wait -= 1
                    if not self._reads_until_wait:
                        self._read_more()
                    return
        self._last_pub = _NO_PUB  # the parser may now keep a part of a command
        ClientConnection.on_data(self, data)
        if (
            self._parser is None or self.state == PAUSED
        ):  # the client has named no protocol yet, or a wrong one
            return
        if data.startswith((b"PUB ", b"DPUB ")):
            self._last_pub = self._parser.last_pub()

    def _read_more(self) -> None:
        """Answer the client, and read its next PUBs without going back to the event loop, if no other client is active."""
        if not self._iteration.has_one_flusher or self._iteration.has_input():
            self._reads_until_wait = self._reads_between_waits
            return
        pubs = 0
        self._iteration.end()
        while pubs < _MOST_PUBS and self._has_read():
            pubs += 1
        if pubs >= _FEWEST_PUBS:
            self._reads_between_waits = _FEWEST_READS
            self._reads_until_wait = 1
        else:
            self._reads_until_wait = self._reads_between_waits = min(
                2 * self._reads_between_waits, _MOST_READS
            )

    def _has_read(self) -> bool:
        """Handle the next input if it comes soon, and answer it; False if it did not come, or took longer than a PUB."""
        if self._holds or self.state >= CLOSING or self._unsent is not None or self._layer is not None:
            return False
        if not self._has_input_soon():
            return False
        try:
            data = self._sock.recv(SMALL_READ)
        except OSError:  # another connection has input; or the next read of the event loop reports the error
            return False
        self.is_quick = False
        self._iteration.is_coming = True  # its end needs no watcher: it is called here, which is 1 us less
        try:
            if data:
                self.on_data(data)
            else:
                self.on_end()
        finally:
            self._iteration.end()
        return self.is_quick

    def _has_input_soon(self) -> bool:
        """Wait without sleeping for input of any connection. Other processes may use the processor, for example the client."""
        until_ns = monotonic_ns() + _LONGEST_WAIT_NS
        while not self._iteration.has_input():
            if monotonic_ns() > until_ns:
                return False
            sched_yield()
        return True
