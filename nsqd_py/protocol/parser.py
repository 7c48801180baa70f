"""Turns bytes in any chunks into commands, or into the ClientError that the client gets.

    parser.feed(data)
    while (command := parser.next_command()) is not None:
        ...

A line is checked against the session before its body is read, and sizes are checked before memory is allocated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct

from nsqd_py.errors import BadBody, BadMessage, ClientError, Invalid, LineTooLong
from nsqd_py.protocol.batch import SIZE_BYTES, cut_out, uniform_stride
from nsqd_py.protocol.commands import (
    AFTER_BODY,
    BEFORE_BODY,
    COMMANDS,
    DPUB,
    MPUB,
    MULTI_BODY,
    PUB,
    SLICE_READ,
    Command,
    CommandSpec,
    Fin,
    LargeMpub,
    Params,
    PermissionRequest,
    Publish,
    Sub,
    defer_ns_of,
    words,
)
from nsqd_py.protocol.multi_body import SLICE_MESSAGES, MessageWalk, check_message_count
from nsqd_py.protocol.session import STATE_CLOSING, STATE_SUBSCRIBED, Limits, Session

# The largest body of IDENTIFY and AUTH: 5 MB of nested lists take 2 s to read, this much 2 ms.
MAX_JSON_BYTES = 64 * 1024
MAX_LINE_LENGTH = 16384  # the size of Go's read buffer, which limits a line there

_MPUB = COMMANDS[b"MPUB"]
_PUBLISHES = {"PUB": PUB, "MPUB": MPUB, "DPUB": DPUB}
# The most PUBs of one command, so that other clients get their turn; of FINs it is 512, since one that fails takes 4 us.
_MOST_PUBS = SLICE_MESSAGES
# The rest of a body is received in one read, and not copied, if it has between these numbers of bytes.
_LARGE_REST = 128 * 1024
_LARGEST_REST = 2 * 1024 * 1024
_match_fins = re.compile(rb"(?:FIN [0-9a-f]{16}\n){1,512}").match
_read_int32 = Struct(">i").unpack_from
_read_two_int32 = Struct(">ii").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class CommandParser:
    """The reading half of a connection: a state machine that is either at a line or inside a body.

    Inside a body (`_spec` is set) bytes are collected in `_gathered` until `_needed` bytes have arrived.

    next_read  the size of the next read that saves copies of large publishes: up to a body, or of its rest; 0: any size
    """

    _session: Session
    _buffer: bytes = b""
    _position: int = 0
    _pub_line: bytes = b""
    _pub: tuple[int, bytes, int] = (PUB, b"", 0)  # the kind, topic and delay of that line
    _pub_params: Params = field(default_factory=list)
    _spec: CommandSpec | None = None
    _params: Params = field(default_factory=list)
    _gathered: bytearray = field(default_factory=bytearray)
    _needed: int = 0
    _last_size: int = 0  # the bytes of the last body with its size; the next one is probably equal
    _rest: bytes = b""  # the end of a large body
    next_read: int = 0
    _walk: MessageWalk | None = None
    _limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self._limits = self._session.limits

    def feed(self, data: bytes) -> None:
        """Add received data. Before the next call, call `next_command` until it returns None."""
        if self._gathered:
            if len(data) == self.next_read:
                self._rest = data
            else:
                self._gathered += data
                self.next_read = max(0, self.next_read - len(data))
            return
        self.next_read = 0
        if self._position < len(self._buffer):
            data = self._buffer[self._position :] + data
        self._buffer = data
        self._position = 0

    def forget_pub(self) -> None:
        """Forget the line of the last publish, so that the next one is checked like the first."""
        self._pub_line = b""

    @property
    def is_idle(self) -> bool:
        """True if all received bytes are commands that were returned."""
        return self._spec is None and not self.has_unread

    def last_pub(self) -> tuple[bytes, int, str, int]:
        """Return the line of the last PUB or DPUB, which of these it is, its topic and its delay in ns.

        The line is empty if there is none, or if the next bytes are not the start of a command.
        """
        kind, topic_name, defer_ns = self._pub
        line = self._pub_line if kind != MPUB and self.is_idle else b""
        return line, kind, topic_name.decode(), defer_ns

    @property
    def awaited_mpub(self) -> bytes:
        """Return the topic of an MPUB whose body is incomplete or was refused; empty if there is none."""
        spec = self._spec
        if spec is not None and spec.body == MULTI_BODY:
            return self._params[1]
        return b""

    @property
    def gathered_bytes(self) -> int:
        """Return the memory of the part of an incomplete command that has arrived."""
        return len(self._gathered) + len(self._buffer) + len(self._rest)

    @property
    def has_unread(self) -> bool:
        """True if there are bytes that belong to no command yet."""
        return self._position < len(self._buffer) or bool(self._gathered)

    def unread(self) -> bytes:
        """Return the bytes that belong to no command yet."""
        return bytes(self._gathered) or self._buffer[self._position :]

    def take_unread(self) -> bytes:
        """Remove and return the bytes behind the last command: the connection has changed their encoding."""
        unread = self.unread()
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
        run: Command | None = None
        if self._pub_line and buffer.startswith(self._pub_line, position):
            if self._pub[0] == MPUB:
                run = self._mpub_like_last()
                if run is None:
                    self._position = position + len(self._pub_line)
                    run = self._begin_body(_MPUB, self._pub_params)
                return run
            run = self._pub_run()
        elif position >= len(buffer):
            self._buffer = b""  # an idle connection must hold no memory
            self._position = 0
            return None
        elif buffer.startswith(b"FIN ", position):
            run = self._fin_run()
        return run or self._command_line()

    # ---- runs of the commands that come by the thousand

    def _fin_run(self) -> Command | None:
        """Return all FINs from here on: 0.2 us each, where a line at a time takes 1.5 us."""
        state = self._session.state
        if state != STATE_SUBSCRIBED and state != STATE_CLOSING:
            return None
        match = _match_fins(self._buffer, self._position)
        if match is None:
            return None
        self._position = match.end()
        return Fin(match.group()[4:-1].split(b"\nFIN "))

    def _pub_run(self) -> Command | None:
        """Return all PUBs, or DPUBs, with the line of the last one from here on, as one body: 0.4 us each."""
        buffer = self._buffer
        line = self._pub_line
        position = self._position
        end = len(buffer)
        skip = len(line)
        largest = self._limits.max_msg_size
        kind, topic_name, defer_ns = self._pub
        parts: list[bytes] = []
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
        if len(parts) == 1:
            return Publish(kind, topic_name, parts[0], 1, len(parts[0]), defer_ns)
        body = b"".join(parts)
        return Publish(kind, topic_name, body, len(parts), uniform_stride(body, len(parts)), defer_ns)

    def _mpub_like_last(self) -> Command | None:
        """Return the MPUB with the line of the last one if all of it is here, and its messages are of one size: 1.3 us less."""
        buffer = self._buffer
        first = self._position + len(self._pub_line) + 2 * SIZE_BYTES
        if first > len(buffer):
            return None
        size, count = _read_two_int32(buffer, first - 2 * SIZE_BYTES)
        after = first - SIZE_BYTES + size
        if (
            not first < after <= len(buffer)
            or size > self._limits.max_body_size
            or not 0 < count <= SLICE_MESSAGES
        ):
            return None
        command = self._even_mpub(buffer[first:after], count, self._pub[1])
        if command is not None:
            self._position = after
        return command

    def _even_mpub(self, body: bytes, count: int, topic_name: bytes) -> Command | None:
        """Return an MPUB with these messages if they are of one size, else None. No walk: 10 of 27 us for 200 messages."""
        stride = uniform_stride(body, count)
        if 0 < stride - SIZE_BYTES <= self._limits.max_msg_size:
            return Publish(MPUB, topic_name, body, count, stride)
        return None

    # ---- one line

    def _command_line(self) -> Command | None:
        buffer = self._buffer
        position = self._position
        newline = buffer.find(b"\n", position)
        end = newline if newline >= 0 else len(buffer)
        if end - position >= MAX_LINE_LENGTH:
            raise LineTooLong("failed to read command - line too long")
        if newline < 0:
            return None
        line = buffer[position:newline].removesuffix(b"\r")
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
        kind = _PUBLISHES.get(spec.name)
        if kind is not None:  # the next publish probably has the same line
            defer_ns = defer_ns_of(params) if kind == DPUB else 0
            self._pub_line = buffer[position : newline + 1]
            self._pub_params = params
            self._pub = kind, params[1], defer_ns
        return self._begin_body(spec, params)

    def _begin_body(self, spec: CommandSpec, params: Params) -> Command | None:
        self._spec = spec
        self._params = params
        self._needed = SIZE_BYTES
        self._walk = None
        return self._command_with_body()

    # ---- bodies

    def _command_with_body(self) -> Command | None:
        spec = self._spec
        assert spec is not None
        whole: bytes | bytearray = self._buffer
        start = self._position
        if self._rest:
            rest, self._rest = self._rest, b""
            self.next_read = 0
            publish = self._end_body(spec, rest)
            if publish is not None:
                return publish
            self._gathered += rest
        if self._gathered:
            if len(self._gathered) < self._needed:
                return None
            whole = self._gathered
            start = 0
        is_multi = spec.make is None
        found = self._multi_body(spec, whole, start) if is_multi else self._sized_body(spec, whole, start)
        if found is None:
            if not self._gathered:
                self._gathered = bytearray(memoryview(self._buffer)[start:])
                self._buffer = b""
                self._position = 0
                missing = self._missing(spec)
                self.next_read = missing if _LARGE_REST <= missing <= _LARGEST_REST else 0
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
        self._last_size = 0
        if spec is not _MPUB and self._needed >= _LARGE_REST:
            self._last_size = self._needed
            self.next_read = len(self._pub_line)
        return command

    def _missing(self, spec: CommandSpec) -> int:
        """Return the number of bytes that complete the body; 0 if its size is unknown and that of the last body is no help."""
        here = len(self._gathered)
        if not here:
            return self._last_size
        head_bytes = 2 * SIZE_BYTES if spec is _MPUB else SIZE_BYTES
        if here < head_bytes:
            return 0
        size: int = _read_int32(self._gathered, 0)[0]
        return SIZE_BYTES + size - here

    def _sized_body(
        self, spec: CommandSpec, whole: bytes | bytearray, start: int
    ) -> tuple[Command, int] | None:
        if len(whole) - start < SIZE_BYTES:
            return None
        size = _read_int32(whole, start)[0]
        self._check_size(spec, size)
        self._needed = SIZE_BYTES + size
        after = start + self._needed
        if len(whole) < after:
            return None
        assert spec.make is not None
        return spec.make(self._params, cut_out(whole, start, after)), after

    def _check_size(self, spec: CommandSpec, size: int) -> None:
        limits = self._limits
        if spec.body_error is BadMessage:
            if size <= 0:
                raise BadMessage(f"{spec.name} invalid message body size {size}")
            if size > limits.max_msg_size:
                raise BadMessage(f"{spec.name} message too big {size} > {limits.max_msg_size}")
        else:
            largest = limits.max_body_size
            if not spec.is_large and size <= largest:
                largest = min(largest, MAX_JSON_BYTES)
            if size > largest:
                raise BadBody(f"{spec.name} body too big {size} > {largest}")
            if size <= 0:
                raise BadBody(f"{spec.name} invalid body size {size}")

    def _multi_body(
        self, spec: CommandSpec, whole: bytes | bytearray, start: int
    ) -> tuple[Command, int] | None:
        """Walk one slice of the messages. Their sizes, not the declared size, determine the end of the body."""
        walk = self._walk
        if walk is None:
            available = len(whole) - start
            if available < SIZE_BYTES:
                return None
            limits = self._limits
            declared = _read_int32(whole, start)[0]
            self._check_size(spec, declared)
            if available < 2 * SIZE_BYTES:
                return None
            count = check_message_count(_read_int32(whole, start + 4)[0], limits.max_body_size)
            first = start + 2 * SIZE_BYTES
            after = start + SIZE_BYTES + declared
            if count <= SLICE_MESSAGES and first + count * (SIZE_BYTES + 1) <= after <= len(whole):
                command = self._even_mpub(cut_out(whole, first, after), count, self._params[1])
                if command is not None:
                    return command, after
            walk = MessageWalk(count, 2 * SIZE_BYTES, limits.max_msg_size, SIZE_BYTES + limits.max_body_size)
            self._walk = walk
        if not walk.go_on(whole, start):
            self._needed = walk.needed
            return None
        if not walk.is_over:
            return SLICE_READ, start
        after = start + walk.offset
        parts = walk.parts(whole, start)
        if len(parts) == 1:
            return Publish(MPUB, self._params[1], *parts[0]), after
        return LargeMpub(self._params[1], parts, walk.count), after

    def _end_body(self, spec: CommandSpec, rest: bytes) -> Command | None:
        """Return the command that ends with `rest`; copy nothing if only its head came before. None for some MPUBs."""
        head_bytes = 0 if spec.make is not None else 2 * SIZE_BYTES
        count = _read_int32(self._gathered, SIZE_BYTES)[0] if head_bytes else 1
        if count > SLICE_MESSAGES:
            return None
        with memoryview(self._gathered) as gathered:
            body = b"".join((gathered[head_bytes:], rest)) if len(gathered) > head_bytes else rest
        if spec.make is not None:
            command: Command | None = spec.make(self._params, body)
        else:
            command = self._even_mpub(body, count, self._params[1])
        if command is not None:
            self._gathered = bytearray()
            self._spec = None
            self._last_size = 0 if head_bytes else len(body)
            self.next_read = len(self._pub_line) + head_bytes
        return command

    # ---- end of input

    def end_of_input(self) -> ClientError | None:
        """Return the error if the input ends inside a command's body, else None."""
        spec = self._spec
        if spec is None:
            return None
        available = len(self._gathered) or len(self._buffer) - self._position
        if spec.body != MULTI_BODY:
            body = "message body" if spec.body_error is BadMessage else "body"
            return spec.body_error(
                f"{spec.name} failed to read {body}{' size' if available < SIZE_BYTES else ''}"
            )
        walk = self._walk
        if walk is None:
            return BadBody(
                f"MPUB failed to read {'body size' if available < SIZE_BYTES else 'message count'}"
            )
        if available < walk.offset + SIZE_BYTES:
            return BadMessage(f"MPUB failed to read message({walk.index}) body size")
        return BadMessage("MPUB failed to read message body")


class GuardedParser(CommandParser):
    """A `CommandParser` with permissions. It is a separate class, so that the other one does no work for them."""

    __slots__ = ("_was_asked",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._was_asked = False

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
