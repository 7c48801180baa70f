"""A primary's stream and a standby's copy in one process, with every message between them on record."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsqd_py.feed.codec import FileMessage
from nsqd_py.feed.pieces import TopicListing, TopicsListed
from nsqd_py.standby import messages
from nsqd_py.standby.copies.copy import Copy
from nsqd_py.standby.messages import FOLLOW, NONCE_BYTES, Caller, Round

_MOST_OFFER_BYTES = 1 << 20
_FRAME_HEAD_BYTES = 8


def apply_to(copy: Copy, data: bytes) -> int | None:
    """Does what a follower does with a message; returns the number of a round that ends."""
    match messages.decode(data):
        case FileMessage() as message:
            copy.apply(message)
        case TopicListing() as message:
            copy.list_topic(message)
        case TopicsListed():
            copy.end_list()
        case Round(number, _):
            copy.departures.end_round(time.monotonic())
            return number
    return None


class StandbyLink:
    """The connection of a standby, as its primary sees it. `sent` is on record for all connections.

    A backup takes nothing after its second round.
    """

    def __init__(
        self, replication: Any, directory: Path, sent: list[bytes | None], *, is_backup: bool = False
    ) -> None:
        self.is_backup = is_backup
        self.last_round = 0
        self.peer = self.local_address = "127.0.0.1:4150"
        self.tls_info = None
        self._answers: list[bytes] | None = None
        self.closed = False
        self.out: list[bytes] = []
        self.unsent_bytes = 0
        self.acknowledges = True
        self.sent = sent
        self.copy = Copy(directory, "aside", was_primary=False)
        self._replication = replication

    def connect(self) -> StandbyLink:
        self.copy.read()
        self.sent.append(None)
        caller, answers = Caller(b"", FOLLOW, self.local_address, self.local_address, bytes(NONCE_BYTES)), []
        self._answers = answers
        self._replication.member(self, caller.hello())
        self._replication.member(self, caller.prove(answers[0]))
        caller.check(answers[1])
        self._answers = None
        offer = replace(self.copy.offer(""), is_backup=self.is_backup)
        body = messages.encode_offer(offer, _MOST_OFFER_BYTES)
        self._replication.attach(self, caller.signed(body))
        return self

    def send(self, frame: bytes) -> None:
        data = frame[_FRAME_HEAD_BYTES:]
        if self._answers is not None:  # the handshake
            self._answers.append(data)
            return
        if self.is_over:
            return
        self.sent.append(data)
        number = apply_to(self.copy, data)
        self.last_round = number or self.last_round
        if number is not None and self.acknowledges:
            self._replication.acknowledge(self, number)

    def close(self, reason: str) -> None:
        if not self.is_over:
            raise AssertionError(reason)
        self.end()

    @property
    def is_over(self) -> bool:
        return self.is_backup and self.last_round > 1

    def end(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._replication.detach(self)
        self.copy.close()


def replay(sent: list[bytes | None], directory: Path) -> None:
    """Makes the copy that these messages make; None is a new connection."""
    copy = Copy(directory, "aside", was_primary=False)
    for data in sent:
        if data is None:
            copy.close()
            copy.read()
        else:
            apply_to(copy, data)
    copy.close()
