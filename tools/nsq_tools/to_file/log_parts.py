"""The messages of each nsqd in a file: their ids, and their position in the log of the nsqd.

Whoever reads an archive and the logs behind it then knows, without reading the file, which messages it has, and whether
some are missing between two files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import lt
from time import monotonic
from typing import Any, TypeAlias

from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.net.addresses import join_address, parse_host_port

# The messages of each nsqd, as JSON has them: the fields of LogPart.
LogParts: TypeAlias = list[dict[str, Any]]

_TIMEOUT_S = 2.0
# An nsqd that does not answer, or does not know the message, is asked again after this time.
_PAUSE_S = 10.0
# The answer has the record of the message: a whole publish.
_MOST_ANSWER_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class LogPart:
    """The messages of one nsqd in a file.

    first_id, last_id  the smallest and the greatest id
    count              number of messages; one that is in the file twice counts twice
    is_ordered         True if each id is greater than the one before, so that no message is there twice
    epoch              of the topic's log on the nsqd
    first_seq          number of messages in that log before `first_id`; both are None if the nsqd did not say
    """

    nsqd: str
    first_id: str = ""
    last_id: str = ""
    count: int = 0
    is_ordered: bool = True
    epoch: int | None = None
    first_seq: int | None = None

    def add(self, ids: Sequence[bytes]) -> None:
        """Add messages, in their order in the file."""
        is_ordered = all(map(lt, ids, ids[1:]))
        bounds = (ids[0], ids[-1]) if is_ordered else (min(ids), max(ids))
        first_id, last_id = (message_id.decode("ascii", "backslashreplace") for message_id in bounds)
        self.is_ordered &= is_ordered and first_id > self.last_id
        self.last_id = max(self.last_id, last_id)
        if not self.count or first_id < self.first_id:
            self.first_id, self.epoch, self.first_seq = first_id, None, None
        self.count += len(ids)


def last_part(parts: Sequence[LogPart], nsqd: str) -> LogPart | None:
    """Return the last part of a file with messages of this nsqd."""
    return next((part for part in reversed(parts) if part.nsqd == nsqd), None)


class LogPositions:
    """Asks nsqds over HTTP for the positions of messages in the logs of a topic. Its method blocks.

    client  has the certificates and the token for an nsqd that requires TLS
    """

    def __init__(self, topic: str, client: ClientOptions) -> None:
        self._topic = topic
        self._access = HttpAccess(
            client, timeout_s=_TIMEOUT_S, answer_s=_TIMEOUT_S, max_answer_bytes=_MOST_ANSWER_BYTES
        )
        self._connections: dict[str, object] = {}
        self._ask_after_s: dict[str, float] = {}

    def note(self, parts: list[LogPart], batches: Iterable[MessageBatch]) -> bool:
        """Add messages, which must not be finished yet, to the parts of a file. Return True if a position was found.

        Messages of a topic that was deleted and created again are another part: nsqd then closes the connections.
        """
        has_found = False
        for batch in batches:
            part = last_part(parts, batch.nsqd)
            if not part or self._connections.get(batch.nsqd) is not batch.connection:
                self._connections[batch.nsqd] = batch.connection
                first = LogPart(batch.nsqd)
                first.add(batch.ids)
                has_found = self._find(first, batch.http_port) or has_found
                if not part or part.epoch is None or part.epoch != first.epoch:
                    parts.append(first)
                    continue
            part.add(batch.ids)
            if part.first_seq is None:
                has_found = self._find(part, batch.http_port) or has_found
        return has_found

    def _find(self, part: LogPart, http_port: int) -> bool:
        """Set the position of the part's first message, if nsqd has that message and says where; return True then."""
        if not http_port or monotonic() < self._ask_after_s.get(part.nsqd, 0):
            return False
        try:
            part.epoch, part.first_seq = self._position(part, http_port)
        except (UpstreamError, ValueError):
            self._ask_after_s[part.nsqd] = monotonic() + _PAUSE_S
            return False
        return True

    def _position(self, part: LogPart, http_port: int) -> tuple[int, int]:
        """Raises UpstreamError, and ValueError if the answer is not about this message."""
        before_id = f"{int(part.first_id, 16) - 1:016x}"
        host, _ = parse_host_port(part.nsqd)
        query = {"topic": self._topic, "id": before_id, "max_bytes": "1"}
        with self._access.answer() as answer:
            self._access.get_bytes(answer, join_address(host, http_port), "/topic/read", query)
        headers = answer.headers
        epoch, seq, end_seq = (
            int(headers.get(f"X-Nsq-{name}", "")) for name in ("Epoch", "First-Seq", "End-Seq")
        )
        if headers["X-Nsq-Before-Id"] != before_id or seq >= end_seq:
            raise ValueError("the log does not have the message")
        return epoch, seq
