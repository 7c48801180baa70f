"""A client of the TCP protocol.

The parser turns received bytes into commands, the session holds the client's state, and `commands` has the handlers.
Answers and messages are collected in `out` and sent in one call at the end of the event-loop iteration.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.batch import SIZE_BYTES
from nsqd_py.broker.broker import Broker
from nsqd_py.errors import BadBody, BadMessage, ClientError, LineTooLong
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.socket_buffers import SMALL_READ
from nsqd_py.net.transport import EarlyAnswers
from nsqd_py.protocol import MAGIC_V2, frames
from nsqd_py.protocol.commands import PUB, Command, Mpub, words
from nsqd_py.protocol.parser import CommandParser, GuardedParser
from nsqd_py.protocol.session import STATE_STANDBY, Limits
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.in_flight import InFlightTable
from nsqd_py.queue.position import GLOBAL
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log
from nsqd_py.tcp.client_stream import ClientStream
from nsqd_py.tcp.commands import MS_NS, Throttled, await_mpub, execute, fin, mpub, publish_error

if TYPE_CHECKING:
    from nsqd_py.auth.guard import Guard, Step
    from nsqd_py.auth.permissions import Authorization

# A client counts as the only active one after this number of consecutive reads.
ALONE_AFTER_READS = 16
_LINGER_PUBS = 8
# A wait in vain takes 100 us, a successful one saves about 40: each attempt in vain uses up the credit of 3 others.
_COST_OF_WAIT_IN_VAIN = 3
_MOST_CREDIT = 32
# While there is no credit, the number of reads between two attempts doubles up to this.
_MOST_READS_BETWEEN = 4096
# MPUB bodies between these sizes are received with reads of their exact size.
_LARGE_BODY_BYTES = 128 * 1024
_LARGEST_BODY_BYTES = 1024 * 1024


class ClientConnection(ClientStream):
    """A producer or consumer. Its channel uses it as a `Consumer`."""

    __slots__ = (
        "_alarm",
        "_alone_after_reads",
        "_budget",
        "_failed_ticket",
        "_last_topic",
        "_last_topic_name",
        "_lone_bytes",
        "_magic_so_far",
        "_parser",
        "_pieces",
        "_pub_counts",
        "_reads_alone",
        "_usual_count",
        "_usual_head",
        "_usual_size",
        "_usual_stride",
        "_usual_topic",
        "_wait_credit",
        "channel",
        "connect_time",
        "early",
        "finish_count",
        "guard",
        "has_turn",
        "in_flight",
        "is_waiting",
        "message_count",
        "msg_timeout_ns",
        "nearness",
        "rdy",
        "requeue_count",
        "sample_rate",
        "topic",
    )

    def __init__(
        self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log, broker: Broker, limits: Limits
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, broker, limits)
        self._budget = broker.memory
        self._magic_so_far = b""
        self._parser: CommandParser | None = None
        self._alarm = broker.alarms.alarm(self._on_deadline)
        self.topic: Topic | None = None
        self.guard: Guard | None = None
        self.has_turn = False  # to create a topic or channel, for which it has waited
        self._failed_ticket = sys.maxsize
        self._last_topic: Topic | None = None
        self._last_topic_name = b""
        self._usual_head = self._usual_size = b""
        self._usual_topic: Topic | None = None
        self._usual_count = self._usual_stride = 0
        self._lone_bytes = 0
        self._reads_alone = 0
        self._alone_after_reads = ALONE_AFTER_READS
        self._wait_credit = 0
        self._pieces: list[bytes] = []
        self.early = EarlyAnswers(self.out)
        self.channel: Channel | None = None
        self.in_flight = InFlightTable()
        self.is_waiting = False
        self.rdy = 0
        self.msg_timeout_ns = self.session.msg_timeout_ms * MS_NS
        self.sample_rate = 0
        self.nearness = GLOBAL
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self._pub_counts: dict[str, int] = defaultdict(int)
        self.connect_time = time.time()

    # ---- bytes in

    def on_data(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self._on_magic(data)
            return
        iteration = self._iteration
        if self._publish_lone(parser, data):
            self.is_quick = True
            if len(data) != self._lone_bytes:
                self._lone_bytes = len(data)
            elif parser.pub_kind == PUB and self._layer is None and len(data) != self._read_size:
                self._expect_more_like(parser, data)
            if iteration.last_reader is not self:
                iteration.last_reader = self
                self._reads_alone = 0
            else:
                self._note_read_alone(parser)
            return
        iteration.last_reader = None
        if self.channel is not None and not self._is_slow and (ids := parser.lone_fins(data)) is not None:
            self._heard_s = self._loop.now()
            fin(self, ids)
            self.is_quick = True
            return
        parser.feed(data)
        if iteration.backlog.has_time():
            self._run_commands(parser)
        else:
            self._fall_behind()

    def _expect_more_like(self, parser: CommandParser, data: bytes) -> None:
        """Let `on_usual_data` handle further PUBs with the topic and the size of this one."""
        self._count_usual()
        head_bytes = parser.pub_head_bytes
        self._usual_head = data[:head_bytes]
        self._usual_size = data[head_bytes - SIZE_BYTES : head_bytes]
        self._usual_stride = len(data) - head_bytes + SIZE_BYTES
        self._usual_topic = self._last_topic
        self.usual_bytes = len(data)

    def on_usual_data(self, data: bytes) -> bool:
        """Publish one more PUB with the topic and the size of the last one, in 1 us less than `_publish_lone`."""
        message = data.removeprefix(self._usual_head)
        topic = self._usual_topic
        if message is data or topic is None or topic.is_closed:
            return False
        out = self.out
        ticket = self.early.ticket(PUB) if out else PUB  # saves a call
        topic.publish_like_last(self._usual_size, message, self._usual_stride, self, ticket)
        out.append(frames.OK)
        iteration = self._iteration
        if not self._in_iteration:
            self._in_iteration = True
            iteration.add_flusher(self)
        self._heard_s = iteration.now_s
        self._usual_count += 1
        if iteration.last_reader is not self:
            iteration.last_reader = self
            self._reads_alone = 0
        else:
            assert self._parser is not None
            self._note_read_alone(self._parser)
        return True

    def _count_usual(self) -> None:
        """Add the publishes of `on_usual_data` to the counts by topic, which take 0.3 us more each time."""
        if self._usual_count:
            assert self._usual_topic is not None
            self._pub_counts[self._usual_topic.name] += self._usual_count
            self._usual_count = 0

    @property
    def pub_counts(self) -> dict[str, int]:
        """The number of published messages by topic."""
        self._count_usual()
        return self._pub_counts

    def _publish_lone(self, parser: CommandParser, data: bytes) -> bool:
        """Publish `data` if it is one PUB or DPUB with a known line. Otherwise return False.

        This takes 2 us less than a parsed command.
        """
        body = parser.lone_pub(data)
        if body is None:
            return False
        topic = self._last_topic
        if topic is None or parser.pub_topic is not self._last_topic_name or topic.is_closed:
            topic = self._find_topic(parser)
            if topic is None:
                return False
        self._heard_s = self._loop.now()
        self._pub_counts[topic.name] += 1
        topic.publish(body, 1, len(body), self, self.early.ticket(parser.pub_kind), parser.pub_defer_ns)
        self.out.append(frames.OK)
        if not self._in_iteration:
            self._in_iteration = True
            self._iteration.add_flusher(self)
        return True

    def _publish_at_once(self, parser: CommandParser, data: bytes) -> bool:
        """Do the same and end the event-loop iteration. If possible, answer before the bookkeeping: 2 us less."""
        iteration = self._iteration
        if not self.out and (body := parser.lone_pub(data)) is not None and (topic := self._find_topic(parser)):
            batch = topic.write_alone(body, parser.pub_defer_ns)
            if batch is not None:
                self._hand_to_socket(frames.OK)
                topic.accept_written([batch], [])
                self._pub_counts[topic.name] += 1
                if iteration.is_coming:  # a channel has a consumer for it
                    iteration.end()
                return True
        if not self._publish_lone(parser, data):
            return False
        iteration.end()
        return True

    def _find_topic(self, parser: CommandParser) -> Topic | None:
        """Return the topic of the last PUB line; None if a parsed command must create it, or report an error."""
        self._last_topic_name = parser.pub_topic
        self._last_topic = self.broker.open_topics.get(parser.pub_topic.decode())
        return self._last_topic

    def on_exact_data(self, data: bytes) -> None:
        """Handle the head of one of several consecutive large MPUBs, or a piece of its body.

        The received body becomes the body of the batch without a copy, or with one copy if it arrived in pieces. The
        usual way copies it twice, each time into new memory: with messages of 64 KiB this takes twice the time.
        """
        parser = self._parser
        assert parser is not None
        self._iteration.last_reader = None
        if parser.missing_body_bytes:
            self._pieces.append(data)
            self._exact_bytes -= len(data)
            if not self._exact_bytes:
                self._take_large_mpub(parser)
            return
        self._exact_bytes = 0
        parser.feed(data)
        self._run_commands(parser)
        size_bytes = parser.missing_body_bytes
        if _LARGE_BODY_BYTES <= size_bytes <= _LARGEST_BODY_BYTES and not self._is_behind and not self.closed:
            self._exact_bytes = size_bytes

    def _take_large_mpub(self, parser: CommandParser) -> None:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        try:
            command = parser.take_mpub(body)
            if command is None:  # it has too many messages for one batch, or is invalid
                self._end_pieces(parser)
                return
            self._pieces.clear()
            self._heard_s = self._loop.now()
            mpub(self, command)
            self._exact_bytes = parser.mpub_head_bytes
        except ClientError as error:
            self._pieces.clear()
            self.answer_error(error)
        except Throttled as throttled:
            self._execute_later(throttled)

    def _end_pieces(self, parser: CommandParser) -> None:
        """Pass the received pieces of a body to the parser, and return to reads of the usual size."""
        self._exact_bytes = 0
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            parser.feed(b"".join(pieces))
            self._run_commands(parser)

    def _note_read_alone(self, parser: CommandParser) -> None:
        self._reads_alone += 1
        if self._reads_alone > self._alone_after_reads and self._layer is None:
            self._linger(parser)

    def _linger(self, parser: CommandParser) -> None:
        """Wait briefly for the next PUB of a client that publishes one message at a time, while no other is active.

        The event loop takes 50 to 200 us to wake up on a virtual machine; the client sends its next PUB after 12 us.
        While most waits are in vain, it is tried less and less often.
        """
        iteration, receive = self._iteration, self._sock.recv
        iteration.end()
        for _ in range(_LINGER_PUBS):
            if self._holds or self._closing or self._unsent is not None:  # waits for a sync, or for the client to read
                return
            if not iteration.wait_briefly():
                self._wait_credit -= _COST_OF_WAIT_IN_VAIN
                if self._wait_credit < 0:
                    self._wait_credit = self._reads_alone = 0
                    self._alone_after_reads = min(2 * self._alone_after_reads, _MOST_READS_BETWEEN)
                return
            self._wait_credit = min(self._wait_credit + 1, _MOST_CREDIT)
            try:
                data = receive(SMALL_READ)
            except OSError:  # another connection has input; or the next read of the event loop reports the error
                return
            if not data:
                self.on_end()
                return
            if not self._publish_at_once(parser, data):
                iteration.last_reader = None
                self.usual_bytes = -1
                parser.feed(data)
                self._run_commands(parser)
                return
        self._alone_after_reads = ALONE_AFTER_READS

    def _run_commands(self, parser: CommandParser) -> None:
        """Execute received commands for one time slice; the backlog continues in later iterations."""
        if self._is_slow and self._must_wait():
            return
        until_s = perf_counter() + self._iteration.backlog.slice_s
        while not self._closing and not self._is_paused:
            try:
                command = parser.next_command()
                if command is None:
                    if parser.awaited_mpub:
                        await_mpub(self, parser.awaited_mpub)
                    self._catch_up()
                    return
                if isinstance(command, Mpub) and len(command.body) >= _LARGE_BODY_BYTES and self._layer is None:
                    self._exact_bytes = parser.mpub_head_bytes
                self._heard_s = self._loop.now()  # only complete commands count as a sign of life
                execute(self, command)
            except ClientError as error:
                if parser.awaited_mpub and isinstance(error, (BadBody, BadMessage)):
                    await_mpub(self, parser.awaited_mpub)
                self.answer_error(error)
            except Throttled as throttled:
                self._execute_later(throttled)
            except LineTooLong as error:
                self.close(str(error))
                return
            if perf_counter() >= until_s and parser.has_unread:
                self._fall_behind()
                return

    def _execute_later(self, throttled: Throttled) -> None:
        """Execute the command, and those after it, when the turn of this client has come."""
        self.log.of_clients.info("client(%s) creates many topics or channels, it waits for %.1f s", self.peer, throttled.wait_s)
        self.pause()
        gevent.spawn_later(throttled.wait_s, self._use_turn, throttled.command)

    def _use_turn(self, command: Command) -> None:
        if not self.closed:
            self.go_on(partial(self._execute_in_turn, command))

    def _execute_in_turn(self, command: Command) -> None:
        self.has_turn = True
        try:
            execute(self, command)
        finally:
            self.has_turn = False

    def act(self) -> None:
        """Execute more of the received commands."""
        assert self._parser is not None
        self._run_commands(self._parser)

    def _on_magic(self, data: bytes) -> None:
        """Handle the first four bytes, which name the client's protocol."""
        data = self._magic_so_far + data
        if len(data) < len(MAGIC_V2):
            self._magic_so_far = data
            return
        magic = data[: len(MAGIC_V2)]
        self.log.of_clients.info("CLIENT(%s): desired protocol magic '%s'", self.peer, words(magic))
        if magic != MAGIC_V2:
            self.log.of_clients.error("client(%s) bad protocol magic '%s'", self.peer, words(magic))
            self.send(frames.BAD_PROTOCOL)
            self.close_when_sent()
            return
        self._parser = CommandParser(self.session, self.broker.known_lines) if self.guard is None else GuardedParser(self.session)
        self.has_protocol = True
        self.broker.clients[self] = None
        self._budget.share_room(len(self.broker.clients))
        self._heard_s = self._loop.now()
        self.set_heartbeat()
        if len(data) > len(MAGIC_V2):
            self.on_data(data[len(MAGIC_V2) :])

    def on_end(self) -> None:
        if self.check_slow_body() and self._closing:
            return
        error = self._parser.end_of_input() if self._parser is not None else None
        if error is not None:
            self.answer_error(error)
        else:
            self.close_when_sent()

    def take_unread(self) -> bytes:
        assert self._parser is not None
        return self._parser.take_unread()

    def check_slow_body(self) -> bool:
        if not self._pieces or self._parser is None:
            return False
        self._end_pieces(self._parser)
        return True

    # ---- authorization

    def require_auth(self, guard: Guard) -> None:
        """Restrict the client to what `guard` permits. Call it before `start`."""
        self.guard = guard

    @property
    def authorization(self) -> Authorization | None:
        """The client's authorization, or None before AUTH."""
        return self.guard.authorization if self.guard is not None else None

    def pause(self) -> None:
        """Neither read, execute commands nor send until `go_on`."""
        self._is_paused = True
        self.forget_pub()
        self.hold()

    def go_on(self, step: Step) -> None:
        """End the pause: call `step`, which may raise ClientError, then execute the commands after it."""
        assert self._parser is not None
        self._is_paused = False
        self._heard_s = self._loop.now()  # the pause does not count as silence of the client
        self.release()
        try:
            step()
        except ClientError as error:
            self.answer_error(error)
        except Throttled as throttled:
            self._execute_later(throttled)
        self._run_commands(self._parser)

    def forget_pub(self) -> None:
        """Parse the next PUB as a command, because the client's permissions may have changed."""
        assert self._parser is not None
        self.usual_bytes = -1
        self._parser.forget_pub()

    def revoke(self, error: ClientError) -> None:
        """Send no more messages, and close with the error; at once if the client does not read what was sent."""
        self.rdy = 0
        if self._unsent is not None:
            self.abort(str(error))
        else:
            self.answer_error(error)

    def publish_failed(self, ticket: int, error: OSError) -> None:
        """Withdraw the answer to a publish that was not written, and all answers after it; send an error and close.

        Publishes may fail in another order than they came, if their topics differ: the error is that of the first one.
        """
        if self.closed or ticket >= self._failed_ticket:
            return
        self._failed_ticket = ticket
        self.early.withdraw(ticket)
        self.answer_error(publish_error(self.early.kind_of(ticket), error))

    def forget_topic(self) -> None:
        """Look the topic up again at the next publish, because it may be closed."""
        self.usual_bytes = -1
        self._last_topic = None

    # ---- the channel's view

    def capacity(self) -> int:
        """Return the number of messages that may be sent to it now."""
        if self.queued_bytes >= self._budget.room_bytes:
            return 0
        return self.rdy - len(self.in_flight)

    def room_bytes(self) -> int:
        return self._budget.room_bytes - self.queued_bytes

    def send_frames(self, parts: list[frames.Part], size_bytes: int) -> None:
        if self._unsent is not None or self._holds:  # these wait, and a view would keep its whole batch in memory
            self.out += map(bytes, parts)
        else:
            self.out += parts
        self.queued_bytes += size_bytes
        self.want_flush()

    def maybe_ready(self) -> None:
        if not self.is_waiting and self.channel is not None and self.capacity() > 0:
            self.channel.client_ready(self)

    def on_drained(self) -> None:
        """Accept messages again when the socket has taken all output."""
        if not self.out:
            self.queued_bytes = 0
            if not self.closed:
                self.maybe_ready()

    # ---- time

    def watch_deadline(self, deadline_ns: int) -> None:
        self._alarm.set_no_later(deadline_ns)

    def _on_deadline(self, now_ns: int) -> None:
        """Requeue in-flight messages that have timed out."""
        channel = self.channel
        if channel is None or self.closed:
            return
        if channel.expire(self.in_flight, now_ns):
            self.maybe_ready()
        self._alarm.set(self.in_flight.next_deadline_ns)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of unsent messages and answers, and of a command that is not complete."""
        received = self._parser.gathered_bytes if self._parser is not None else 0
        return max(super().buffered_bytes, self.queued_bytes) + received + sum(map(len, self._pieces))

    # ---- the end

    def on_close(self, reason: str) -> None:
        self.log.of_clients.info("PROTOCOL(V2): [%s] exiting ioloop - %s", self.peer, reason)
        self._heartbeat.close()
        self._alarm.close()
        if self.guard is not None:
            self.guard.close()
            self.guard = None  # they refer to each other
        if self.session.state == STATE_STANDBY:
            self.broker.replication.detach(self)
        self.broker.clients.pop(self, None)
        self._budget.share_room(len(self.broker.clients))
        channel, topic = self.channel, self.topic
        if channel is not None and topic is not None:
            self.broker.client_left(topic, channel, self)
