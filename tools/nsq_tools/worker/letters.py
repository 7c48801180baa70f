"""Dead letters as nsqd stores them: who gave each up and why, and which of them wait.

`/topic/log` and `/topic/read` of nsqd-py show them without a channel, so that reading disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from nsqd_py.client.addresses import parse_address
from nsqd_py.cluster.access import HttpAccess
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.producers import http_address, producer
from nsqd_py.cluster.values import list_in, number_in, rows_in, text_in
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.diskqueue.records import NO_LOG, FileHeader, batches_in
from nsqd_py.net.addresses import join_address
from nsqd_py.protocol.envelope import unwrap, wrap
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import ToolError
from nsqd_py.work.dead_letters import OWN_HEADERS

_READ_BYTES = str(4 << 20)
_NO_TOPIC = "TOPIC_NOT_FOUND"
_UNKNOWN = "-"


class Letter(NamedTuple):
    """One dead letter.

    id            of the dead letter, as 16 hex digits; `headers["id"]` is that of its message
    topic         that it lies in, such as orders.dead
    timestamp_ns  when nsqd got it; of a message that nsqd itself moved, when its publisher sent it
    body          the original one, byte for byte
    headers       empty if nsqd itself moved the message
    """

    id: str
    topic: str
    timestamp_ns: int
    body: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(cls, message_id: bytes, topic: str, timestamp_ns: int, data: bytes) -> Letter:
        """Return the dead letter that came as `data`."""
        body, headers = unwrap(data)
        return cls(message_id.decode("latin-1"), topic, timestamp_ns, body, headers)

    @property
    def to_publish(self) -> bytes:
        """The message as it was before it died: without the headers of dead letters."""
        headers = {name: text for name, text in self.headers.items() if name not in OWN_HEADERS}
        if headers:
            return wrap(self.body, headers)
        return self.body

    def line(self) -> str:
        """Return the columns of `dead list`."""
        died_ns = self.headers.get("died", "")
        seconds = int(died_ns if died_ns.isdecimal() else self.timestamp_ns) // SECOND_NS
        named = [self.headers.get(name, _UNKNOWN) for name in ("attempts", "handler", "error")]
        died = datetime.fromtimestamp(seconds).astimezone().isoformat()
        return "\t".join((self.id, self.topic, died, *named))


class WaitingLetters:
    """Reads the dead letters that wait, over HTTP."""

    def __init__(self, access: HttpAccess, addresses: Iterable[str]) -> None:
        self._access = access
        self._addresses = tuple(addresses)

    def latest(self, topic: str, most: int | None) -> list[Letter]:
        """Return the dead letters that a channel has not finished, or none has received; at most `most` of each nsqd.

        Raises UpstreamError if an nsqd has no log to read.
        """
        return [letter for address in self._addresses for letter in self._latest_of(address, topic, most)]

    def _latest_of(self, address: str, topic: str, most: int | None) -> list[Letter]:
        letters: list[Letter] = []
        for low, high in reversed(self._ranges(address, topic)):
            if most is not None:
                low = max(low, high - most + len(letters))
            letters = [*self._between(address, topic, low, high), *letters]
        return letters

    def channels(self, topic: str) -> set[str] | None:
        """Return the channels of a topic on all nsqds; None if no nsqd has the topic. Raises UpstreamError."""
        query = {"format": "json", "topic": topic, "include_clients": "false"}
        answers = [self._access.get(address, "/stats", query) for address in self._addresses]
        topics = [row for answer in answers for row in rows_in(answer, "topics")]
        if not topics:
            return None
        return {text_in(channel, "channel_name") for row in topics for channel in rows_in(row, "channels")}

    def _ranges(self, address: str, topic: str) -> list[tuple[int, int]]:
        try:
            answer = self._access.get(address, "/topic/log", {"topic": topic, "live": "1"})
        except UpstreamError as error:
            if error.message == _NO_TOPIC:
                return []
            raise
        return [(low, high) for low, high in list_in(answer, "live")]

    def _between(self, address: str, topic: str, low: int, high: int) -> Iterator[Letter]:
        """Yield the dead letters from number `low` up to `high`."""
        while low < high:
            query = {"topic": topic, "seq": str(low), "max_bytes": _READ_BYTES}
            with self._access.answer() as answer:
                data = self._access.get_bytes(answer, address, "/topic/read", query)
            next_seq = int(answer.headers.get("X-Nsq-Next-Seq", "0"))
            try:
                for batch in batches_in(data, FileHeader.decode(data).salt):
                    first = max(0, low - batch.first_seq)
                    end = min(batch.count, high - batch.first_seq)
                    if first < end:
                        yield from _letters_in(Messages.of_batch(batch.part(first, end), topic))
            except NO_LOG as error:
                raise ToolError(f"{address}: the answer to /topic/read is not a log: {error}") from error
            if next_seq <= low:
                return
            low = next_seq


def _letters_in(messages: Messages) -> Iterator[Letter]:
    for row in zip(messages.ids, messages.timestamps_ns, messages.bodies, strict=True):
        message_id, timestamp_ns, body = row
        yield Letter.of(message_id, messages.topic, timestamp_ns, body)


# ---- where nsqds answer over HTTP


def http_addresses(access: HttpAccess, nsqds: Iterable[str], lookupds: Iterable[str]) -> list[str]:
    """Return the HTTP addresses of these nsqds, and of those that the nsqlookupds know. Raises UpstreamError."""
    found = [_next_to(access, nsqd) for nsqd in nsqds]
    for lookupd in lookupds:
        rows = rows_in(access.get(lookupd, "/nodes"), "producers")
        found += [http_address(producer(row)) for row in rows]
    return list(dict.fromkeys(found))


def _next_to(access: HttpAccess, nsqd: str) -> str:
    """Return the HTTP address of an nsqd, if its port is the one after that for TCP."""
    address = parse_address(nsqd)
    guess = join_address(address.host, address.port + 1)
    if address.path or number_in(access.get(guess, "/info"), "tcp_port") != address.port:
        raise UpstreamError("it is not the HTTP address of this nsqd", guess)
    return guess
