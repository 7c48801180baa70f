"""The parser of HTTP responses. No I/O."""

from __future__ import annotations

from typing import NamedTuple

import httptools

# A response with a longer head is refused.
MAX_HEAD_BYTES = 1024 * 1024
# Bodies are discarded; closing the connection is cheaper than reading a longer one.
MAX_BODY_BYTES = 256 * 1024


class BadAnswer(Exception):
    """The response is not valid HTTP."""


class Answer(NamedTuple):
    """The parts of a response that matter here."""

    status: int
    location: str
    may_stay_open: bool


class AnswerReader:
    """Parses the responses on one connection, one after the other, and skips their bodies.

    Call `begin` before each request, then `feed` until `is_complete`.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        self._status = 0
        self._location = b""
        self._head_bytes = self._body_bytes = 0
        self.is_complete = False
        self._is_clean = True

    def feed(self, data: bytes) -> None:
        """Raises BadAnswer."""
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._give_up_rest()
        except httptools.HttpParserError as error:
            if not self._status:
                raise BadAnswer(f"the answer is not HTTP ({error})") from None
            self._give_up_rest()
        if not self._status and self._head_bytes > MAX_HEAD_BYTES:
            raise BadAnswer(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")

    def end(self) -> bool:
        """The server has closed the connection. Return True if a response came before."""
        if self._status:
            self._give_up_rest()
        return self.is_complete

    def answer(self) -> Answer:
        """Return the response; only valid when it is complete."""
        return Answer(self._status, self._location.decode("utf-8", "replace"), self._is_clean)

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            # A second response to one request: the next response could not be assigned to its request.
            self._is_clean = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 8 and name.lower() == b"location" and not self.is_complete:
            self._location = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # A 1xx response such as 100 Continue precedes the final one.
        if not self.is_complete and (status >= 200 or status == 101):
            self._status = status

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            self._give_up_rest()

    def on_message_complete(self) -> None:
        if self._status and not self.is_complete:
            self.is_complete = True
            self._is_clean = self._is_clean and self._parser.should_keep_alive()

    def _give_up_rest(self) -> None:
        """Take the response as complete without the rest of its body. The connection cannot be used again."""
        self.is_complete = True
        self._is_clean = False
