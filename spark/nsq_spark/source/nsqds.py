"""The nsqds of a topic: which have it, and what each keeps of it. `GET /topic/read` returns records of a topic's log
from a sequence number on.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.live_options import EARLIEST, LATEST, HttpAccess, LiveOptions, NumberRange, Place
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.protocol.wrong_port import not_http

_TIMEOUT_S = 30.0
# nsqd answers /topic/read with whole batches, of up to --max-body-size.
_MOST_ANSWER_BYTES = 256 * 1024 * 1024
_PAUSE_S = 0.2
# No message has this number: an answer from here on has no messages, but says how far the topic goes.
_BEHIND_ALL = 2**63 - 1

T = TypeVar("T")
_log = logging.getLogger("nsqd_py.spark")


class NoTopic(ArchiveError):
    """This nsqd does not have the topic."""


class LostMessages(ArchiveError):
    """Messages were dropped before they were read."""


@dataclass(frozen=True)
class Kept:
    """An answer: a file with records, and the sequence numbers around it.

    first_seq     of the first message of the answer; greater than the number asked for if that is not kept
    next_seq      to ask for next
    earliest_seq  kept of the topic, and `end_seq`: behind its last message
    epoch         of the log: a topic that is deleted and created again has another one
    """

    data: bytes
    first_seq: int
    next_seq: int
    earliest_seq: int
    end_seq: int
    epoch: int

    def at(self, seq: int) -> NumberRange:
        return NumberRange(seq, seq, self.epoch)


# ---- one nsqd


def read(nsqd: str, topic: str, most_bytes: int, access: HttpAccess, **place: int) -> Kept:
    """Return records of about so many bytes from a number (`seq`) or a time (`time`) on. Raises NoTopic and ArchiveError."""
    query = urlencode({"topic": topic, "max_bytes": most_bytes, **place})
    headers, body = ask(nsqd, f"/topic/read?{query}", access)
    try:
        numbers = [
            int(headers.get(f"X-Nsq-{name}", "")) for name in ("First-Seq", "Next-Seq", "Earliest-Seq", "End-Seq", "Epoch")
        ]
    except ValueError:
        raise ArchiveError(f"nsq: {nsqd} hands out no kept messages: is it an nsqd of another kind?") from None
    return Kept(body, *numbers)


def ask(address: str, path: str, access: HttpAccess) -> tuple[http.client.HTTPMessage, bytes]:
    """Return headers and body of a GET. The token or login is sent over TLS only: an nsqd that refuses a plain request is
    asked again at its HTTPS port. Raises NoTopic if there is no such topic, and ArchiveError.
    """
    answer = _get(address, path, access)
    if "://" not in address and (port := _https_port(address, answer, access)):
        address = f"https://{address.rpartition(':')[0]}:{port}"
        answer = _get(address, path, access)
    status, headers, body = answer
    if status == http.client.NOT_FOUND and b"TOPIC_NOT_FOUND" in body:
        raise NoTopic(f"nsq: {address} has no such topic")
    if status != http.client.OK:
        said = body[:200].decode(errors="replace").strip()
        raise ArchiveError(f"nsq: {address} answers {status} {said} to {path.partition('?')[0]}")
    return headers, body


def _get(address: str, path: str, access: HttpAccess) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Return status, headers and body. Raises ArchiveError."""
    scheme, _, host = address.rpartition("://")
    connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
    try:
        if scheme == "https":
            context = tls_context(access.client, ssl.SSLContext)
            connection = http.client.HTTPSConnection(host, timeout=_TIMEOUT_S, context=context)
        connection.request("GET", path, headers=access.headers if scheme == "https" else {})
        response = connection.getresponse()
        body = response.read(_MOST_ANSWER_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        is_stranger = isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError)
        reason = not_http(str(error)) if is_stranger else getattr(error, "strerror", None) or error
        raise ArchiveError(f"nsq: {address}: {reason}") from error
    finally:
        connection.close()
    if len(body) > _MOST_ANSWER_BYTES:
        raise ArchiveError(f"nsq: {address} sent an answer of more than {_MOST_ANSWER_BYTES} bytes")
    return response.status, response.headers, body


def _https_port(address: str, answer: tuple[int, http.client.HTTPMessage, bytes], access: HttpAccess) -> int | None:
    """Return the port that a refusal without TLS names; after one without a token, that of /info. None if there is none."""
    status, _, body = answer
    if status == http.client.UNAUTHORIZED:
        status, _, body = _get(address, "/info", access)
    elif status != http.client.FORBIDDEN:
        return None
    with suppress(ValueError, TypeError, KeyError):
        return int(json.loads(body)["https_port"])
    return None


def _addresses(asked: str, path: str, access: HttpAccess, kind: str, addresses: Callable[[Any], T]) -> T:
    """Return the addresses in a document. Raises NoTopic and ArchiveError, also if it is not one of an nsqd."""
    _, body = ask(asked, path, access)
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ArchiveError(f"nsq: {asked} gives no JSON for {path}: {error}") from error
    try:
        return addresses(document)
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"nsq: {asked} does not answer as an {kind}: {error!r}") from error


def tcp_address(nsqd: str, access: HttpAccess) -> str:
    """Return the address by which consumers know an nsqd. Raises ArchiveError."""
    return _addresses(nsqd, "/info", access, "nsqd", lambda found: _address(found["broadcast_address"], found["tcp_port"]))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def patiently(question: Callable[[], T], give_up_after_s: float) -> T:
    """Return the answer, asking again while nsqds are away. Raises NoTopic at once, and ArchiveError after the time."""
    deadline_s = time.monotonic() + give_up_after_s
    is_reported = False
    while True:
        try:
            return question()
        except NoTopic:
            raise
        except ArchiveError as error:
            if time.monotonic() >= deadline_s:
                raise
            if not is_reported:
                _log.warning("%s; trying again for %g s", error, give_up_after_s)
                is_reported = True
            time.sleep(_PAUSE_S)


def report_loss(nsqd: str, topic: str, seq: int, count: int, *, fails: bool, is_another: bool = False) -> None:
    """Report that `count` messages from a sequence number on were lost, if it is not 0; with `is_another`, that the log is not
    the one that was read. Raises LostMessages.
    """
    if is_another:
        what = f"nsq: topic {topic} on {nsqd} was deleted and created again, or the end of its log was lost"
    elif count > 0:
        what = f"nsq: {count} messages of topic {topic} on {nsqd}, from number {seq} on, were dropped before they were read"
    else:
        return
    if fails:
        raise LostMessages(
            f"{what}: keep them for longer (nsqd's --retention-time), or set failOnDataLoss=false to go on without them"
        )
    _log.warning("%s", what)


# ---- all nsqds of a topic


class LiveTopic:
    """The topic of some options."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def kept(self, known: Iterable[str] = (), *, of_all: bool = False) -> dict[str, Kept]:
        """Return what each nsqd keeps that has the topic. `known` nsqds are asked if no nsqlookupd answers.

        Waits while all nsqds are away, with `of_all` while any is, known ones too; else one that is away is left out.
        Raises ArchiveError.
        """
        return patiently(partial(self._asked, list(known), of_all), self._options.give_up_after_s)

    def _asked(self, known: Iterable[str], of_all: bool) -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        failures: list[str] = []
        nsqds = sorted({*self._nsqds(known), *(known if of_all else ())})
        for nsqd in nsqds:
            try:
                found[nsqd] = read(nsqd, self._options.topic, 1, self._options.access, seq=_BEHIND_ALL)
            except NoTopic:
                continue
            except ArchiveError as error:
                failures.append(str(error))
        if failures and (of_all or len(failures) == len(nsqds)):
            raise ArchiveError("; ".join(failures))
        for failure in failures:
            _log.warning("%s", failure)
        return found

    def _nsqds(self, known: Iterable[str]) -> list[str]:
        """Return HTTP addresses; if no nsqlookupd answers, the known ones. Raises ArchiveError if there are none."""
        found, failures = set(self._options.nsqds), []
        for lookupd in self._options.lookupds:
            try:
                found |= self._looked_up(lookupd)
            except NoTopic:
                continue
            except ArchiveError as error:
                failures.append(str(error))
                _log.warning("%s", error)
        if failures and len(failures) == len(self._options.lookupds):
            found |= set(known)
            if not found:
                raise ArchiveError(failures[0])
        return sorted(found)

    def _looked_up(self, lookupd: str) -> set[str]:
        """Raises NoTopic and ArchiveError."""
        path, access = f"/lookup?{urlencode({'topic': self._options.topic})}", self._options.access

        def producers(found: Any) -> set[str]:
            return {_address(one["broadcast_address"], one["http_port"]) for one in found["producers"]}

        return _addresses(lookupd, path, access, "nsqlookupd", producers)

    def places(self, option: str, place: Place, there: Mapping[str, Kept]) -> dict[str, int]:
        """Return the sequence number of a place in the options, by nsqd. Raises ArchiveError for an unknown nsqd."""
        for nsqd in place if isinstance(place, Mapping) else ():
            if nsqd not in there:
                known = ", ".join(sorted(there)) or "none"
                raise ArchiveError(f"nsq: option {option}: {nsqd} is no nsqd of topic {self._options.topic}; there are {known}")
        return {nsqd: self._place(nsqd, kept, place) for nsqd, kept in there.items()}

    def _place(self, nsqd: str, kept: Kept, place: Place) -> int:
        if isinstance(place, Mapping):
            seq = place.get(nsqd, -2)
            return kept.earliest_seq if seq == -2 else kept.end_seq if seq == -1 else seq
        if place == EARLIEST:
            return kept.earliest_seq
        if place == LATEST:
            return kept.end_seq
        return read(nsqd, self._options.topic, 1, self._options.access, time=int(place)).first_seq
