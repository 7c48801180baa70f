"""A non-blocking socket and its unsent output (Stream), and answers that are queued before their write (EarlyAnswers).

Reading and writing are callbacks of the event loop, not greenlets: an idle connection costs a few kB, and a busy one
needs no greenlet switches. Work that may take long (a disk sync, an admin call) holds the connection, runs in a
separate greenlet, and releases the connection when it is done. `Layer`s (TLS, compression) sit between the socket and
the parser.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

from nsqd_py.errors import LayerError
from nsqd_py.net import socket_buffers
from nsqd_py.net.addresses import socket_address
from nsqd_py.net.layers import Layer, Stacked
from nsqd_py.net.limits import HANDSHAKE, REASON_TEXTS, WRITE, Connections, TimeLimits
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.socket_buffers import SMALL_READ
from nsqd_py.protocol.frames import Part
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log

_READ = 1
_WRITE = 2
# Parts of this mean size are sent without joining them, but not more than the system takes at once (IOV_MAX).
_JOINED_BYTES = 4 * 1024
_MOST_PARTS = 1000
_STOP_READING_PIECES = 16 * 1024
_LIGHT_BYTES = 4 * 1024
STOP_READING_ABOVE = 1024 * 1024  # with more unsent bytes, nothing more is read from a client

# The number of kinds of answers that a ticket can distinguish.
KINDS = 4


class Stream:
    """The socket of one connection. Subclasses implement `on_data` and may extend `on_end` and `on_close`.

    is_quick      True if the last input took a few microseconds, and no handshake follows: it is read without a look at the clock
    is_light      True if the last input was short, and neither encrypted nor compressed: then it can be a bomb
    queued_bytes  output that a subclass counts until the socket has taken it; then `on_drained` sets it to 0
    """

    __slots__ = (
        "_closing",
        "_decoding",
        "_exact_read",
        "_fd_reader",
        "_fd_writer",
        "_holds",
        "_in_iteration",
        "_is_behind",
        "_is_unread",
        "_iteration",
        "_layer",
        "_read_size",
        "_reading",
        "_shaking_since_s",
        "_sock",
        "_stuck_since_s",
        "_unsent",
        "_untaken_before",
        "_untaken_swept",
        "closed",
        "is_light",
        "is_quick",
        "log",
        "out",
        "owner",
        "peer",
        "queued_bytes",
    )

    def __init__(self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._iteration = iteration
        self._fd_reader = loop.io(sock.fileno(), _READ)
        self._fd_writer: Any = None
        self._layer: Layer | None = None
        self._decoding: Layer | None = None  # has received bytes that are not decoded yet
        self._read_size = SMALL_READ
        self._exact_read = 0  # if set, the size of the next read
        self._reading = False
        self._unsent: memoryview | None = None
        self._untaken_before = 0
        self._in_iteration = False
        self._holds = 0
        self._is_behind = False  # has unhandled input: it is in the backlog, or waits for `release`
        self._is_unread = False  # that input is still in the socket
        self.is_quick = False
        self.is_light = True
        self._closing = False
        self._untaken_swept = 0
        self._stuck_since_s = 0.0
        self._shaking_since_s = 0.0  # when a sweep first saw the TLS handshake incomplete
        self.owner: Connections | None = None
        self.closed = False
        self.log = log
        self.peer = peer
        self.out: list[Part] = []
        self.queued_bytes = 0

    @property
    def local_address(self) -> str:
        """Its own end of the connection: `host:port`, or the path of a unix socket."""
        return socket_address(self._sock.getsockname())

    # ---- reading

    def start(self) -> None:
        """Start reading: call `on_data` with received bytes."""
        self._set_reading(True)

    def _set_reading(self, wanted: bool) -> None:
        wanted = wanted and not self.closed and not self._holds and not self._closing
        wanted = wanted and self._decoding is None and not self._is_behind
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._fd_reader.start(self._on_readable)
            else:
                self._fd_reader.stop()

    def _on_readable(self) -> None:
        if self._holds:
            self._set_reading(False)
            return
        backlog = self._iteration.backlog
        if (not self.is_quick or backlog.is_scheduled) and not backlog.has_time_for(self):
            self._is_unread = True
            self._fall_behind()
            return
        self._receive()

    def _receive(self) -> None:
        """Read once, and handle that."""
        try:
            data = self._sock.recv(self._exact_read or self._read_size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if not self._ends_later():
                self.close(f"failed to read - {error}")
            return
        if not data and self._ends_later():
            return
        try:
            self.is_quick = False
            self.is_light = len(data) < _LIGHT_BYTES and self._layer is None
            if data:
                started_ns = self._exact_read = 0
                if len(data) == self._read_size:
                    started_ns = thread_time_ns()
                elif self._read_size != SMALL_READ and len(data) < SMALL_READ:
                    # Not at once: for an MPUB of 20 KB, it would be small each time the rest of the last one is read.
                    self._read_size = max(SMALL_READ, self._read_size // 2)
                if self._layer is None:
                    self.on_data(data)
                else:
                    self._on_encoded(self._layer, data)
                if started_ns and not self._exact_read:  # a larger read would have to be copied
                    read_size = socket_buffers.fitting_read(len(data), thread_time_ns() - started_ns)
                    # Input that waits for its turn took no time yet: reads do not grow for that.
                    self._read_size = min(read_size, self._read_size) if self._is_behind else read_size
            else:
                self.on_end()
                # Now, in the time of this turn: a thousand may end at once.
                if self._closing and not self.out:
                    self.flush()
        except Exception as error:  # noqa: BLE001 - a bug in one handler must not end the others' loop
            self._on_exception(error)

    def _on_exception(self, error: Exception) -> None:
        if isinstance(error, LayerError):
            self.close(str(error))
        else:
            report_bug(self.log, f"client({self.peer})", error)
            self.close("internal error")

    def acknowledge_input(self) -> None:
        """Let the peer's system know at once what has arrived, so that it sends what it holds back until then."""
        socket_buffers.acknowledge_input(self._sock)

    # ---- input that takes longer than one time slice

    def _ends_later(self) -> bool:
        """Put off the end of this connection, if this iteration has no time for it: a thousand may end at once."""
        backlog = self._iteration.backlog
        self.is_light = False  # nobody waits for it
        if backlog.is_working or backlog.has_time_for(self):
            return False
        self._is_unread = True
        self._fall_behind()
        return True

    def _fall_behind(self) -> None:
        """Stop reading, and let the backlog call `act` for the received input in later iterations."""
        self._is_behind = True
        self._set_reading(False)
        self._iteration.backlog.add(self)

    def _catch_up(self) -> None:
        """Resume reading after all received input is handled."""
        if self._is_behind:
            self._is_behind = False
            if self._unsent is None:  # else reading resumes when the client has taken its answers
                self._set_reading(True)
            self._decode_soon()

    def work(self) -> bool:
        """Handle more input, called by the backlog. Return True if there is more to do now."""
        if self._decoding is not None and not self._is_behind:
            self._decode_more()
            return False
        if not self._is_behind or self.closed or self._closing or self._holds:
            return False
        if self._is_unread:
            self._is_unread = self._is_behind = False
            self._receive()  # this is its turn, whatever the time
            self._set_reading(True)
            return self._is_behind and not self._holds
        try:
            self.act()
        except Exception as error:  # noqa: BLE001 - as in _on_readable
            self._on_exception(error)
            return False
        return self._is_behind and not self._holds

    def act(self) -> None:
        """Handle received input for one time slice; call `_catch_up` when all is handled."""
        raise NotImplementedError

    def _on_encoded(self, layer: Layer, received: bytes) -> None:
        data = self._decoded(layer, received)
        if data:
            self.on_data(data)
        if layer.has_more and not self.closed and not self._closing:
            self._decoding = layer
            self._set_reading(False)
            self._decode_soon()

    def _decode_soon(self) -> None:
        """Decode the rest in a later iteration: few bytes may expand to many, whose answers must be sent first."""
        if self._decoding is not None and self._may_decode():
            self._iteration.backlog.add(self)

    def _may_decode(self) -> bool:
        return not (self._holds or self._is_behind or self.closed or self._closing) and self._unsent is None

    def _decode_more(self) -> None:
        layer = self._decoding
        if layer is None or not self._may_decode():
            return
        self._decoding = None
        try:
            self._on_encoded(layer, b"")
        except Exception as error:  # noqa: BLE001 - as in _on_readable
            self._on_exception(error)
        self._set_reading(True)

    def _decoded(self, layer: Layer, received: bytes) -> bytes:
        try:
            return layer.decode(received)
        finally:  # also after an error: the output may be an alert for the peer
            output = layer.take_output()
            if output:
                self._send_encoded(output)

    def add_layer(self, layer: Layer) -> None:
        """Put a layer on top of the present ones, for all bytes from now on."""
        self._encode_output()
        self._layer = layer if self._layer is None else Stacked(self._layer, layer)
        self.is_light = False

    def _encode_output(self) -> None:
        """Encode queued output with the present layers, before another is added."""
        if self.out:
            data = b"".join(self.out)
            self.out.clear()
            if self._layer is not None:
                data = self._layer.encode(data)
            if data:
                self._send_encoded(data)

    @property
    def is_secure(self) -> bool:
        """True if the connection is encrypted."""
        return self._layer is not None and self._layer.is_secure

    def on_data(self, data: bytes) -> None:
        """Handle received bytes; `data` is never empty."""
        raise NotImplementedError

    def on_end(self) -> None:
        """Handle the end of input."""
        self.close("end of input")

    def hold(self) -> None:
        """Neither read nor send until `release`, because an answer waits for the disk.

        The reader is stopped only if bytes arrive, as most clients wait for the answer: this saves 2 us each.
        """
        self._holds += 1

    def release(self) -> None:
        """End one `hold`."""
        self._holds -= 1
        if self._holds or self.closed:
            return
        self.want_flush()
        if not self._reading:  # if it reads, nothing has come in the meantime: 1 us less
            if self._is_behind:
                self._iteration.backlog.add(self)
            self._decode_soon()
            self._set_reading(True)

    # ---- writing

    def send(self, data: bytes) -> None:
        """Queue output that is sent in one call at the end of this event-loop iteration."""
        self.out.append(data)
        if not self._in_iteration:
            self._in_iteration = True
            self._iteration.add_flusher(self)

    def send_now(self, data: bytes) -> None:
        """Send immediately. The connection must have no other output."""
        if self._layer is not None:
            data = self._layer.encode(data)
            if not data:
                return
        self._hand_to_socket(data)

    def send_before_answers(self, data: bytes) -> None:
        """Send ahead of the answers in `out`, also while the connection is held."""
        if self._layer is not None:
            data = self._layer.encode(data)
        if data:
            self._send_encoded(data)

    def _send_encoded(self, data: bytes) -> None:
        """Send encoded bytes after those that still wait for the socket."""
        if self._unsent is not None:
            self._unsent = memoryview(bytes(self._unsent) + data)
        else:
            self._hand_to_socket(data)

    def _hand_to_socket(self, data: Part) -> None:
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(f"failed to write - {error}")
            return
        if sent < len(data):
            self._wait_for_room(memoryview(data)[sent:])

    def _send_parts(self, parts: list[Part]) -> None:
        """Send large parts without joining them, and clear the list."""
        try:
            sent = self._sock.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(f"failed to write - {error}")
            return
        rest = socket_buffers.rest_of(parts, sent)
        if rest:
            self._wait_for_room(rest)
        parts.clear()

    def want_flush(self) -> None:
        """Schedule a flush of output that the caller appended to `out` directly."""
        if not self._in_iteration:
            self._in_iteration = True
            self._iteration.add_flusher(self)

    @property
    def unsent_bytes(self) -> int:
        """Output that the socket has not taken yet, without the output of this iteration."""
        return len(self._unsent) if self._unsent is not None else 0

    @property
    def buffered_bytes(self) -> int:
        """The memory held by output that waits for the socket."""
        return memoryview(self._unsent.obj).nbytes if self._unsent is not None else 0

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """Return the time limit that the client exceeds, or "". Called about once a second."""
        if self._layer is None or self._layer.is_open:
            self._shaking_since_s = 0.0
        elif not self._shaking_since_s:
            self._shaking_since_s = now_s
        elif limits.handshake_s and now_s - self._shaking_since_s >= limits.handshake_s:
            return HANDSHAKE
        untaken = self._untaken_bytes()
        if not untaken or untaken != self._untaken_swept:
            self._untaken_swept = untaken
            self._stuck_since_s = now_s
        elif limits.write_s and now_s - self._stuck_since_s >= limits.write_s:
            return WRITE
        return ""

    def time_out(self, reason: str) -> None:
        """Close the connection for a reason that `overdue` returned."""
        end = self.abort if reason == WRITE else self.close
        end(REASON_TEXTS[reason])

    def _untaken_bytes(self) -> int:
        """Return the number of bytes that the peer has not taken, here and in the socket; 0 if none wait here."""
        return len(self._unsent) + socket_buffers.untaken_bytes(self._sock) if self._unsent is not None else 0

    def _has_input(self) -> bool:
        """True if the socket has received bytes that are about to be read."""
        return self._reading and socket_buffers.has_input(self._sock)

    def _is_stuck(self) -> bool:
        """True if the peer has taken no bytes since the last call."""
        untaken = self._untaken_bytes()
        stuck = untaken > 0 and untaken == self._untaken_before
        self._untaken_before = untaken
        return stuck

    def flush(self) -> None:
        """Hand all output to the socket. Called at the end of an event-loop iteration."""
        self._in_iteration = False
        out = self.out
        if self._unsent is not None:
            if len(out) > _STOP_READING_PIECES or sum(map(len, out)) > STOP_READING_ABOVE:
                self._set_reading(False)
            return
        if self.closed or self._holds:
            return
        # One answer, most often.
        if len(out) == 1 and not (self.queued_bytes or self._closing) and self._layer is None:
            self._hand_to_socket(out.pop())
            return
        if out:
            if (
                self.queued_bytes > _JOINED_BYTES * len(out)
                and self._layer is None
                and len(out) <= _MOST_PARTS
            ):
                self._send_parts(out)
            else:
                data = bytes(out[0]) if len(out) == 1 else b"".join(out)
                out.clear()
                self.send_now(data)
        if self._closing and not self.unsent_bytes:
            if self._layer is not None and not self.closed:
                self._send_encoded(self._layer.end())
            socket_buffers.discard_input(self._sock)
            self.close("closed")
        if self.queued_bytes and not self.unsent_bytes:
            self.on_drained()

    def _wait_for_room(self, rest: memoryview) -> None:
        """Keep `rest` until the socket takes more. Stop reading from the peer if it is large."""
        self._unsent = rest
        if self._fd_writer is None:
            self._fd_writer = self._fd_reader.loop.io(self._sock.fileno(), _WRITE)
        self._fd_writer.start(self._on_writable)
        if len(rest) > STOP_READING_ABOVE:
            self._set_reading(False)

    def _on_writable(self) -> None:
        rest = self._unsent
        assert rest is not None
        try:
            sent = self._sock.send(rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"failed to write - {error}")
            return
        if sent < len(rest):
            self._unsent = rest[sent:]
            return
        self._unsent = None
        self._fd_writer.stop()
        self._set_reading(True)
        self._decode_soon()
        self.want_flush()
        self.on_drained()

    def on_drained(self) -> None:
        """Called when the socket has taken all waiting output."""

    # ---- closing

    def close_when_sent(self) -> None:
        """Stop reading, and close when the socket has taken all output."""
        self._closing = True
        self._set_reading(False)
        self.want_flush()

    def abort(self, reason: str) -> None:
        """Close immediately, and drop what the peer has not taken yet, also what the system would still send."""
        if not self.closed:
            socket_buffers.drop_output_at_close(self._sock)
        self.close(reason)

    def close(self, reason: str) -> None:
        """Close immediately. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._reading = False
        self._fd_reader.stop()
        self._fd_reader.close()
        if self._fd_writer is not None:
            self._fd_writer.stop()
            self._fd_writer.close()
        self._unsent = None
        self.out.clear()
        self._sock.close()
        if self.owner is not None:
            self.owner.remove(self)
        self.on_close(reason)

    def on_close(self, reason: str) -> None:
        """Drop all references to this connection after its socket is closed."""


# ---- Answers that a connection queues before the write that they report has happened.


class EarlyAnswers:
    """The answers to publishes in the output of one connection.

    The answer is queued when the publish is in the publish buffer of its topic. The output is sent after the log is
    written, at the end of the event-loop iteration, or after the sync if publishers wait for one. If the write fails,
    the answer has not been sent yet, and is withdrawn. A successful write needs no extra work.

    A ticket combines the position of an answer in the output and its kind in one number. It is valid until the output is
    sent.
    """

    __slots__ = ("_out",)

    def __init__(self, out: list[Part]) -> None:
        self._out = out

    def ticket(self, kind: int = 0) -> int:
        """Return the ticket of the next answer; 0 <= kind < KINDS."""
        return len(self._out) * KINDS + kind

    @staticmethod
    def kind_of(ticket: int) -> int:
        """Return the kind that was passed to `ticket`."""
        return ticket % KINDS

    def replace(self, ticket: int, replacement: Callable[[bytes], bytes]) -> None:
        """Replace one answer with `replacement(answer)`."""
        position = ticket // KINDS
        self._out[position] = replacement(bytes(self._out[position]))

    def withdraw(self, ticket: int) -> None:
        """Remove the answer and all that follow it."""
        del self._out[ticket // KINDS :]
