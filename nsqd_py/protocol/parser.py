"""Turns bytes in any chunks into commands, or into the ClientError that the client gets.

    parser.feed(data)
    while (command := parser.next_command()) is not None:
        ...

A line is checked against the session before its body is read, and sizes are checked before memory is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct

from nsqd_py.batch import SIZE_BYTES, cut_out, uniform_stride
from nsqd_py.errors import BadBody, BadMessage, ClientError, Invalid, LineTooLong
from nsqd_py.protocol.commands import (
    AFTER_BODY,
    BEFORE_BODY,
    COMMANDS,
    DPUB,
    MULTI_BODY,
    PUB,
    SLICE_READ,
    Auth,
    Command,
    CommandSpec,
    Dpub,
    Fin,
    Identify,
    LargeMpub,
    Member,
    Mpub,
    Params,
    PermissionRequest,
    Pub,
    Standby,
    Sub,
    defer_ns_of,
    words,
)
from nsqd_py.protocol.multi_body import SLICE_MESSAGES, MessageWalk, check_message_count
from nsqd_py.protocol.session import STATE_CLOSING, STATE_SUBSCRIBED, Session

FIN_RUN = re.compile(rb"(?:FIN [0-9a-f]{16}\n){1,512}")
FIN_LENGTH = 21
MATCHED_BYTES = 12 * FIN_LENGTH  # up to here the regular expression is faster than strided counts


def is_fin_run(run: bytes) -> bool:
    """True if all of it is `FIN <16 bytes>\\n`: strided counts, half the time of the regular expression."""
    count = len(run) // FIN_LENGTH
    return (
        run.count(b"\n") == run[20::FIN_LENGTH].count(b"\n") == count
        and run.count(b" ") == run[3::FIN_LENGTH].count(b" ") == count
        and run[0::FIN_LENGTH].count(b"F") == count
        and run[1::FIN_LENGTH].count(b"I") == count
        and run[2::FIN_LENGTH].count(b"N") == count
        and b"\r" not in run
    )


# The largest body of IDENTIFY and AUTH: 5 MB of nested lists take 2 s to read, this much 2 ms.
MAX_JSON_BYTES = 64 * 1024
MAX_LINE_LENGTH = 16384  # the size of Go's read buffer, which limits a line there

_MPUB = COMMANDS[b"MPUB"]
_LARGE_BODIES = ("MPUB", "STANDBY")
_WITH_JSON: dict[str, Callable[[bytes], Command]] = {"IDENTIFY": Identify, "AUTH": Auth, "MEMBER": Member, "STANDBY": Standby}

_read_int32 = Struct(">i").unpack_from
# The most FINs, and the most PUBs, of one command, so that other clients get their turn. A FIN that fails takes 4 us.
_MOST_FINS = 512
_MOST_PUBS = SLICE_MESSAGES
# 10 MB at the most. A client that goes round more topics than this has each line parsed.
_MOST_KNOWN_LINES = 32 * 1024
_LONGEST_KNOWN_LINE = 128

# The valid lines of PUBs and DPUBs that some client has sent: topic, PUB or DPUB, and delay in ns.
KnownLines = dict[bytes, tuple[bytes, int, int]]


class CommandParser:
    """The reading half of a connection: a state machine that is either at a line or inside a body.

    Inside a body (`_spec` is set) bytes are collected in `_gathered` until `_needed` bytes have arrived.

    pub_kind, pub_topic, pub_defer_ns  the command (PUB or DPUB), topic and delay of its last line
    """

    __slots__ = (
        "_buffer",
        "_gathered",
        "_known_lines",
        "_mpub_line",
        "_mpub_params",
        "_needed",
        "_params",
        "_position",
        "_pub_line",
        "_session",
        "_spec",
        "_walk",
        "pub_defer_ns",
        "pub_kind",
        "pub_topic",
    )

    def __init__(self, session: Session, known_lines: KnownLines | None = None) -> None:
        """Share `known_lines` between clients that need no permissions."""
        self._session = session
        self._known_lines = known_lines
        self._buffer = b""
        self._position = 0
        self._pub_line = b""
        self._mpub_line = b""
        self._mpub_params: Params = []
        self.pub_kind = PUB
        self.pub_topic = b""
        self.pub_defer_ns = 0
        self._spec: CommandSpec | None = None
        self._params: Params = []
        self._gathered = bytearray()
        self._needed = 0
        self._walk: MessageWalk | None = None

    def feed(self, data: bytes) -> None:
        """Add received data. Before the next call, call `next_command` until it returns None."""
        if self._gathered:
            self._gathered += data
        elif self._position < len(self._buffer):
            self._buffer = self._buffer[self._position :] + data
            self._position = 0
        else:
            self._buffer = data
            self._position = 0

    def lone_pub(self, data: bytes) -> bytes | None:
        """Return the body if `data` is exactly one more PUB, or DPUB, with the line of the last one or a known line.

        It takes 0.5 us, with another line 0.9, as a command 4. The caller handles the body instead of feeding `data`.
        The topic, the delay and the client's permission were checked with the first such line.
        """
        line = self._pub_line
        if not line or self._buffer or self._spec is not None:
            return None
        if not data.startswith(line) and not self._recall_line(data, 0):
            return None
        start = len(self._pub_line)
        if len(data) <= start + SIZE_BYTES:
            return None
        size = len(data) - start - SIZE_BYTES
        if _read_int32(data, start)[0] != size or size > self._session.limits.max_msg_size:
            return None
        return data[start:]

    @property
    def pub_head_bytes(self) -> int:
        """Return the length of another PUB's line and size, if its line is that of the last one."""
        return len(self._pub_line) + SIZE_BYTES

    def _recall_line(self, data: bytes, position: int) -> bool:
        """Make the line at `position` that of the last publish, and return True, if it is known.

        Call this only if this client has published before: it may publish in its present state.
        """
        if self._known_lines is None:
            return False
        line = data[position : data.find(b"\n", position, position + _LONGEST_KNOWN_LINE) + 1]
        known = self._known_lines.get(line)
        if known is None:
            return False
        self._pub_line = line
        self.pub_topic, self.pub_kind, self.pub_defer_ns = known
        return True

    def lone_fins(self, data: bytes) -> list[bytes] | None:
        """Return the ids if `data` consists only of FINs. The caller handles them instead of feeding `data`.

        1 us for one FIN, as a command 4.
        """
        if self._buffer or self._spec is not None:
            return None
        state = self._session.state
        if state != STATE_SUBSCRIBED and state != STATE_CLOSING:
            return None
        if len(data) % FIN_LENGTH or len(data) > _MOST_FINS * FIN_LENGTH:
            return None
        if not (FIN_RUN.fullmatch(data) if len(data) <= MATCHED_BYTES else is_fin_run(data)):
            return None
        return data[4:-1].split(b"\nFIN ")

    def forget_pub(self) -> None:
        """Forget the lines of the last publishes, so that the next one is checked like the first."""
        self._pub_line = self._mpub_line = self.pub_topic = b""

    @property
    def awaited_mpub(self) -> bytes:
        """Return the topic of an MPUB whose body is incomplete or was refused; empty if there is none."""
        spec = self._spec
        return self._params[1] if spec is not None and spec.body == MULTI_BODY else b""

    # ---- bodies that are received by themselves, and are not copied

    @property
    def mpub_head_bytes(self) -> int:
        """Return the length of another MPUB's line, size and count, if its line is that of the last one."""
        return len(self._mpub_line) + 2 * SIZE_BYTES

    @property
    def missing_body_bytes(self) -> int:
        """Return the missing bytes of the body if exactly the head of an MPUB has arrived; 0 otherwise."""
        if self._spec is not _MPUB or len(self._gathered) != 2 * SIZE_BYTES:
            return 0
        declared: int = _read_int32(self._gathered, 0)[0]
        return declared - SIZE_BYTES

    def take_mpub(self, body: bytes) -> Mpub | None:
        """Return the MPUB whose missing body is `body`, without a copy; None if the caller must feed it."""
        limits = self._session.limits
        count = check_message_count(_read_int32(self._gathered, SIZE_BYTES)[0], limits.max_body_size)
        if count > SLICE_MESSAGES:
            return None
        stride = uniform_stride(body, count)
        if not 0 < stride - SIZE_BYTES <= limits.max_msg_size:
            stride = 0
            walk = MessageWalk(count, 0, limits.max_msg_size, limits.max_body_size)
            if not walk.go_on(body, 0) or walk.offset != len(body):
                return None
        self._gathered = bytearray()
        self._spec = self._walk = None
        return Mpub(self._params[1], body, count, stride)

    @property
    def gathered_bytes(self) -> int:
        """Return the size of the part of an incomplete command that has arrived."""
        return len(self._gathered) + len(self._buffer)

    @property
    def has_unread(self) -> bool:
        """True if there are bytes that belong to no command yet."""
        return self._position < len(self._buffer) or bool(self._gathered)

    def unread(self) -> bytes:
        """Return the bytes that belong to no command yet."""
        return bytes(self._gathered) or self._buffer[self._position :]

    def take_unread(self) -> bytes:
        """Remove and return the bytes behind the last command: the connection has changed their encoding."""
        unread = self._buffer[self._position :]
        self._buffer = b""
        self._position = 0
        return unread

    def next_command(self) -> Command | None:
        """Return the next complete command; None if more bytes are needed.

        Raises the ClientError of the protocol, and LineTooLong.
        """
        if self._spec is not None:
            return self._command_with_body()
        buffer = self._buffer
        position = self._position
        if position >= len(buffer):
            self._buffer = b""  # an idle connection must hold no memory
            self._position = 0
            return None
        if buffer.startswith(b"FIN ", position):
            fins = self._fin_run()
            if fins is not None:
                return fins
        elif self._mpub_line and buffer.startswith(self._mpub_line, position):
            return self._next_mpub()
        elif self._pub_line and (buffer.startswith(self._pub_line, position) or self._recall_line(buffer, position)):
            pubs = self._pub_run()
            if pubs is not None:
                return pubs
        return self._command_line()

    # ---- runs of the two commands that come by the thousand

    def _fin_run(self) -> Command | None:
        """Return all FINs from here on: 0.1 us each, where a line at a time takes 1.5 us."""
        state = self._session.state
        if state != STATE_SUBSCRIBED and state != STATE_CLOSING:
            return None
        buffer = self._buffer
        start = self._position
        end = start + min((len(buffer) - start) // FIN_LENGTH, _MOST_FINS) * FIN_LENGTH
        if end == start:
            return None
        run = buffer[start:end]
        if not is_fin_run(run):
            match = FIN_RUN.match(buffer, start)
            if match is None:
                return None
            run = match.group()
            end = match.end()
        self._position = end
        return Fin(run[4:-1].split(b"\nFIN "))

    def _pub_run(self) -> Command | None:
        """Return all PUBs, or DPUBs, with the line of the last one from here on, as one body: 0.4 us each."""
        buffer = self._buffer
        line = self._pub_line
        skip = len(line)
        position = self._position
        end = len(buffer)
        largest = self._session.limits.max_msg_size
        parts = []
        while position + skip + SIZE_BYTES <= end:
            start = position + skip
            size = _read_int32(buffer, start)[0]
            after = start + SIZE_BYTES + size
            if not 0 < size <= largest or after > end:
                break
            parts.append(buffer[start:after])
            position = after
            if not buffer.startswith(line, position) or len(parts) == _MOST_PUBS:
                break
        if not parts:
            return None
        self._position = position
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        stride = len(body) if len(parts) == 1 else uniform_stride(body, len(parts))
        if self.pub_kind == PUB:
            return Pub(self.pub_topic, body, len(parts), stride)
        return Dpub(self.pub_topic, body, len(parts), stride, self.pub_defer_ns)

    def _next_mpub(self) -> Command | None:
        """Read one more MPUB with the line of the last one: its words need no checks."""
        self._position += len(self._mpub_line)
        self._spec = _MPUB
        self._params = self._mpub_params
        self._needed = SIZE_BYTES
        self._walk = None
        return self._command_with_body()

    # ---- one line

    def _command_line(self) -> Command | None:
        buffer = self._buffer
        position = self._position
        newline = buffer.find(b"\n", position)
        if (newline if newline >= 0 else len(buffer)) - position >= MAX_LINE_LENGTH:
            raise LineTooLong("failed to read command - line too long")
        if newline < 0:
            return None
        line = buffer[position:newline]
        if line.endswith(b"\r"):
            line = line[:-1]
        self._position = newline + 1
        params = line.split(b" ")
        if self._session.needs_tls and params[0] != b"IDENTIFY":
            raise Invalid(f"cannot {words(params[0])} in current state (TLS required)")
        spec = COMMANDS.get(params[0])
        if spec is None:
            raise Invalid(f"invalid command {words(params[0])}")
        command = spec.read(self._session, params)
        if command is not None:
            return command
        self._remember(spec, params, buffer[position : newline + 1])
        self._spec = spec
        self._params = params
        self._needed = SIZE_BYTES
        self._walk = None
        return self._command_with_body()

    def _remember(self, spec: CommandSpec, params: Params, line: bytes) -> None:
        """Note the line of a publish, since the next one probably has the same."""
        if spec.name == "MPUB":
            self._mpub_line, self._mpub_params = line, params
        elif spec.body_error is BadMessage:
            is_pub = spec.name == "PUB"
            self._pub_line, self.pub_topic = line, params[1]
            self.pub_kind, self.pub_defer_ns = (PUB, 0) if is_pub else (DPUB, defer_ns_of(params))
            if self._known_lines is not None and len(line) <= _LONGEST_KNOWN_LINE:
                if len(self._known_lines) >= _MOST_KNOWN_LINES:
                    self._known_lines.clear()
                self._known_lines[line] = self.pub_topic, self.pub_kind, self.pub_defer_ns

    # ---- bodies

    def _command_with_body(self) -> Command | None:
        spec = self._spec
        assert spec is not None
        if self._gathered:
            if len(self._gathered) < self._needed:
                return None
            whole: bytes | bytearray = self._gathered
            start = 0
        else:
            whole = self._buffer
            start = self._position
        found = self._multi_body(whole, start) if spec.body == MULTI_BODY else self._sized_body(spec, whole, start)
        if found is None:
            self._gather(start)
            return None
        command, after = found
        if command is SLICE_READ:
            return command
        if self._gathered:  # keep the bytes behind the body, not the body twice
            self._buffer = cut_out(self._gathered, after, len(self._gathered))
            self._gathered = bytearray()
            after = 0
        self._position = after
        self._spec = None
        return command

    def _gather(self, start: int) -> None:
        """Keep the part of a body that has arrived until it is complete."""
        if not self._gathered:
            self._gathered = bytearray(memoryview(self._buffer)[start:])
            self._buffer = b""
            self._position = 0

    def _sized_body(self, spec: CommandSpec, whole: bytes | bytearray, start: int) -> tuple[Command, int] | None:
        if len(whole) - start < SIZE_BYTES:
            return None
        size = _read_int32(whole, start)[0]
        self._check_size(spec, size)
        self._needed = SIZE_BYTES + size
        after = start + self._needed
        if len(whole) < after:
            return None
        if spec.name == "PUB":
            return Pub(self._params[1], cut_out(whole, start, after), 1, self._needed), after
        if spec.name == "DPUB":
            body = cut_out(whole, start, after)
            return Dpub(self._params[1], body, 1, self._needed, defer_ns_of(self._params)), after
        body = cut_out(whole, start + SIZE_BYTES, after)
        return _WITH_JSON[spec.name](body), after

    def _check_size(self, spec: CommandSpec, size: int) -> None:
        limits = self._session.limits
        if spec.body_error is BadMessage:
            if size <= 0:
                raise BadMessage(f"{spec.name} invalid message body size {size}")
            if size > limits.max_msg_size:
                raise BadMessage(f"{spec.name} message too big {size} > {limits.max_msg_size}")
        else:
            largest = limits.max_body_size
            if spec.name not in _LARGE_BODIES and size <= largest:
                largest = min(largest, MAX_JSON_BYTES)
            if size > largest:
                raise BadBody(f"{spec.name} body too big {size} > {largest}")
            if size <= 0:
                raise BadBody(f"{spec.name} invalid body size {size}")

    def _multi_body(self, whole: bytes | bytearray, start: int) -> tuple[Command, int] | None:
        """Walk one slice of the messages. Their sizes, not the declared size, determine the end of the body."""
        walk = self._walk
        if walk is None:
            available = len(whole) - start
            if available < SIZE_BYTES:
                return None
            limits = self._session.limits
            declared = _read_int32(whole, start)[0]
            self._check_size(_MPUB, declared)
            if available < 2 * SIZE_BYTES:
                return None
            count = check_message_count(_read_int32(whole, start + 4)[0], limits.max_body_size)
            after = start + SIZE_BYTES + declared
            if count <= SLICE_MESSAGES and after <= len(whole):
                first = start + 2 * SIZE_BYTES
                if after - first >= count * (SIZE_BYTES + 1):
                    body = cut_out(whole, first, after)
                    stride = uniform_stride(body, count)
                    if 0 < stride - SIZE_BYTES <= limits.max_msg_size:
                        return Mpub(self._params[1], body, count, stride), after
            walk = self._walk = MessageWalk(count, 2 * SIZE_BYTES, limits.max_msg_size, SIZE_BYTES + limits.max_body_size)
        if not walk.go_on(whole, start):
            self._needed = walk.needed
            return None
        if not walk.is_over:
            return SLICE_READ, start
        after = start + walk.offset
        parts = walk.parts(whole, start)
        if len(parts) == 1:
            return Mpub(self._params[1], *parts[0]), after
        return LargeMpub(self._params[1], parts, walk.count), after

    # ---- end of input

    def end_of_input(self) -> ClientError | None:
        """Return the error if the input ends inside a command's body, else None."""
        spec = self._spec
        if spec is None:
            return None
        available = len(self._gathered) or len(self._buffer) - self._position
        if spec.body != MULTI_BODY:
            missing = f"{spec.body_name} size" if available < SIZE_BYTES else spec.body_name
            return spec.body_error(f"{spec.name} failed to read {missing}")
        walk = self._walk
        if walk is None:
            return BadBody(f"MPUB failed to read {'body size' if available < SIZE_BYTES else 'message count'}")
        if available < walk.offset + SIZE_BYTES:
            return BadMessage(f"MPUB failed to read message({walk.index}) body size")
        return BadMessage("MPUB failed to read message body")


class GuardedParser(CommandParser):
    """A `CommandParser` with permissions. It is a separate class, so that the other one does no work for them."""

    __slots__ = ("_was_asked",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._was_asked = False

    @property
    def missing_body_bytes(self) -> int:
        """0: each body waits for a permission."""
        return 0

    def _command_line(self) -> Command | None:
        command = super()._command_line()
        if isinstance(command, Sub):
            return PermissionRequest("SUB", command.topic_name, command.channel_name, command)
        return command

    def _command_with_body(self) -> Command | None:
        spec = self._spec
        assert spec is not None
        topic_name = self._params[1] if spec.permission else b""
        if spec.permission == BEFORE_BODY and not self._was_asked:
            self._was_asked = True
            return PermissionRequest(spec.name, topic_name, b"", None)
        command = super()._command_with_body()
        if command is None or command is SLICE_READ:
            return command
        self._was_asked = False
        if spec.permission == AFTER_BODY:
            return PermissionRequest(spec.name, topic_name, b"", command)
        return command
