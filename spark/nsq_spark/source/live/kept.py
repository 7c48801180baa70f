"""What an nsqd keeps of a topic: `GET /topic/read`, which gives records of its log from a sequence number on."""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from nsq_spark.archive.damage import ArchiveError
from nsqd_py.protocol.wrong_port import not_http

_TIMEOUT_S = 30.0
_NOT_FOUND = 404
# No message has this number: what is asked for from here on is not there, but the answer says how far the topic goes.
_BEHIND_ALL = 2**63 - 1


class NoTopic(ArchiveError):
    """This nsqd does not have the topic."""


@dataclass(frozen=True)
class Kept:
    """An answer: a file with records, and the sequence numbers around it.

    first_seq     of the first message that was asked for; greater than the number asked for where that is not kept
    next_seq      to ask for next
    earliest_seq  kept of the topic, and `end_seq`: behind its last message
    """

    data: bytes
    first_seq: int
    next_seq: int
    earliest_seq: int
    end_seq: int


def read(nsqd: str, topic: str, seq: int, most_bytes: int) -> Kept:
    """Records of about so many bytes from a number on. Raises NoTopic and ArchiveError."""
    query = urlencode({"topic": topic, "seq": seq, "max_bytes": most_bytes})
    headers, body = ask(nsqd, f"/topic/read?{query}")
    try:
        numbers = [int(headers.get(f"X-Nsq-{name}-Seq", "")) for name in ("First", "Next", "Earliest", "End")]
    except ValueError:
        raise ArchiveError(f"nsq: {nsqd} hands out no kept messages: is it an nsqd of another kind?") from None
    return Kept(body, *numbers)


def ends(nsqd: str, topic: str) -> Kept:
    """How far the topic goes, without messages. Raises as `read`."""
    return read(nsqd, topic, _BEHIND_ALL, 1)


def ask(address: str, path: str) -> tuple[http.client.HTTPMessage, bytes]:
    """Headers and body of a GET. Raises NoTopic where there is no such topic, and ArchiveError."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        is_stranger = isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError)
        reason = not_http(str(error)) if is_stranger else getattr(error, "strerror", None) or error
        raise ArchiveError(f"nsq: {address}: {reason}") from error
    finally:
        connection.close()
    if response.status == _NOT_FOUND and b"TOPIC_NOT_FOUND" in body:
        raise NoTopic(f"nsq: {address} has no such topic")
    if response.status != http.client.OK:
        said = body[:200].decode(errors="replace").strip()
        raise ArchiveError(f"nsq: {address} answers {response.status} {said} to {path.partition('?')[0]}")
    return response.headers, body


def ask_json(address: str, path: str) -> Any:
    """Raises as `ask`."""
    _, body = ask(address, path)
    try:
        return json.loads(body)
    except ValueError as error:
        raise ArchiveError(f"nsq: {address} gives no JSON for {path}: {error}") from error


def tcp_address(nsqd: str) -> str:
    """What consumers know an nsqd by. Raises ArchiveError."""
    document = ask_json(nsqd, "/info")
    try:
        return address_of(document["broadcast_address"], document["tcp_port"])
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"nsq: {nsqd} does not answer as an nsqd: {error!r}") from error


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---- asking again while nsqds are away

T = TypeVar("T")

_PAUSE_S = 0.2
_log = logging.getLogger("nsqd_py.spark")


def patiently(question: Callable[[], T], give_up_after_s: float) -> T:
    """The answer. Raises NoTopic at once, and ArchiveError after so long."""
    deadline_s = time.monotonic() + give_up_after_s
    is_told = False
    while True:
        try:
            return question()
        except NoTopic:
            raise
        except ArchiveError as error:
            if time.monotonic() >= deadline_s:
                raise
            if not is_told:
                _log.warning("%s; trying again for %g s", error, give_up_after_s)
                is_told = True
            time.sleep(_PAUSE_S)
