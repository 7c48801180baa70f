"""One HTTP connection: it parses requests and answers them in the order in which they arrived.

A request whose handler never blocks is answered at once, in the loop's callback that read it. All others are
handled by a greenlet of the connection, the worker. While it works, the connection reads nothing, and requests that
were read already wait in a queue.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic

import gevent
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from nsqd_py.errors import HttpError, LayerError
from nsqd_py.net.addresses import host_of
from nsqd_py.net.http import answers, browsers, encoding, failures
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.handling import (
    MAX_HEAD_BYTES,
    Head,
    Refused,
    check_route,
    is_quick,
    log_answer,
    perform,
)
from nsqd_py.net.http.router import App, Request, Router, Target
from nsqd_py.net.limits import BODY, HEAD, IDLE, TimeLimits
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import DEAF, HELD, OUTPUT, EarlyAnswers, Stream
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import ONE_ROUND_S

# Bytes that may arrive without completing a head or adding to a body: heads and trailers.
MAX_STALLED_BYTES = MAX_HEAD_BYTES + 256 * 1024
# A piece of pipelined requests, of about 0.5 ms.
_PIECE_BYTES = 2048
# Unread bytes of a refused request's body that are skipped to keep the connection, as in Go.
MAX_SKIPPED_BYTES = 256 * 1024
# Bytes of answers to one read that are made at once: about 100 short ones, in 2 ms; the worker makes the rest.
QUICK_ANSWERS_BYTES = 16 * 1024
# Above this, a client that sends many requests at once has to take some answers before more are made.
MAX_ANSWERS_BYTES = 1 << 20
TAKEN_POLL_S = 0.01
# The slowest rate of a body. Its first `head_s` seconds are free.
MIN_BODY_BYTES_PER_S = 1024
# Time in which a refused client may still send, so that it reads the answer instead of a reset, as in Go.
LINGER_S = 0.5

# The phases of reading a request. In both phases of its body, its head is complete.
_NEW: Final = 0  # nothing has arrived on this connection
_AT_START: Final = 1
_IN_HEAD: Final = 2
_IN_BODY: Final = 3
_OWES_CONTINUE: Final = 4  # in the body, which the client may send only after it gets 100 Continue
_TIME_OUT_REASON = {_NEW: HEAD, _AT_START: IDLE, _IN_HEAD: HEAD, _IN_BODY: BODY, _OWES_CONTINUE: BODY}


class HttpConnection(Stream, Generic[App]):
    """A client of the HTTP API of some program.

    _begun           number of requests that the parser has seen begin
    _rest            a request, and what yields the remaining pieces of its long answer
    _phase           the phase of reading a request: new, at its start, in its head, in its body
    _request         the request whose body is read; None also while a body is skipped
    _since_s         when a sweep first saw the connection wait for its current input; 0 if none did
    _answered_bytes  size of the answers to the last read
    queued_bytes     size of the long answers that the client has not taken
    _late            input that waits for its turn in the backlog
    _worker          the greenlet that handles requests that may block, and those behind them
    """

    __slots__ = (
        "_answered_bytes",
        "_app",
        "_begun",
        "_body_bytes",
        "_head",
        "_late",
        "_linger_timer",
        "_loop",
        "_parser",
        "_phase",
        "_queue",
        "_request",
        "_rest",
        "_router",
        "_since_s",
        "_stalled_bytes",
        "_worker",
        "early",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: Any,
        iteration: LoopIteration,
        log: Log,
        app: App,
        router: Router[App],
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log)
        self._loop = loop
        self._app = app
        self._router = router
        app.http_clients[self] = None
        self._parser: HttpRequestParser | None = None
        self._head = Head()
        self._phase = _NEW
        self._since_s = 0.0
        self._body_bytes = 0
        self._answered_bytes = 0
        self._begun = 0
        self._stalled_bytes = 0
        self._request: Request[App] | None = None
        self._late = b""
        self._linger_timer: Any = None
        self._queue: deque[Request[App]] = deque()
        self._worker: Any = None
        self._rest: tuple[Request[App], Iterator[bytes]] | None = None
        self.early = EarlyAnswers(self.out)

    @property
    def received_bytes(self) -> int:
        """The bytes of a request that is not complete: of its head, or of its body."""
        if self._phase == _IN_HEAD:
            return self._stalled_bytes
        if self._request is not None:
            return sum(map(len, self._request.parts))
        return 0

    # ---- bytes in

    def on_data(self, data: bytes) -> None:
        if self.state >= DEAF:
            return
        # The client does not take its answers: handle this input, but read no more.
        if self._unsent is not None:
            self._stop_reading(OUTPUT)
        if self._phase <= _AT_START and self._worker is None:
            self._phase = _AT_START
            self._since_s = 0.0
            data = self.take_known(data)
        if not data:
            self.is_quick = True
        elif self._iteration.backlog.has_time():
            self._parse(data)
        else:
            self._late = data
            self._fall_behind()

    def act(self) -> None:
        data, self._late = self._late, b""
        self._catch_up()
        self._parse(data)

    def take_known(self, data: bytes) -> bytes:
        """Answer requests that need no parsing; return the rest of the data. Called at the start of a request."""
        return data

    def _parse(self, data: bytes) -> None:
        """Parse data for one time slice. The rest, of a client that sends many requests at once, waits in the backlog."""
        self._answered_bytes = 0
        offset = 0
        view = memoryview(data)
        end_s = time.perf_counter() + self._iteration.backlog.slice_s
        while offset < len(data) and self.state < DEAF:
            if self._parser is None:
                self._parser = HttpRequestParser(self)
            piece = view[offset : offset + self._piece_bytes()]
            try:
                rest = self._feed(self._parser, piece)
            except HttpParserCallbackError:
                raise
            except HttpParserError:
                self._on_malformed()
                return
            self._stalled_bytes += len(piece) - len(rest)
            offset += len(piece) - len(rest)
            if self._stalled_bytes > MAX_STALLED_BYTES and self.state < DEAF:
                self._refuse_bytes(answers.refused_by_http(431))
            elif offset < len(data) and self.state < DEAF and time.perf_counter() >= end_s:
                self._late = data[offset:]
                self._fall_behind()
                return

    def _piece_bytes(self) -> int:
        """Return how much to parse before reading the clock: the rest of a body is one piece."""
        if self._phase < _IN_BODY:
            return _PIECE_BYTES
        return max(_PIECE_BYTES, self._head.content_length - self._body_bytes)

    def _feed(self, parser: HttpRequestParser, data: memoryview) -> memoryview | bytes:
        """Parse data; return the rest after a head that asks for another protocol. Raises HttpParserError."""
        try:
            parser.feed_data(data)
            return b""
        except HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        if self.state < DEAF:
            # There is no other protocol here: continue after the head, with a copy of it that asks for no upgrade.
            self._parser = HttpRequestParser(self)
            self._parser.feed_data(self._head.without_upgrade())
        return rest

    def on_end(self) -> None:
        if self._worker is not None:
            self._stop_reading(HELD)  # when the worker is done, the end is read again
        elif self.state >= DEAF or self._phase <= _AT_START:
            self._enter(DEAF)
            self.close_when_sent()
        else:
            self._on_malformed()

    # ---- callbacks of the parser

    def on_message_begin(self) -> None:
        self._begun += 1
        self._phase = _IN_HEAD
        self._stalled_bytes = 0
        self._head = Head()

    def on_url(self, url: bytes) -> None:
        self._head.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _IN_HEAD:  # else a trailer
            self._head.add(name, value)

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        self._phase = _IN_BODY
        self._since_s = 0.0
        self._body_bytes = 0
        self._stalled_bytes = 0
        if self.state >= DEAF:
            return
        head = self._head
        head.method = parser.get_method().decode("ascii")
        head.version = parser.get_http_version()
        head.keep_alive = parser.should_keep_alive() and head.method != "CONNECT"
        if parser.should_upgrade() and head.method != "CONNECT":
            return
        try:
            head.check()
        except Refused as refused:
            self._refuse_bytes(refused.reply)
            return
        self._begin_request(head)

    def on_body(self, body: bytes) -> None:
        self._stalled_bytes = 0
        self._body_bytes += len(body)
        request = self._request
        if request is None:
            return
        request.size_bytes += len(body)
        if request.size_bytes > request.size_limit:
            self._request = None
            self._refuse(request, answers.failure(HttpError(413, request.route.body.too_big)))
        elif request.route.body.limit is not None:
            request.keep(body)

    def on_message_complete(self) -> None:
        self._phase = _AT_START
        self._since_s = 0.0
        self._stalled_bytes = 0
        request = self._request
        if request is not None:
            self._request = None
            self._dispatch(request)

    # ---- requests

    def _begin_request(self, head: Head) -> None:
        """Refuse a request by its head, which is complete and valid, or begin to read its body."""
        url = head.url.decode("latin-1")
        target = self._router.resolve(head.method, url)
        request = Request(self._app, self, head.method, url, target, head.version == "1.0", head.keep_alive)
        reply = (
            self.check_client()
            or self._check_browser(head)
            or request.target.reply
            or check_route(request, head, self.peer)
        )
        if reply is not None:
            self._refuse(request, reply)
            return
        self._request = request
        if head.expects_continue:
            self._phase = _OWES_CONTINUE
            self._send_continue()

    def check_client(self) -> Reply | None:
        """Return the answer to all requests of a client that may not use the API; None for others."""
        return None

    def _check_browser(self, head: Head) -> Reply | None:
        """Return the refusal of a request that may be the work of a foreign web page; None for others."""
        message = browsers.refusal(head.method, head.url, head.fields, self._app.known_hosts)
        if message is not None:
            return answers.failure(HttpError(403, message))
        return None

    def _refuse(self, request: Request[App], reply: Reply) -> None:
        """Answer a request without its body. The body is skipped; if it is too long, the connection ends."""
        head = self._head
        request.reply = reply
        if head.is_chunked or head.expects_continue or head.content_length > MAX_SKIPPED_BYTES:
            request.keep_alive = False
        request.is_unread = head.has_body and not request.keep_alive
        self._dispatch(request)

    def _refuse_bytes(self, reply: Reply) -> None:
        """Answer a malformed or unsupported request, and ignore further input."""
        request = Request(self._app, self, "", "", Target(None, is_logged=False), False, False)
        request.reply = reply
        request.is_unread = True
        self._request = None
        self._dispatch(request)

    def _on_malformed(self) -> None:
        """Handle an error of the parser, or input that ends inside a request."""
        request = self._request
        if request is not None:
            self._request = None
            request.reply = request.route.body.cut_short
            request.keep_alive = False
            request.is_unread = True
            self._dispatch(request)
        elif self._phase >= _IN_BODY:  # the request is answered already
            self._enter(DEAF)
            self.close_when_sent()
        elif self.state < DEAF:
            self._refuse_bytes(answers.refused_by_http(400))

    def _send_continue(self) -> None:
        """Send 100 Continue to a client that waits for it, when all earlier requests are answered."""
        if self._phase == _OWES_CONTINUE and self._worker is None:
            self._phase = _IN_BODY
            if self._request is not None:
                self.send(encoding.CONTINUE)

    # ---- answers

    def _dispatch(self, request: Request[App]) -> None:
        """Answer a complete request now, or queue it for the worker."""
        if not request.keep_alive:
            self._enter(DEAF)
        if (
            self._worker is None
            and is_quick(request, self.peer)
            and self._answered_bytes <= QUICK_ANSWERS_BYTES
        ):
            self._perform(request)
            if self._rest is None:
                return
        else:
            self._queue.append(request)
        if self._worker is None:
            self.hold()
            self._worker = gevent.spawn(self._work)

    def _work(self) -> None:
        """Handle the queued requests. A handler that has begun is not interrupted if the client disconnects."""
        try:
            while (self._queue or self._rest) and not self.closed:
                if self._rest is not None:
                    self._send_rest(*self._rest)
                    continue
                if self._answered_bytes > MAX_ANSWERS_BYTES:
                    self._let_answers_leave()
                    self._answered_bytes = 0
                    continue  # the client may have gone in the meantime
                self._perform_in_turn(self._queue.popleft())
                if self._queue:  # a client with many requests must not keep others waiting
                    gevent.sleep(ONE_ROUND_S)
                # Not after the last request: if it ends the daemon, its answer must leave before.
        except Exception as error:  # noqa: BLE001 - a bug costs that connection only
            self._on_exception(error)
        finally:
            self._worker = None
            self._send_continue()
            self.release()

    def _let_answers_leave(self) -> bool:
        """Wait until the client has taken its answers, so that a few requests do not fill the memory; False if it has gone."""
        self.release()
        while not self.closed and (self.out or self._unsent is not None):
            self._stop_reading(OUTPUT)
            gevent.sleep(TAKEN_POLL_S)
        self.hold()
        return not self.closed

    def _send_rest(self, request: Request[App], rest: Iterator[bytes]) -> None:
        """Send the rest of a long answer, each piece when the client has taken the previous one."""
        self._rest = None
        try:
            for piece in rest:
                self._let_answers_leave()
                if self.closed:
                    return
                self.send(encoding.chunk(piece, is_http_1_0=request.is_http_1_0))
        except Exception as error:  # noqa: BLE001  a bug costs that connection only
            report_bug(self.log, "HTTP handler", error)
            self.close("internal error")
            return
        if not request.is_http_1_0:
            self.send(encoding.chunk(b"", is_http_1_0=False))
        self._end_answer(request)

    def _perform_in_turn(self, request: Request[App]) -> None:
        """Perform a request when it is this client's turn, and there is room for its answer."""
        self._iteration.turns.wait(host_of(self.peer), request.url.partition("?")[0])
        if self.closed:
            return
        if request.reply is not None or not request.route.is_long:
            self._perform(request)
            return
        room = self._app.response_limiter
        # This client's own answers may fill it: let them leave.
        if not room.is_open(self.peer) and not self._let_answers_leave():
            return
        if not room.enter(self.peer):
            request.reply = failures.TOO_MANY_READERS
            self._perform(request)
            return
        try:
            self._perform(request)
        finally:
            room.leave()

    def _perform(self, request: Request[App]) -> None:
        started_ns = time.perf_counter_ns()
        request.ticket = self.early.ticket()
        reply = request.reply or perform(request, self.peer, self.log)
        log_answer(self.log, request, reply, self.peer, time.perf_counter_ns() - started_ns)
        if self.closed:
            return
        with_body = request.method != "HEAD"
        is_http_1_0 = request.is_http_1_0
        keep_alive = request.keep_alive
        answer = encoding.encode(reply, is_http_1_0=is_http_1_0, keep_alive=keep_alive, with_body=with_body)
        self._answered_bytes += len(answer)
        if request.target.route is not None and request.route.is_long:
            self.queued_bytes += len(answer)
            self._app.response_limiter.count(self.peer, len(answer))
        self.send(answer)
        if reply.rest is not None and with_body:
            self._rest = request, reply.rest
            request.keep_alive = keep_alive and not is_http_1_0
        else:
            self._end_answer(request)

    def _end_answer(self, request: Request[App]) -> None:
        if request.is_unread:
            self._linger()
        elif not request.keep_alive:
            self.close_when_sent()

    def on_drained(self) -> None:
        if self.queued_bytes and not self.out:
            self._uncount()

    def _uncount(self) -> None:
        """Stop counting the long answers: the client has taken them, or is gone."""
        self._app.response_limiter.count(self.peer, -self.queued_bytes)
        self.queued_bytes = 0

    # ---- time

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """Return the limit that the client exceeded, or "". While nothing is read from it, no time counts."""
        if not self.is_reading or self._holds or self._unsent is not None or self.state >= DEAF:
            self._since_s = 0.0
        elif not self._since_s:
            self._since_s = now_s
        else:
            limit_s = limits.idle_s if self._phase == _AT_START else limits.head_s
            waited_s = now_s - self._since_s
            if self._phase >= _IN_BODY:
                waited_s -= self._body_bytes / MIN_BODY_BYTES_PER_S
            if limit_s and waited_s >= limit_s:
                return _TIME_OUT_REASON[self._phase]
        return super().overdue(now_s, limits)

    def time_out(self, reason: str) -> None:
        """Close the connection; a client whose request has begun and is not answered gets a 408."""
        if reason == HEAD and self._phase == _IN_HEAD or reason == BODY and self._request is not None:
            self._refuse_bytes(answers.refused_by_http(408))
        else:
            super().time_out(reason)

    # ---- the end

    def _linger(self) -> None:
        """Shut down the sending side and let the client finish: closing with unread input resets the connection."""
        # A timer, not a scheduled callback: callbacks run before the loop polls, so before this iteration's flush.
        self._linger_timer = self._loop.timer(0.0)
        self._linger_timer.start(self._half_close)

    def _half_close(self) -> None:
        if self.closed:
            return
        if self.out or self.unsent_bytes or self._worker is not None:
            self.close_when_sent()
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.close(f"failed to shut down - {error}")
            return
        if self._linger_timer is not None:
            self._linger_timer.close()
        self._linger_timer = self._loop.timer(LINGER_S)
        self._linger_timer.start(self.close, "refused")

    def _on_exception(self, error: Exception) -> None:
        if isinstance(error, LayerError):
            self.log.of_clients.info("HTTPS: client(%s) - %s", self.peer, error)
        super()._on_exception(error)

    def on_close(self, reason: str) -> None:
        self._app.http_clients.pop(self, None)
        if self.queued_bytes:
            self._uncount()
        if self._linger_timer is not None:
            self._linger_timer.stop()
            self._linger_timer.close()
            self._linger_timer = None
        self._queue.clear()
        self._rest = None
        self._request = None
        self._parser = None  # it refers to this connection
