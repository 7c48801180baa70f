"""A non-blocking socket and its unsent output, in four sections:

Watchers      the socket in the event loop
Progress      how far its peer has taken the output, as time limits see it
Stream        the connection: its state, reading, and writing
EarlyAnswers  answers that are queued before the write that they report

Reading and writing are callbacks of the event loop, not greenlets: an idle connection costs a few kB, and a busy one
needs no greenlet switches. Work that may take long (a disk sync, an admin call) holds the connection, runs in a
separate greenlet, and releases the connection when it is done. `Layer`s (TLS, compression) sit between the socket and
the parser.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from time import thread_time_ns
from typing import Any, Final

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

# The states of a connection.
OPEN: Final = 0
PAUSED: Final = 1  # received commands wait, for an auth server or for the journal of a new channel
DEAF: Final = 2  # further input is read and dropped
CLOSING: Final = 3  # nothing more is read, and the connection closes when the socket has taken all output
CLOSED: Final = 4

# The reasons why input is not read. A higher one replaces a lower one.
NOTHING: Final = 0  # input is read when it arrives
START: Final = 1  # `start` was not called yet
HELD: Final = 2  # input arrived while the connection was held
OUTPUT: Final = 3  # the peer does not take its answers
DECODING: Final = 4  # a layer has more of the received input
UNREAD: Final = 5  # the connection is in the backlog, and its input is in the socket
UNHANDLED: Final = 6  # the connection is in the backlog with received input


# ---- the socket in the event loop


class Watchers:
    """The watchers of one socket in the event loop. The watcher for writing is made when it is first needed."""

    __slots__ = ("_descriptor", "_reader", "_writer")

    def __init__(self, loop: Any, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = loop.io(descriptor, _READ)
        self._writer: Any = None

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._reader.start(on_readable)

    def stop_reading(self) -> None:
        self._reader.stop()

    def start_writing(self, on_writable: Callable[[], None]) -> None:
        if self._writer is None:
            self._writer = self._reader.loop.io(self._descriptor, _WRITE)
        self._writer.start(on_writable)

    def stop_writing(self) -> None:
        self._writer.stop()

    def close(self) -> None:
        self._reader.stop()
        self._reader.close()
        if self._writer is not None:
            self._writer.stop()
            self._writer.close()


# ---- the progress of its peer


class Progress:
    """The progress of a connection, as the last sweep and the last heartbeat saw it.

    shaking_since_s  the first sweep that saw the TLS handshake incomplete; 0.0 if no handshake is incomplete
    stuck_since_s    the last sweep that saw no waiting output, or saw that the peer had taken some
    swept_bytes      the bytes that the peer had not taken at the last sweep
    beaten_bytes     the bytes that the peer had not taken at the last heartbeat
    """

    __slots__ = ("beaten_bytes", "shaking_since_s", "stuck_since_s", "swept_bytes")

    def __init__(self) -> None:
        self.shaking_since_s = 0.0
        self.stuck_since_s = 0.0
        self.swept_bytes = 0
        self.beaten_bytes = 0


# ---- the connection


class Stream:
    """The socket of one connection. Subclasses implement `on_data` and may extend `on_end` and `on_close`.

    state         OPEN, PAUSED, DEAF, CLOSING or CLOSED
    waits_for     the reason why input is not read; NOTHING while it is read
    is_quick      True if the last input took a few microseconds, and no handshake follows: then the clock is not read
    is_light      True if the last input was short, and neither encrypted nor compressed: then it can be a bomb
    queued_bytes  output that a subclass counts until the socket has taken it; then `on_drained` sets it to 0

    The state only moves forward, from OPEN to any later one, except that the end of a pause leads from PAUSED to OPEN:

    OPEN     commands are executed
    PAUSED   from `pause` to `go_on` of an NSQ client, which hold the connection in addition
    DEAF     after the last request of an HTTP client, whose answer ends the connection
    CLOSING  after `close_when_sent`
    CLOSED   after `close`

    `waits_for` is the first of these that is true, so it is computed again when one of them ends:

    UNHANDLED, UNREAD  from `_fall_behind` until the input was handled, or until its turn to be read
    DECODING           `_undecoded` is set: a layer returns more from what it has received
    OUTPUT             the peer takes too little, until it has taken everything or a hold ends
    HELD               input arrived during a hold, until the last hold ends
    START              before `start`

    Invariants, between two calls of the event loop: the socket is watched for input exactly while `waits_for` is NOTHING and
    the state is before CLOSING. While `waits_for` is NOTHING, all input is decoded, and handled or in the parser of a
    subclass. While a connection that is neither held nor CLOSING is UNREAD or UNHANDLED, the backlog has it.
    """

    __slots__ = (
        "_exact_read",
        "_holds",
        "_in_iteration",
        "_iteration",
        "_layer",
        "_progress",
        "_read_size",
        "_sock",
        "_undecoded",
        "_unsent",
        "_watchers",
        "is_light",
        "is_quick",
        "log",
        "out",
        "owner",
        "peer",
        "queued_bytes",
        "state",
        "waits_for",
    )

    def __init__(self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._iteration = iteration
        self._watchers = Watchers(loop, sock.fileno())
        self._layer: Layer | None = None
        self._undecoded: Layer | None = None  # has received bytes that are not decoded yet
        self._read_size = SMALL_READ
        self._exact_read = 0  # if set, the size of the next read
        self._unsent: memoryview | None = None
        self._in_iteration = False
        self._holds = 0
        self.state = OPEN
        self.waits_for = START
        self.is_quick = False
        self.is_light = True
        self._progress = Progress()
        self.owner: Connections | None = None
        self.log = log
        self.peer = peer
        self.out: list[Part] = []
        self.queued_bytes = 0

    @property
    def local_address(self) -> str:
        """Its own end of the connection: `host:port`, or the path of a unix socket."""
        return socket_address(self._sock.getsockname())

    # ---- the state, and the reason to wait: nothing else changes them

    @property
    def closed(self) -> bool:
        return self.state == CLOSED

    @property
    def is_reading(self) -> bool:
        """True if input is read when it arrives."""
        return self.waits_for == NOTHING and self.state < CLOSING

    def _enter(self, state: int) -> None:
        """Go on to this state. A connection that has reached it, or a later one, stays where it is."""
        if state <= self.state:
            return
        if state >= CLOSING and self.is_reading:
            self._watchers.stop_reading()
        self.state = state

    def _end_pause(self) -> None:
        if self.state == PAUSED:
            self.state = OPEN

    def _wait_for(self, reason: int) -> None:
        """Make this the reason why input is not read, and stop or start to read."""
        was_reading = self.is_reading
        self.waits_for = reason
        is_reading = self.is_reading
        if is_reading and not was_reading:
            self._watchers.start_reading(self._on_readable)
        elif was_reading and not is_reading:
            self._watchers.stop_reading()

    def _stop_reading(self, reason: int) -> None:
        """Read nothing for this reason, unless a higher one is there already."""
        if reason > self.waits_for:
            self._wait_for(reason)

    def _read_on(self) -> None:
        """Read again, unless input waits for its turn, a layer has more of it, or the connection is held."""
        if self.waits_for >= UNREAD:
            return
        if self._undecoded is not None:
            self._wait_for(DECODING)
        elif self._holds:
            self._wait_for(HELD)
        else:
            self._wait_for(NOTHING)

    # ---- reading

    def start(self) -> None:
        """Start reading: call `on_data` with received bytes."""
        self._read_on()

    def _on_readable(self) -> None:
        if self._holds:
            self._stop_reading(HELD)
            return
        backlog = self._iteration.backlog
        if (not self.is_quick or backlog.is_scheduled) and not backlog.has_time_for(self):
            self._fall_behind(UNREAD)
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
                started_ns = 0
                self._exact_read = 0
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
                    if self.waits_for < UNREAD or read_size < self._read_size:
                        self._read_size = read_size
            else:
                self.on_end()
                # Now, in the time of this turn: a thousand may end at once.
                if self.state == CLOSING and not self.out:
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
        self.is_light = False  # no one waits for it
        if backlog.is_working or backlog.has_time_for(self):
            return False
        self._fall_behind(UNREAD)
        return True

    def _fall_behind(self, reason: int = UNHANDLED) -> None:
        """Stop reading, and let the backlog call `work` in later iterations: for the received input, or to read it."""
        self._wait_for(reason)
        self._iteration.backlog.add(self)

    @property
    def is_behind(self) -> bool:
        """True if input waits for its turn in the backlog, or for the end of a hold and then for its turn."""
        return self.waits_for >= UNREAD

    def _catch_up(self) -> None:
        """Resume reading after all received input is handled."""
        if self.waits_for >= UNREAD:
            self._wait_for(OUTPUT)  # then reading resumes when the client has taken its answers
            if self._unsent is None:
                self._read_on()
            self._decode_soon()

    def work(self) -> bool:
        """Handle more input, called by the backlog. Return True if there is more to do now."""
        if self.waits_for < UNREAD:
            self._decode_more()
            return False
        if self.state >= CLOSING or self._holds:
            return False
        if self.waits_for == UNREAD:
            self._wait_for(NOTHING)
            self._receive()  # this is its turn, whatever the time
            self._read_on()
            return self.is_behind and not self._holds
        try:
            self.act()
        except Exception as error:  # noqa: BLE001 - as in _on_readable
            self._on_exception(error)
            return False
        return self.is_behind and not self._holds

    def act(self) -> None:
        """Handle received input for one time slice; call `_catch_up` when all is handled."""
        raise NotImplementedError

    def _on_encoded(self, layer: Layer, received: bytes) -> None:
        data = self._decoded(layer, received)
        if data:
            self.on_data(data)
        if layer.has_more and self.state < CLOSING:
            self._undecoded = layer
            self._stop_reading(DECODING)
            self._decode_soon()

    def _decode_soon(self) -> None:
        """Decode the rest in a later iteration: few bytes may expand to many, whose answers must be sent first."""
        if self._undecoded is not None and self._may_decode():
            self._iteration.backlog.add(self)

    def _may_decode(self) -> bool:
        if self._holds or self._unsent is not None:
            return False
        return self.waits_for < UNREAD and self.state < CLOSING

    def _decode_more(self) -> None:
        layer = self._undecoded
        if layer is None or not self._may_decode():
            return
        self._undecoded = None
        try:
            self._on_encoded(layer, b"")
        except Exception as error:  # noqa: BLE001 - as in _on_readable
            self._on_exception(error)
        self._read_on()

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
        if self._holds or self.state == CLOSED:
            return
        self.want_flush()
        if self.waits_for != NOTHING:  # if it reads, nothing has come in the meantime: 1 us less
            if self.waits_for >= UNREAD:
                self._iteration.backlog.add(self)
            self._decode_soon()
            self._read_on()

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
        if self._unsent is not None:
            return memoryview(self._unsent.obj).nbytes
        return 0

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """Return the time limit that the client exceeds, or "". Called about once a second."""
        progress = self._progress
        if self._layer is None or self._layer.is_open:
            progress.shaking_since_s = 0.0
        elif not progress.shaking_since_s:
            progress.shaking_since_s = now_s
        elif limits.handshake_s and now_s - progress.shaking_since_s >= limits.handshake_s:
            return HANDSHAKE
        untaken = self._untaken_bytes()
        if not untaken or untaken != progress.swept_bytes:
            progress.swept_bytes = untaken
            progress.stuck_since_s = now_s
        elif limits.write_s and now_s - progress.stuck_since_s >= limits.write_s:
            return WRITE
        return ""

    def time_out(self, reason: str) -> None:
        """Close the connection for a reason that `overdue` returned."""
        end = self.abort if reason == WRITE else self.close
        end(REASON_TEXTS[reason])

    def _untaken_bytes(self) -> int:
        """Return the number of bytes that the peer has not taken, here and in the socket; 0 if none wait here."""
        if self._unsent is not None:
            return len(self._unsent) + socket_buffers.untaken_bytes(self._sock)
        return 0

    def _has_input(self) -> bool:
        """True if the socket has received bytes that are about to be read."""
        return self.is_reading and socket_buffers.has_input(self._sock)

    def _is_stuck(self) -> bool:
        """True if the peer has taken no bytes since the last call."""
        untaken = self._untaken_bytes()
        stuck = untaken > 0 and untaken == self._progress.beaten_bytes
        self._progress.beaten_bytes = untaken
        return stuck

    def flush(self) -> None:
        """Hand all output to the socket. Called at the end of an event-loop iteration."""
        self._in_iteration = False
        out = self.out
        if self._unsent is not None:
            if len(out) > _STOP_READING_PIECES or sum(map(len, out)) > STOP_READING_ABOVE:
                self._stop_reading(OUTPUT)
            return
        if self.state == CLOSED or self._holds:
            return
        # One answer, most often.
        if len(out) == 1 and self.state != CLOSING and not self.queued_bytes and self._layer is None:
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
        if self.state == CLOSING and not self.unsent_bytes:
            if self._layer is not None:
                self._send_encoded(self._layer.end())
            socket_buffers.discard_input(self._sock)
            self.close("closed")
        if self.queued_bytes and not self.unsent_bytes:
            self.on_drained()

    def _wait_for_room(self, rest: memoryview) -> None:
        """Keep `rest` until the socket takes more. Stop reading from the peer if it is large."""
        self._unsent = rest
        self._watchers.start_writing(self._on_writable)
        if len(rest) > STOP_READING_ABOVE:
            self._stop_reading(OUTPUT)

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
        self._watchers.stop_writing()
        self._read_on()
        self._decode_soon()
        self.want_flush()
        self.on_drained()

    def on_drained(self) -> None:
        """Called when the socket has taken all waiting output."""

    # ---- closing

    def close_when_sent(self) -> None:
        """Stop reading, and close when the socket has taken all output."""
        self._enter(CLOSING)
        self.want_flush()

    def abort(self, reason: str) -> None:
        """Close immediately, and drop what the peer has not taken yet, also what the system would still send."""
        if self.state != CLOSED:
            socket_buffers.drop_output_at_close(self._sock)
        self.close(reason)

    def close(self, reason: str) -> None:
        """Close immediately. Idempotent."""
        if self.state == CLOSED:
            return
        self._enter(CLOSED)
        self._watchers.close()
        self._unsent = None
        self.out.clear()
        self._sock.close()
        if self.owner is not None:
            self.owner.remove(self)
        self.on_close(reason)

    def on_close(self, reason: str) -> None:
        """Drop all references to this connection after its socket is closed."""


# ---- answers that a connection queues before the write that they report has happened


class EarlyAnswers:
    """The answers to publishes in the output of one connection.

    The answer is queued when the publish is in the publish buffer of its topic. The output is sent after the log is
    written, at the end of the event-loop iteration, or after the sync if publishers wait for one. If the write fails,
    the answer has not been sent yet, and is withdrawn. A successful write needs no extra work.

    A ticket combines the position of an answer in the output and its kind in one number. It is valid until the output is
    sent.
    """

    __slots__ = ("_first_withdrawn", "_out")

    def __init__(self, out: list[Part]) -> None:
        self._out = out
        self._first_withdrawn = sys.maxsize

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

    def withdraw(self, ticket: int) -> bool:
        """Remove the answer and all that follow it. Return False if that was done already, for it or one before it."""
        if ticket >= self._first_withdrawn:
            return False
        self._first_withdrawn = ticket
        del self._out[ticket // KINDS :]
        return True
