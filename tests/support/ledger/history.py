"""A history: the operations of clients and of those who kill, in the order in which they were noted.

Each operation is a line of JSON, written with one call. A process that is killed leaves a history that can be read: a
last line without its end is passed over.

When an operation is noted decides what a history proves:
- Before it is done: a publish, a FIN, a REQ, a cut, a start, a kill. It may take effect as soon as it is noted.
- After it is known: an answer, a delivery, the end of a cut, a stop that ended with status 0. It has happened.
- The clients of a killed nsqd end before its next start is noted: what they do belongs to the life before it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import orjson

FOREVER_NS = 2**63
_LONGEST_NAME_BYTES = 40
_HEAD_BYTES = 24


class Kind(StrEnum):
    """What an operation is. `of` is the number of the operation that it answers or continues."""

    CREATED = "created"  # a channel is there; all that is published from now on is for it, too
    SENDING = "sending"  # a publish of `bodies` is about to be sent
    OK = "ok"  # of a publish
    REFUSED = "refused"  # of a publish: the answer was an error
    UNKNOWN = "unknown"  # of a publish: its answer will not come; the same as no word of it
    DELIVERED = "delivered"  # a message has come
    FIN = "fin"  # of a delivery: about to be sent
    REQ = "req"  # of a delivery: about to be sent, with `delay_ns`
    DENIED = "denied"  # of a FIN or REQ: nsqd did not take it
    PROCESSED = "processed"  # what `client` had sent up to the operation `of` has been processed
    CUT = "cut"  # an operation that moves a channel is about to be sent, with `cut`; see cuts.py
    CUT_ENDED = "cut ended"  # of a cut: it was answered, or will not be
    STARTED = "started"  # an nsqd is about to be started
    KILLED = "killed"  # an nsqd is about to be killed
    STOPPED = "stopped"  # an nsqd has ended with status 0
    DRAINED = "drained"  # a channel has nothing left: nothing waits, is in flight, or deferred


_KINDS = frozenset(Kind)


@dataclass(slots=True)
class Operation:
    """One operation.

    number     of the operation; rising
    client     a connection; operations without one are not judged by what only a single connection proves
    resends    the publisher sends again where an outcome is unknown, so that one publish may become several messages
    epoch      of the primary that served; 0 without standbys
    """

    kind: str
    number: int
    at_ns: int
    of: int = -1
    client: str = ""
    nsqd: str = ""
    epoch: int = 0
    topic: str = ""
    channel: str = ""
    bodies: tuple[str, ...] = ()
    id: str = ""
    attempts: int = 0
    timestamp_ns: int = 0
    defer_ns: int = 0
    delay_ns: int = 0
    resends: bool = False
    is_answered: bool = False
    cut: dict[str, Any] | None = None
    text: str = ""


def name_of(body: bytes) -> str:
    """Return what stands for a body in a history: the body if it is short text, else its head, size and digest."""
    if len(body) <= _LONGEST_NAME_BYTES and body.isascii():
        text = body.decode()
        if text.isprintable():
            return text
    head = body[:_HEAD_BYTES].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
    return f"{head}~{len(body)}~{hashlib.blake2b(body, digest_size=8).hexdigest()}"


class Delivered(Protocol):
    """A message as a client has it: of tests.support.wire, of the library, or of a fake."""

    @property
    def body(self) -> bytes: ...

    @property
    def id(self) -> bytes: ...

    @property
    def attempts(self) -> int: ...

    @property
    def timestamp_ns(self) -> int: ...


class History:
    """A history that is being written. Any thread may append to it: one lock covers the number, time and line.

    Without a path it is kept in memory; with one, only in the file, which must not exist yet. `sent`, `acknowledged` and
    `deliveries` count messages while it grows, for tests that wait for load.
    """

    def __init__(self, path: Path | None = None, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.path = path
        self.acknowledged = 0
        self.deliveries = 0
        self.sent = 0
        self._clock_ns = clock_ns
        self._lines: list[bytes] = []
        self._count = 0
        self._sizes: dict[int, int] = {}  # of the publishes that have no answer yet
        self._watchers: list[Callable[[Operation], None]] = []
        self._lock = threading.Lock()
        self._file = path.open("xb", buffering=0) if path is not None else None

    def watch(self, see: Callable[[Operation], None]) -> None:
        """Call `see` with each operation from now on, one at a time and in their order."""
        self._watchers.append(see)

    def operations(self) -> list[Operation]:
        """Return what was appended so far."""
        if self.path is not None:
            return read_history(self.path)
        with self._lock:
            lines = list(self._lines)
        return list(map(_decode, lines))

    # ---- publishers

    def sending(
        self,
        topic: str,
        bodies: Iterable[bytes],
        client: str = "",
        *,
        defer_ns: int = 0,
        resends: bool = False,
    ) -> int:
        """Note a publish that is about to be sent; return its number. Bodies are unique in their topic."""
        names = list(map(name_of, bodies))
        return self._append(
            Kind.SENDING, topic=topic, bodies=names, client=client, defer_ns=defer_ns, resends=resends
        )

    def ok(self, publish: int, nsqd: str = "", epoch: int = 0) -> None:
        self._append(Kind.OK, of=publish, nsqd=nsqd, epoch=epoch)

    def refused(self, publish: int, reason: object = "") -> None:
        self._append(Kind.REFUSED, of=publish, text=str(reason))

    def unknown(self, publish: int, reason: object = "") -> None:
        self._append(Kind.UNKNOWN, of=publish, text=str(reason))

    # ---- consumers

    def created(self, topic: str, *channels: str) -> None:
        for channel in channels:
            self._append(Kind.CREATED, topic=topic, channel=channel)

    def delivered(
        self,
        topic: str,
        channel: str,
        body: bytes,
        *,
        client: str = "",
        nsqd: str = "",
        epoch: int = 0,
        message_id: bytes = b"",
        attempts: int = 0,
        timestamp_ns: int = 0,
    ) -> int:
        """Note a delivery; return its number."""
        return self._append(
            Kind.DELIVERED,
            topic=topic,
            channel=channel,
            bodies=[name_of(body)],
            client=client,
            nsqd=nsqd,
            epoch=epoch,
            id=message_id.decode(),
            attempts=attempts,
            timestamp_ns=timestamp_ns,
        )

    def received(self, topic: str, channel: str, message: Delivered, client: str = "", **server: Any) -> int:
        """Note the delivery of a message with all that nsqd says of it; return its number. `server` as in `delivered`."""
        return self.delivered(
            topic,
            channel,
            message.body,
            client=client,
            message_id=message.id,
            attempts=message.attempts,
            timestamp_ns=message.timestamp_ns,
            **server,
        )

    def fin(self, delivery: int) -> int:
        return self._append(Kind.FIN, of=delivery)

    def req(self, delivery: int, delay_ms: int = 0) -> int:
        return self._append(Kind.REQ, of=delivery, delay_ns=delay_ms * 1_000_000)

    def denied(self, answer: int) -> None:
        """Note that nsqd did not take a FIN or REQ: the message was not in flight any more."""
        self._append(Kind.DENIED, of=answer)

    def processed(self, client: str, through: int) -> None:
        """Note that nsqd has processed every FIN and REQ of this client up to the operation `through`."""
        self._append(Kind.PROCESSED, client=client, of=through)

    def drained(self, topic: str, *channels: str) -> None:
        for channel in channels:
            self._append(Kind.DRAINED, topic=topic, channel=channel)

    # ---- operators

    def cut(self, topic: str, channel: str, nsqd: str = "", **parameters: int | bool) -> int:
        """Note an operation that moves a channel; the parameters are those of `cuts.Cut`."""
        return self._append(Kind.CUT, topic=topic, channel=channel, cut=parameters, nsqd=nsqd)

    def cut_ended(self, cut: int, *, is_answered: bool, latest_ns: int = FOREVER_NS) -> None:
        """Note the end of a cut; what was sent from `latest_ns` on was not touched."""
        self._append(Kind.CUT_ENDED, of=cut, is_answered=is_answered, cut={"latest_ns": latest_ns})

    def started(self, nsqd: str = "") -> None:
        self._append(Kind.STARTED, nsqd=nsqd)

    def killed(self, nsqd: str = "") -> None:
        self._append(Kind.KILLED, nsqd=nsqd)

    def stopped(self) -> None:
        self._append(Kind.STOPPED)

    def _append(self, kind: Kind, **fields: Any) -> int:
        """What has its default is left out."""
        kept = {name: value for name, value in fields.items() if value or name in ("of", "cut")}
        with self._lock:
            number = self._count
            self._count += 1
            line = orjson.dumps({"kind": kind, "number": number, "at_ns": self._clock_ns(), **kept}) + b"\n"
            if self._file is not None:
                self._file.write(line)
            else:
                self._lines.append(line)
            self._add_up(kind, number, fields)
            for see in self._watchers:
                see(_decode(line))
        return number

    def _add_up(self, kind: Kind, number: int, fields: dict[str, Any]) -> None:
        if kind is Kind.DELIVERED:
            self.deliveries += 1
        elif kind is Kind.SENDING:
            self._sizes[number] = len(fields["bodies"])
            self.sent += len(fields["bodies"])
        elif kind is Kind.OK:
            self.acknowledged += self._sizes.pop(fields["of"], 0)
        elif kind in (Kind.REFUSED, Kind.UNKNOWN):
            self._sizes.pop(fields["of"], None)


def read_history(path: Path) -> list[Operation]:
    """Return the operations of a file. Raises ValueError for a line that is no operation, and not a cut last one."""
    return list(_decode_all(path.read_bytes(), path))


def _decode_all(content: bytes, path: Path) -> Iterator[Operation]:
    *lines, _ = content.split(b"\n")
    for index, line in enumerate(lines):
        try:
            yield _decode(line)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: line {index + 1} is no operation: {error}") from error


def _decode(line: bytes) -> Operation:
    fields = orjson.loads(line)
    if "bodies" in fields:
        fields["bodies"] = tuple(fields["bodies"])
    if fields["kind"] not in _KINDS:
        raise ValueError(f"{fields['kind']} is no kind of operation")
    return Operation(**fields)
