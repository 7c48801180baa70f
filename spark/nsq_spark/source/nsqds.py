"""The nsqds of some topics: which have them, and what each keeps of them. `GET /topic/read` returns records of a topic's log
behind a message id, or from a sequence number or a time on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode

from nsq_spark.archive.splits import ArchiveError, Span
from nsq_spark.archive.store_logs import DamagedStore
from nsq_spark.source.live_options import LATEST, LiveOptions, LogKey, Offset, Position, Positions
from nsqd_py.client.lookup import producers_in
from nsqd_py.cluster.access import HttpAccess
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.producers import http_address
from nsqd_py.cluster.producers import tcp_address as tcp_address_of
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.protocol.message_ids import TICK_BITS, TICK_SHIFT, TWEPOCH
from nsqd_py.protocol.names import EPHEMERAL_SUFFIX
from nsqd_py.runtime.documents import MOST_NSQDS, load_foreign_json

_PAUSE_S = 0.2
# No message has this number: an answer from here on has no messages, but says how far the topic goes.
BEHIND_ALL = 2**63 - 1
STATS = "/stats?format=json&include_clients=false&include_mem=false"

# The greatest message id.
END_OF_IDS = 2**63 - 1
_KEEP_LONGER = (
    "keep them for longer (nsqd's --retention-time), or set failOnDataLoss=false to go on without them"
)
_NOT_ARCHIVED = "the archive does not have them: start again when nsq-to-file has finished its files, or set failOnDataLoss=false"
_WAIT = "nsqd keeps for a channel that has not finished them (deferred ones), and does not hand out any more"

T = TypeVar("T")
_log = logging.getLogger("nsqd_py.spark")


class Refused(ArchiveError):
    """An answer that will be the same later."""


class NoPath(Refused):
    """The server has no such path."""


class NoTopic(Refused):
    """This nsqd does not have the topic. `ended` are its logs that were deleted, as of Retained."""

    def __init__(self, text: str, ended: tuple[Span, ...] = ()) -> None:
        super().__init__(text)
        self.ended = ended


class LostMessages(ArchiveError):
    """Messages were dropped before they were read."""


class Retained(NamedTuple):
    """An answer: a file with records, and positions around it.

    first         before the first message that was asked for and is retained
    end           behind the last message of the topic
    next_seq      to ask for next
    earliest_seq  retained of the topic
    ended         epochs of the logs of this name that were deleted, and how many messages each had
    earliest_id   before the earliest message that is retained; 0 if none was dropped, None if it is not known
    missing       how many messages that were asked for are missing directly before `first`, although some before them are
                  retained; 0 also if it is not known
    """

    data: bytes
    first: Position
    end: Position
    next_seq: int
    earliest_seq: int
    ended: tuple[Span, ...] = ()
    earliest_id: int | None = None
    missing: int = 0

    def has_all_behind(self, message_id: int) -> bool:
        """True if the log had the message with the id that was asked for, or one before it, and none is missing between it and
        `first`.
        """
        if self.missing:
            return False
        is_last_dropped = bool(self.earliest_id) and message_id >= (self.earliest_id or 0)
        return is_last_dropped or self.first.seq > self.earliest_seq

    @property
    def epochs(self) -> set[int | None]:
        """The epochs of this log and of those of its name that were deleted."""
        return {self.end.epoch, *dict(self.ended)}

    @property
    def is_empty(self) -> bool:
        return len(self.data) <= FILE_HEADER_BYTES


Answers: TypeAlias = dict[LogKey, Retained]


# ---- one nsqd


def read(nsqd: str, topic: str, most_bytes: int, access: HttpAccess, **start: int) -> Retained:
    """Return records of about this many bytes from a number (`seq`) or a time (`time`) on, or behind a message (`id`).

    Raises NoTopic, Refused if it is Go's nsqd, and ArchiveError.
    """
    if "id" in start:
        start = {"id": f"{start['id']:016x}"}  # type: ignore[dict-item]
    query = urlencode({"topic": topic, "max_bytes": most_bytes, **start})

    def number(name: str, base: int = 10) -> int:
        return int(headers.get(f"X-Nsq-{name}", ""), base)

    try:
        headers, body = ask(nsqd, f"/topic/read?{query}", access)
        has_ids = "X-Nsq-Before-Id" in headers
        first, end = (
            Position(number(f"{name}-Id", 16) if has_ids else None, number(f"{seq}-Seq"), number("Epoch"))
            for name, seq in (("Before", "First"), ("End", "End"))
        )
        earliest_id = headers.get("X-Nsq-Earliest-Id")
        has_asked = "X-Nsq-Asked-Seq" in headers  # earlier versions do not say it
        return Retained(
            body,
            first,
            end,
            number("Next-Seq"),
            number("Earliest-Seq"),
            _ended_in(headers),
            int(earliest_id, 16) if earliest_id else None,
            first.seq - number("Asked-Seq") if has_asked else 0,
        )
    except (NoPath, ValueError):
        raise Refused(
            f"nsq: {nsqd} hands out no kept messages (/topic/read), which only the nsqd of nsqd-py does: archive topics of Go's "
            "nsqd with nsq-to-file, and read the archive"
        ) from None


def _ended_in(headers: Message) -> tuple[Span, ...]:
    """Return the epochs of deleted logs, and how many messages each had. Raises ValueError."""
    ended = (one.split(":") for one in headers.get("X-Nsq-Ended", "").split(",") if one)
    return tuple((int(epoch), int(count)) for epoch, count in ended)


def ask(address: str, path: str, access: HttpAccess) -> tuple[Message, bytes]:
    """Return headers and body of a GET. Raises NoTopic if there is no such topic, NoPath and ArchiveError."""
    try:
        with access.answer() as answer:
            body = access.get_bytes(answer, address, path)
            return answer.headers, body
    except UpstreamError as error:
        failure = error
    if not failure.status:
        raise ArchiveError(f"nsq: {address}: {failure.reason}") from failure
    status, body, address = failure.status, failure.body, failure.address
    what, _, _ = path.partition("?")
    if status == HTTPStatus.NOT_FOUND and b"TOPIC_NOT_FOUND" in body:
        raise NoTopic(f"nsq: {address} has no such topic", _ended_in(answer.headers))
    if status == HTTPStatus.NOT_FOUND:
        raise NoPath(f"nsq: {address} has no {what}: is it the address of another server?")
    said = body[:200].decode(errors="replace").strip()
    why = ""
    if status == HTTPStatus.UNAUTHORIZED:
        why = access.why_unauthorized(address.rpartition("/")[2])
    raise ArchiveError(f"nsq: {address} answers {status} {said} to {what}{why}")


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
    return addresses_in(nsqd, "/info", access, "nsqd", tcp_address_of)


def nsqds_of(lookupd: str, path: str, access: HttpAccess) -> dict[str, str]:
    """Return the TCP addresses of nsqds, by their HTTP addresses, in an answer to /lookup or /nodes. Raises ArchiveError."""

    def producers(found: Any) -> dict[str, str]:
        rows = producers_in(found)
        if len(rows) > MOST_NSQDS:  # without the others, messages would be missing
            raise ValueError(f"it names {len(rows)} nsqds, but at most {MOST_NSQDS} can be read")
        return {http_address(one): tcp_address_of(one) for one in rows}

    try:
        return addresses_in(lookupd, path, access, "nsqlookupd", producers)
    except NoTopic:
        return {}


def with_retries(question: Callable[[], T], give_up_after_s: float) -> T:
    """Return the answer, asking again while nsqds or stores are away. Raises Refused and DamagedStore at once, and ArchiveError
    after the time.
    """
    deadline_s = time.monotonic() + give_up_after_s
    is_reported = False
    while True:
        try:
            return question()
        except (Refused, DamagedStore):
            raise
        except ArchiveError as error:
            if time.monotonic() >= deadline_s:
                raise
            if not is_reported:
                _log.warning("%s; trying again for %g s", error, give_up_after_s)
                is_reported = True
            time.sleep(_PAUSE_S)


def report_loss(
    options: LiveOptions,
    log: LogKey,
    position: Position,
    count: int,
    *,
    is_another: bool = False,
    is_most: bool = False,
    waiting: int = 0,
    later: str = "",
) -> None:
    """Report that `count` messages behind a position were lost, if it is not 0, or with `is_most` as many at most; with
    `is_another`, that the log is not the one that was read. Raises LostMessages.

    waiting  how many messages its nsqd keeps that it does not hand out
    later    how to read those of them that come into the archive later, for a query that goes on
    """
    topic, nsqd = log
    if is_another:
        what = f"nsq: topic {topic} on {nsqd} was deleted and created again, or the end of its log was lost"
    elif count > 0:
        if position.count is None:
            where = f"behind message {position.last_id:016x}"
        else:
            where = f"from number {position.count} on"
        number = f"up to {count}" if is_most else count
        what = f"nsq: {number} messages of topic {topic} on {nsqd}, {where}, {_fate(count, waiting)}"
    else:
        return
    if options.fails_on_loss:
        raise LostMessages(f"{what}: {_NOT_ARCHIVED if options.archive else _KEEP_LONGER}")
    _log.warning("%s%s", what, later)


def _fate(count: int, waiting: int) -> str:
    """Say what became of messages, as many of which as are `waiting` may be delivered to consumers later."""
    if not waiting:
        return "were dropped before they were read"
    if waiting < count:
        return f"were dropped before they were read, but for {waiting} that {_WAIT}"
    return _WAIT


def id_before(time_ns: int) -> int:
    """Return the greatest id before this time; ids have units of 1.05 ms."""
    return min(END_OF_IDS, max(0, ((time_ns >> TICK_BITS) - TWEPOCH << TICK_SHIFT) - 1))


def _topic_of(one: Any) -> str:
    """Return the topic in an item of the list that an nsqlookupd or an nsqd gives."""
    if isinstance(one, str):
        return one
    return str(one["topic_name"])


# ---- all nsqds of some topics


@dataclass
class LiveTopics:
    """The logs of the topics of some options.

    silent  those whose nsqds did not answer to the last question
    """

    _options: LiveOptions
    silent: set[LogKey] = field(default_factory=set)
    _same: set[frozenset[str]] = field(default_factory=set)

    def retained(self, known: Positions, *, of_all: bool = False) -> Answers:
        """Return what each log keeps. `known` logs, with positions of a query, are asked if no nsqlookupd answers.

        Waits while all nsqds are away, with `of_all` while any is, known ones too unless some are gone; else one that is away
        is left out. An nsqd with several names is there once. Raises ArchiveError.
        """
        return with_retries(partial(self._asked, known, of_all), self._options.give_up_after_s)

    def _asked(self, known: Positions, of_all: bool) -> Answers:
        found: Answers = {}
        failures: dict[LogKey, str] = {}
        logs = named = self._logs(set(known), of_all)
        if of_all and not self._options.gone:
            logs = named | set(known)
        for log in sorted(logs):
            try:
                found[log] = self._now(log)
            except NoTopic:
                continue
            except Refused:
                raise
            except ArchiveError as error:
                failures[log] = str(error)
        epochs = {(log.topic, retained.end.epoch) for log, retained in found.items()}
        new_topics = {log.topic for log in found.keys() - known.keys()}
        for log in failures.keys() - named:
            epoch = known[log].epoch
            # Its nsqd answers under another name, or may do so, which the planner finds out.
            if (log.topic, epoch) in epochs or (epoch is None and log.topic in new_topics):
                del failures[log]
        self.silent = set(failures)
        if failures and (of_all or len(failures) == len(logs)):
            raise ArchiveError("; ".join(failures.values()))
        for failure in failures.values():
            _log.warning("%s", failure)
        return self._each_once(found, known)

    def _each_once(self, found: Answers, known: Positions) -> Answers:
        """Return answers without those of an nsqd that has several names here. Raises ArchiveError."""
        by_epoch: dict[tuple[str, int | None], LogKey] = {}
        for log in sorted(found, key=lambda log: (log not in known, log)):
            one = by_epoch.setdefault((log.topic, found[log].end.epoch), log)
            if one != log:
                self._check_same(one, log)
        return {log: found[log] for log in sorted(by_epoch.values())}

    def _check_same(self, one: LogKey, other: LogKey) -> None:
        """Raise ArchiveError if two addresses with the same log are not of the same nsqd."""
        addresses = one.nsqd, other.nsqd
        if frozenset(addresses) in self._same:
            return
        first, second = (
            addresses_in(nsqd, "/info", self._options.access, "nsqd", dict) for nsqd in addresses
        )
        if first != second:
            raise ArchiveError(
                f"nsq: {one.nsqd} and {other.nsqd} have the same log of topic {one.topic}, so one of these nsqds has a copy of "
                "the other one's data path: name only one of them"
            )
        _log.warning("nsq: %s and %s are the same nsqd: it is read once", *addresses)
        self._same.add(frozenset(addresses))

    def _now(self, log: LogKey) -> Retained:
        """Return what is retained of a log; with an archive, from its earliest message on. Raises NoTopic and ArchiveError."""
        if self._options.archive is None:
            return self.read(log, seq=BEHIND_ALL)
        answer = self.read(log, seq=0)
        if answer.first.message_id is None:
            raise Refused(
                f"nsq: topic {log.topic} of {log.nsqd} has no ids that rise, since it takes dead letters, which keep theirs (or "
                "nsqd is of an earlier version): read its log without an archive"
            )
        return answer

    def read(self, log: LogKey, **position: int) -> Retained:
        """Return the record at a position. Raises NoTopic and ArchiveError."""
        return read(log.nsqd, log.topic, 1, self._options.access, **position)

    def has(self, log: LogKey, message_id: int) -> bool:
        """True if a log retains a message. Raises NoTopic and ArchiveError."""
        answer = self.read(log, id=message_id - 1)
        return not answer.is_empty and answer.first.message_id == message_id - 1

    def waiting(self, log: LogKey, earliest_seq: int) -> int:
        """Return how many messages before its earliest one an nsqd keeps for channels, such as deferred ones, in files without
        the others; 0 if it does not say.
        """

        def in_files(document: Any) -> int:
            files = document["files"]
            return sum(int(one["message_count"]) for one in files if one["end_seq"] <= earliest_seq)

        if not earliest_seq:
            return 0
        path = f"/topic/log?{urlencode({'topic': log.topic})}"
        try:
            return addresses_in(log.nsqd, path, self._options.access, "nsqd", in_files)
        except ArchiveError:
            return 0

    def unlisted(self, log: LogKey) -> Retained | None:
        """Return what a log keeps of which `retained` did not know. If its topic was deleted, that is the end of the last log of
        this name; None if the nsqd does not remember it. Raises ArchiveError.
        """
        try:
            return self._now(log)
        except NoTopic as error:
            if not error.ended:
                return None
            epoch, count = error.ended[-1]
            end = Position(0, count, epoch)
            return Retained(b"", end, end, count, count, error.ended[:-1])

    def _logs(self, known: set[LogKey], of_all: bool) -> set[LogKey]:
        """Return the logs that there may be; the known ones where it cannot be asked for. Raises ArchiveError if there are none,
        and with `of_all` if an nsqd does not answer.
        """
        options = self._options
        failures = []
        found: set[LogKey] = set()
        for nsqd in options.nsqds:
            try:
                found |= {LogKey(topic, nsqd) for topic in self._names(nsqd, STATS, "nsqd")}
            except ArchiveError:
                if of_all:
                    raise
                found |= {log for log in known if log.nsqd == nsqd}
        for lookupd in options.lookupds:
            try:
                for topic in self._names(lookupd, "/topics", "nsqlookupd"):
                    nsqds = nsqds_of(lookupd, f"/lookup?{urlencode({'topic': topic})}", options.access)
                    found |= {LogKey(topic, nsqd) for nsqd in nsqds}
            except ArchiveError as error:
                failures.append(error)
                _log.warning("%s", error)
        if failures and len(failures) == len(options.lookupds):
            found |= known
            if not found:
                raise failures[0]
        return found

    def _names(self, asked: str, path: str, kind: str) -> set[str]:
        """Return the topics by name, and those that match the pattern. Raises ArchiveError."""
        requested = self._options.requested
        names = set(requested.topics or ())
        if requested.topic_pattern:
            there = addresses_in(
                asked, path, self._options.access, kind, lambda found: list(map(_topic_of, found["topics"]))
            )
            names |= {
                name for name in there if requested.has_topic(name) and not name.endswith(EPHEMERAL_SUFFIX)
            }
        return names

    def names_of(self, nsqd: str) -> tuple[str, str]:
        """Return the names that consumers may have for an nsqd. Raises ArchiveError."""
        tcp = tcp_address(nsqd, self._options.access)
        return tcp, f"{nsqd.rpartition('://')[2].rpartition(':')[0]}:{tcp.rpartition(':')[2]}"

    def by_tcp_address(self) -> tuple[dict[str, str], list[ArchiveError]]:
        """Return the HTTP addresses of all nsqds by the names that consumers have for them, and why some are not known."""
        found: dict[str, str] = {}
        failures: list[ArchiveError] = []
        for asked in *self._options.lookupds, *self._options.nsqds:
            try:
                if asked in self._options.nsqds:
                    found |= dict.fromkeys(self.names_of(asked), asked)
                else:
                    found |= {
                        tcp: nsqd for nsqd, tcp in nsqds_of(asked, "/nodes", self._options.access).items()
                    }
            except ArchiveError as error:
                failures.append(error)
        return found, failures

    def position(self, option: str, one: str | dict[str, int], log: LogKey, retained: Retained) -> Position:
        """Return the position of an option in a log. Raises ArchiveError.

        If the log does not keep the first message behind it, and there is an archive, only its id is known.
        """
        if isinstance(one, str):
            if one == LATEST:
                return retained.end
            return self.read(log, seq=0).first
        if one.get("seq", 0) > retained.end.seq:
            end, number = retained.end.seq, one["seq"]
            raise ArchiveError(
                f"nsq: option {option}: {log.nsqd} has numbers of topic {log.topic} up to {end}, not {number}"
            )
        answer = self.read(log, **one)
        if self._options.archive is None or "seq" in one:
            return answer.first
        if "id" in one:
            before = one["id"]
        else:
            before = id_before(one["time"])
        if answer.has_all_behind(before):
            return answer.first
        return Position(before, None, None)

    def check_named(self, option: str, offset: Offset, there: Answers) -> None:
        """Raise ArchiveError if the JSON of an option names other logs than there are."""
        if not isinstance(offset, Mapping):
            return
        for log in offset:
            if log not in there:
                known = ", ".join(sorted(other.nsqd for other in there if other.topic == log.topic)) or "none"
                raise ArchiveError(
                    f"nsq: option {option}: {log.nsqd} is no nsqd of topic {log.topic}; there are {known}"
                )
        if option == "endingOffsets" and (left := sorted(there.keys() - offset.keys())):
            raise ArchiveError(
                f"nsq: option {option}: no number for topic {left[0].topic} on {left[0].nsqd}; -1 is the latest"
            )
