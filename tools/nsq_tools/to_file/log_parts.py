"""The messages of each nsqd in a file: their ids, and their position in the log of the nsqd.

Whoever reads an archive and the logs behind it then knows, without reading the file, which messages it has, and whether
some are missing between two files, or behind the last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
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
_EPOCH = "X-Nsq-Epoch"
_ENDED = "X-Nsq-Ended"
_BEFORE_ID = "X-Nsq-Before-Id"
_FIRST_SEQ = "X-Nsq-First-Seq"
_END_ID = "X-Nsq-End-Id"
_END_SEQ = "X-Nsq-End-Seq"
# No message is behind this id.
_END_OF_IDS = "7fffffffffffffff"
# The fields of LogPart that an nsqd says.
POSITIONS = ("epoch", "first_seq", "end_id", "end_seq")


@dataclass(slots=True)
class LogPart:
    """The messages of one nsqd in a file.

    first_id, last_id  the smallest and the greatest id
    count              number of messages; one that is in the file twice counts twice
    is_ordered         True if each id is greater than the one before, so that no message is there twice
    epoch              of the topic's log on the nsqd
    first_seq          number of messages in that log before `first_id`; both are None if the nsqd did not say
    end_id, end_seq    the last id of that log, and the number of its messages, when the nsqd was last asked: other files may have
                       some of them. None if the nsqd did not say
    """

    nsqd: str
    first_id: str = ""
    last_id: str = ""
    count: int = 0
    is_ordered: bool = True
    epoch: int | None = None
    first_seq: int | None = None
    end_id: str | None = None
    end_seq: int | None = None

    def add(self, ids: Sequence[bytes]) -> None:
        """Add messages, in their order in the file."""
        is_ordered = all(map(lt, ids, ids[1:]))
        if is_ordered:
            bounds = (ids[0], ids[-1])
        else:
            bounds = (min(ids), max(ids))
        first_id, last_id = (message_id.decode("ascii", "backslashreplace") for message_id in bounds)
        self.is_ordered &= is_ordered and first_id > self.last_id
        self.last_id = max(self.last_id, last_id)
        if not self.count or first_id < self.first_id:
            self.first_id = first_id
            self.epoch = None
            self.first_seq = None
        self.count += len(ids)


def last_part(parts: Sequence[LogPart], nsqd: str) -> LogPart | None:
    """Return the last part of a file with messages of this nsqd."""
    return next((part for part in reversed(parts) if part.nsqd == nsqd), None)


class LogPositions:
    """Asks nsqds over HTTP for the positions of messages in the logs of a topic. Its methods block.

    client  has the certificates and the token for an nsqd that requires TLS
    """

    def __init__(self, topic: str, client: ClientOptions) -> None:
        self._topic = topic
        self._access = HttpAccess(
            client, timeout_s=_TIMEOUT_S, answer_s=_TIMEOUT_S, max_answer_bytes=_MOST_ANSWER_BYTES
        )
        self._connections: dict[str, object] = {}
        self._http_ports: dict[str, int] = {}
        self._ask_after_s: dict[str, float] = {}

    def note(self, parts: list[LogPart], batches: Iterable[MessageBatch]) -> bool:
        """Add messages, which must not be finished yet, to the parts of a file. Return True if a position was found.

        Messages of a topic that was deleted and created again are another part: nsqd then closes the connections.
        """
        has_found = False
        for batch in batches:
            self._http_ports[batch.nsqd] = batch.http_port
            part = last_part(parts, batch.nsqd)
            if not part or self._connections.get(batch.nsqd) is not batch.connection:
                self._connections[batch.nsqd] = batch.connection
                first = LogPart(batch.nsqd)
                first.add(batch.ids)
                has_found = self._find(first) or has_found
                if not part or part.epoch is None or part.epoch != first.epoch:
                    parts.append(first)
                    continue
            part.add(batch.ids)
            if part.first_seq is None:
                has_found = self._find(part) or has_found
        return has_found

    def note_ends(self, parts: list[LogPart]) -> None:
        """Set how far the logs of the parts of a file go, which ends now: a reader then knows how many messages there are, also
        of other files, when the logs are gone.
        """
        for part in parts:
            if part.epoch is not None:
                _set_end(part, self._headers(part, _END_OF_IDS))

    def _find(self, part: LogPart) -> bool:
        """Set the position of the part's first message, if nsqd has that message and says where; return True then."""
        before_id = f"{int(part.first_id, 16) - 1:016x}"
        headers = self._headers(part, before_id)
        try:
            epoch, seq, end_seq = (int(headers.get(name, "")) for name in (_EPOCH, _FIRST_SEQ, _END_SEQ))
            if headers[_BEFORE_ID] != before_id or seq >= end_seq:
                raise ValueError("the log does not have the message")
        except ValueError:
            self._ask_after_s[part.nsqd] = monotonic() + _PAUSE_S
            return False
        part.epoch = epoch
        part.first_seq = seq
        _set_end(part, headers)
        return True

    def _headers(self, part: LogPart, message_id: str) -> Message:
        """Return the headers of an answer about what is behind a message; none if nsqd does not answer."""
        http_port = self._http_ports[part.nsqd]
        if not http_port or monotonic() < self._ask_after_s.get(part.nsqd, 0):
            return Message()
        host, _ = parse_host_port(part.nsqd)
        query = {"topic": self._topic, "id": message_id, "max_bytes": "1"}
        with self._access.answer() as answer, suppress(UpstreamError):
            self._access.get_bytes(answer, join_address(host, http_port), "/topic/read", query)
        return answer.headers  # of a refusal too: the topic may be deleted


def _set_end(part: LogPart, headers: Message) -> None:
    """Set the end of the part's log, which is known of a deleted one too."""
    end_id = headers.get(_END_ID, "")
    end_seq = headers.get(_END_SEQ, "")
    if headers.get(_EPOCH) != str(part.epoch):
        deleted = re.search(rf"\b{part.epoch}:(\d+)", headers.get(_ENDED, ""))
        end_id = _END_OF_IDS
        end_seq = deleted[1] if deleted else ""
    with suppress(ValueError):  # another server answers there
        seq = int(end_seq)
        part.end_id = f"{int(end_id, 16):016x}"
        part.end_seq = seq
