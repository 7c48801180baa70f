"""The nsqds of some topics: which have them, and what each keeps of them. `GET /topic/read` returns records of a topic's log
behind a message id, or from a sequence number or a time on.
"""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.live_options import (
    EARLIEST,
    EARLIEST_SEQ,
    LATEST,
    LATEST_SEQ,
    HttpAccess,
    LiveOptions,
    LogKey,
    Place,
    Position,
)
from nsqd_py.batch import TICK_BITS, TICK_SHIFT, TWEPOCH
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.lookup import producers_in
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.net.addresses import join_address
from nsqd_py.protocol.names import EPHEMERAL_SUFFIX
from nsqd_py.protocol.wrong_port import not_http
from nsqd_py.runtime.documents import MOST_NSQDS, load_foreign_json

# nsqd answers /topic/read with whole batches, of up to --max-body-size.
_MOST_ANSWER_BYTES = 256 * 1024 * 1024
_PAUSE_S = 0.2
# No message has this number: an answer from here on has no messages, but says how far the topic goes.
BEHIND_ALL = 2**63 - 1
STATS = "/stats?format=json&include_clients=false&include_mem=false"

# The greatest message id.
END_OF_IDS = 2**63 - 1

T = TypeVar("T")
_log = logging.getLogger("nsqd_py.spark")


class NoTopic(ArchiveError):
    """This nsqd does not have the topic."""


class LostMessages(ArchiveError):
    """Messages were dropped before they were read."""


@dataclass(frozen=True)
class Kept:
    """An answer: a file with records, and places around it.

    first         before the first message that was asked for and is kept
    end           behind the last message of the topic
    next_seq      to ask for next
    earliest_seq  kept of the topic
    """

    data: bytes
    first: Position
    end: Position
    next_seq: int
    earliest_seq: int

    @property
    def is_empty(self) -> bool:
        return len(self.data) <= FILE_HEADER_BYTES


# ---- one nsqd


def read(nsqd: str, topic: str, most_bytes: int, access: HttpAccess, **place: int) -> Kept:
    """Return records of about so many bytes from a number (`seq`) or a time (`time`) on, or behind a message (`id`).

    Raises NoTopic and ArchiveError.
    """
    if "id" in place:
        place = {"id": f"{place['id']:016x}"}  # type: ignore[dict-item]
    query = urlencode({"topic": topic, "max_bytes": most_bytes, **place})
    headers, body = ask(nsqd, f"/topic/read?{query}", access)

    def number(name: str, base: int = 10) -> int:
        return int(headers.get(f"X-Nsq-{name}", ""), base)

    try:
        has_ids = "X-Nsq-Before-Id" in headers
        first, end = (
            Position(number(f"{name}-Id", 16) if has_ids else None, number(f"{seq}-Seq"), number("Epoch"))
            for name, seq in (("Before", "First"), ("End", "End"))
        )
        return Kept(body, first, end, number("Next-Seq"), number("Earliest-Seq"))
    except ValueError:
        raise ArchiveError(f"nsq: {nsqd} hands out no kept messages: is it an nsqd of another kind?") from None


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
    try:
        connection = http.client.HTTPConnection(host, timeout=access.timeout_s)
        with closing(connection):
            connection.connect()
            if scheme == "https":
                context = tls_context(access.client, ssl.SSLContext)
                connection.sock = context.wrap_socket(
                    connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
                )
            with _all_within(access.answer_s, connection.sock):
                connection.request("GET", path, headers=access.headers if scheme == "https" else {})
                response = connection.getresponse()
                body = response.read(_MOST_ANSWER_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an nsqlookupd may name any host and port
        is_stranger = isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError)
        reason = not_http(str(error)) if is_stranger else getattr(error, "strerror", None) or error
        raise ArchiveError(f"nsq: {address}: {reason}") from error
    if len(body) > _MOST_ANSWER_BYTES:
        raise ArchiveError(f"nsq: {address} sent an answer of more than {_MOST_ANSWER_BYTES} bytes")
    return response.status, response.headers, body


@contextmanager
def _all_within(seconds: float, sock: socket.socket) -> Iterator[None]:
    """Shut the socket down after this time, since its timeout is for each read only. Raises TimeoutError then."""
    ending = threading.Lock()  # a timer that is late must not shut down the next socket with this descriptor
    is_late = has_ended = False

    def shut_down() -> None:
        nonlocal is_late
        with ending, suppress(OSError):
            if not has_ended:
                is_late = True
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with ending:
            has_ended = True
        if is_late:
            raise TimeoutError(f"no complete answer within {seconds:g} s")


def _https_port(address: str, answer: tuple[int, http.client.HTTPMessage, bytes], access: HttpAccess) -> int | None:
    """Return the port that a refusal without TLS names; after one without a token, that of /info. None if there is none."""
    status, _, body = answer
    if status == http.client.UNAUTHORIZED:
        status, _, body = _get(address, "/info", access)
    elif status != http.client.FORBIDDEN:
        return None
    with suppress(ValueError, TypeError, KeyError):
        return int(load_foreign_json(body)["https_port"])
    return None


def addresses_in(asked: str, path: str, access: HttpAccess, kind: str, addresses: Callable[[Any], T]) -> T:
    """Return the addresses in a document. Raises NoTopic and ArchiveError, also if it is not one of an nsqd."""
    _, body = ask(asked, path, access)
    try:
        document = load_foreign_json(body)
    except ValueError as error:
        raise ArchiveError(f"nsq: {asked} gives no JSON for {path}: {error}") from error
    try:
        return addresses(document)
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"nsq: {asked} does not answer as an {kind}: {error!r}") from error


def tcp_address(nsqd: str, access: HttpAccess) -> str:
    """Return the address by which consumers know an nsqd. Raises ArchiveError."""
    return addresses_in(nsqd, "/info", access, "nsqd", lambda found: join_address(found["broadcast_address"], found["tcp_port"]))


def nsqds_of(lookupd: str, path: str, access: HttpAccess) -> dict[str, str]:
    """Return the TCP addresses of nsqds, by their HTTP addresses, in an answer to /lookup or /nodes. Raises ArchiveError."""

    def producers(found: Any) -> dict[str, str]:
        rows = producers_in(found)
        if len(rows) > MOST_NSQDS:  # without the others, messages would be missing
            raise ValueError(f"it names {len(rows)} nsqds, but at most {MOST_NSQDS} can be read")
        return {
            join_address(one["broadcast_address"], one["http_port"]): join_address(one["broadcast_address"], one["tcp_port"])
            for one in rows
        }

    try:
        return addresses_in(lookupd, path, access, "nsqlookupd", producers)
    except NoTopic:
        return {}


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


KEEP_LONGER = "keep them for longer (nsqd's --retention-time), or set failOnDataLoss=false to go on without them"
NOT_ARCHIVED = "the archive does not have them: start again when nsq-to-file has finished its files, or set failOnDataLoss=false"


def report_loss(
    log: LogKey, place: Position, count: int, *, fails: bool, is_another: bool = False, remedy: str = KEEP_LONGER
) -> None:
    """Report that `count` messages behind a place were lost, if it is not 0; with `is_another`, that the log is not the one that
    was read. Raises LostMessages.
    """
    topic, nsqd = log
    if is_another:
        what = f"nsq: topic {topic} on {nsqd} was deleted and created again, or the end of its log was lost"
    elif count > 0:
        where = f"behind message {place.last_id:016x}" if place.count is None else f"from number {place.count} on"
        what = f"nsq: {count} messages of topic {topic} on {nsqd}, {where}, were dropped before they were read"
    else:
        return
    if fails:
        raise LostMessages(f"{what}: {remedy}")
    _log.warning("%s", what)


def id_before(time_ns: int) -> int:
    """Return the greatest id before this time; ids have units of 1.05 ms."""
    return min(END_OF_IDS, max(0, ((time_ns >> TICK_BITS) - TWEPOCH << TICK_SHIFT) - 1))


# ---- all nsqds of some topics


class LiveTopics:
    """The logs of the topics of some options.

    silent  those whose nsqds did not answer to the last question
    """

    def __init__(self, options: LiveOptions) -> None:
        self._options = options
        self.silent: set[LogKey] = set()

    def kept(self, known: Iterable[LogKey] = (), *, of_all: bool = False) -> dict[LogKey, Kept]:
        """Return what each log keeps. `known` logs are asked if no nsqlookupd answers.

        Waits while all nsqds are away, with `of_all` while any is, known ones too; else one that is away is left out.
        Raises ArchiveError.
        """
        return patiently(partial(self._asked, list(known), of_all), self._options.give_up_after_s)

    def _asked(self, known: Iterable[LogKey], of_all: bool) -> dict[LogKey, Kept]:
        found: dict[LogKey, Kept] = {}
        failures: dict[LogKey, str] = {}
        logs = sorted({*self._logs(known), *(known if of_all else ())})
        for log in logs:
            try:
                found[log] = self._now(log)
            except NoTopic:
                continue
            except ArchiveError as error:
                failures[log] = str(error)
        self.silent = set(failures)
        if failures and (of_all or len(failures) == len(logs)):
            raise ArchiveError("; ".join(failures.values()))
        for failure in failures.values():
            _log.warning("%s", failure)
        return found

    def _now(self, log: LogKey) -> Kept:
        """Return what is kept of a log; with an archive, from its earliest message on. Raises NoTopic and ArchiveError."""
        if self._options.archive is None:
            return self.read(log, seq=BEHIND_ALL)
        answer = self.read(log, seq=0)
        if answer.first.message_id is None:
            raise ArchiveError(
                f"nsq: topic {log.topic} of {log.nsqd} has no ids that rise, since it takes dead letters, which keep theirs (or "
                "nsqd is of an earlier version): read its log without an archive"
            )
        return answer

    def read(self, log: LogKey, **place: int) -> Kept:
        """Return the record at a place. Raises NoTopic and ArchiveError."""
        return read(log.nsqd, log.topic, 1, self._options.access, **place)

    def _logs(self, known: Iterable[LogKey]) -> set[LogKey]:
        """Return the logs that there may be; if no nsqlookupd answers, the known ones. Raises ArchiveError if there are none."""
        options, failures = self._options, []
        found = {LogKey(topic, nsqd) for nsqd in options.nsqds for topic in self._names(nsqd, STATS, "nsqd")}
        for lookupd in options.lookupds:
            try:
                for topic in self._names(lookupd, "/topics", "nsqlookupd"):
                    found |= {
                        LogKey(topic, nsqd)
                        for nsqd in nsqds_of(lookupd, f"/lookup?{urlencode({'topic': topic})}", options.access)
                    }
            except ArchiveError as error:
                failures.append(str(error))
                _log.warning("%s", error)
        if failures and len(failures) == len(options.lookupds):
            found |= set(known)
            if not found:
                raise ArchiveError(failures[0])
        return found

    def _names(self, asked: str, path: str, kind: str) -> set[str]:
        """Return the topics by name, and those that match the pattern. Raises ArchiveError."""
        wanted = self._options.wanted
        names = set(wanted.topics or ())
        if wanted.topic_pattern:

            def topics(found: Any) -> list[str]:
                return [one if isinstance(one, str) else one["topic_name"] for one in found["topics"]]

            there = addresses_in(asked, path, self._options.access, kind, topics)
            names |= {name for name in there if wanted.has_topic(name) and not name.endswith(EPHEMERAL_SUFFIX)}
        return names

    def by_tcp_address(self) -> dict[str, str]:
        """Return the HTTP addresses of all nsqds by the names that consumers have for them. Raises ArchiveError."""
        found: dict[str, str] = {}
        for lookupd in self._options.lookupds:
            found |= {tcp: nsqd for nsqd, tcp in nsqds_of(lookupd, "/nodes", self._options.access).items()}
        for nsqd in self._options.nsqds:
            tcp = tcp_address(nsqd, self._options.access)
            found |= {tcp: nsqd, f"{nsqd.rpartition('://')[2].rpartition(':')[0]}:{tcp.rpartition(':')[2]}": nsqd}
        return found

    def place(self, option: str, place: Place, log: LogKey, kept: Kept) -> Position:
        """Return the place of an option in a log. Raises ArchiveError.

        If the log does not keep the first message behind it, and there is an archive, only its id is known.
        """
        one = place.get(log, EARLIEST_SEQ) if isinstance(place, Mapping) else place
        if one in (LATEST, LATEST_SEQ):
            return kept.end
        if one in (EARLIEST, EARLIEST_SEQ):
            return self.read(log, seq=0).first
        if isinstance(place, Mapping) and isinstance(one, int):
            if one > (end := kept.end.seq):
                raise ArchiveError(f"nsq: option {option}: {log.nsqd} has numbers of topic {log.topic} up to {end}, not {one}")
            return self.read(log, seq=one).first
        answer = self.read(log, **({"id": int(one, 16)} if isinstance(one, str) else {"time": int(str(one))}))
        if self._options.archive is None or answer.first.seq > answer.earliest_seq:
            return answer.first
        return Position(int(one, 16) if isinstance(one, str) else id_before(int(str(one))), None, None)

    def check_named(self, option: str, place: Place, there: Mapping[LogKey, Kept]) -> None:
        """Raise ArchiveError if the JSON of an option names other logs than there are."""
        if not isinstance(place, Mapping):
            return
        for log in place:
            if log not in there:
                known = ", ".join(sorted(other.nsqd for other in there if other.topic == log.topic)) or "none"
                raise ArchiveError(f"nsq: option {option}: {log.nsqd} is no nsqd of topic {log.topic}; there are {known}")
        if option == "endingOffsets" and (left := sorted(there.keys() - place.keys())):
            raise ArchiveError(f"nsq: option {option}: no number for topic {left[0].topic} on {left[0].nsqd}; -1 is the latest")
