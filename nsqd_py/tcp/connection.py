"""The connection of a client: received bytes become commands, and commands act on topics and channels.

Answers and messages are collected in `out`, and sent in one call at the end of the event-loop iteration.
"""

from __future__ import annotations

import socket
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import BadBody, BadMessage, ClientError, LineTooLong
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.protocol import MAGIC_V2, frames
from nsqd_py.protocol.commands import Command, words
from nsqd_py.protocol.parser import CommandParser, GuardedParser
from nsqd_py.protocol.session import Limits
from nsqd_py.runtime.logs import Log
from nsqd_py.tcp.client import Client
from nsqd_py.tcp.commands import HANDLERS, Throttled, await_mpub

if TYPE_CHECKING:
    from nsqd_py.auth.guard import Step

# After whole commands that took less than this, the next are read without asking whether this iteration has time.
_QUICK_S = 50e-6


class ClientConnection(Client):
    """A client that sends commands."""

    __slots__ = ("_magic_so_far", "_parser")

    def __init__(
        self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log, broker: Broker, limits: Limits
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, broker, limits)
        self._magic_so_far = b""
        self._parser: CommandParser | None = None

    def on_data(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self._on_magic(data)
            return
        parser.feed(data)
        if self._iteration.backlog.is_working:  # what is read in a turn of the backlog waits for another turn
            self._fall_behind()
        else:
            self._run_commands(parser)

    def _run_commands(self, parser: CommandParser) -> None:
        """Execute received commands for one time slice; the backlog continues in later iterations."""
        if self._is_slow and self._must_wait():
            return
        began_s = perf_counter()
        while not self._closing and not self._is_paused:
            try:
                command = parser.next_command()
                if command is None:
                    if parser.awaited_mpub:
                        await_mpub(self, parser.awaited_mpub)
                    break
                self._heard_s = self._loop.now()  # only complete commands count as a sign of life
                HANDLERS[type(command)](self, command)
            except ClientError as error:
                if parser.awaited_mpub and isinstance(error, (BadBody, BadMessage)):
                    await_mpub(self, parser.awaited_mpub)
                self.answer_error(error)
            except Throttled as throttled:
                self._execute_later(throttled)
            except LineTooLong as error:
                self.close(str(error))
                return
            if perf_counter() - began_s >= self._iteration.backlog.slice_s and parser.has_unread:
                self._fall_behind()
                return
        else:
            return
        self.is_quick = parser.is_idle and perf_counter() - began_s < _QUICK_S
        self._exact_read = parser.next_read if self._layer is None else 0
        if self._is_behind:
            self._catch_up()

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
            HANDLERS[type(command)](self, command)
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
        self._parser = CommandParser(self.session) if self.guard is None else GuardedParser(self.session)
        self.has_protocol = True
        self.broker.clients[self] = None
        self._budget.share_room(len(self.broker.clients))
        self._heard_s = self._loop.now()
        self.set_heartbeat()
        if len(data) > len(MAGIC_V2):
            self.on_data(data[len(MAGIC_V2) :])

    def on_end(self) -> None:
        error = self._parser.end_of_input() if self._parser is not None else None
        if error is not None:
            self.answer_error(error)
        else:
            self.close_when_sent()

    def take_unread(self) -> bytes:
        assert self._parser is not None
        return self._parser.take_unread()

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
        self._parser.forget_pub()

    @property
    def buffered_bytes(self) -> int:
        """The bytes of unsent messages and answers, and of a command that is not complete."""
        received = self._parser.gathered_bytes if self._parser is not None else 0
        return super().buffered_bytes + received
