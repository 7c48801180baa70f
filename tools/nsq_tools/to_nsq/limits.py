"""How large a message and the body of an MPUB may be.

nsqd says so in no answer of the protocol, only when it refuses: `E_BAD_MESSAGE MPUB message too big 1500 > 1000`,
`E_BAD_BODY MPUB body too big ...`. It has then taken nothing of that command.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from nsq_tools.to_nsq.records import Batch, Refusal
from nsqd_py.batch import SIZE_BYTES

COUNT_BYTES = 4

_TOO_BIG = re.compile(r"(message|body) too big -?\d+ > (\d+)")


class Fitting(NamedTuple):
    """What may be sent, each an MPUB, or a PUB where it has one record only; and what may not."""

    parts: list[Batch]
    refused: list[Refusal]


class Limits:
    """What one nsqd takes, as far as it is known."""

    def __init__(self, max_body_bytes: int) -> None:
        """`max_body_bytes`: no MPUB is made larger, whatever nsqd may take."""
        self.max_message_bytes: int | None = None
        self.max_body_bytes = max_body_bytes

    def learn(self, refusal: str) -> bool:
        """From the text of an error; whether it says anything new."""
        said = _TOO_BIG.search(refusal)
        if said is None:
            return False
        limit_bytes = int(said[2])
        if said[1] == "body":
            is_new = limit_bytes < self.max_body_bytes
            self.max_body_bytes = min(limit_bytes, self.max_body_bytes)
        else:
            is_new = self.max_message_bytes is None or limit_bytes < self.max_message_bytes
            self.max_message_bytes = limit_bytes
        return is_new

    def fit(self, batch: Batch) -> Fitting:
        """The batch in parts that this nsqd takes, as few as there can be."""
        limit_bytes = self.max_message_bytes
        if limit_bytes is None or all(len(record) <= limit_bytes for record in batch.records):
            return Fitting(list(self._parts(batch)), [])
        pairs = list(zip(batch.records, batch.lines, strict=True))
        kept = [pair for pair in pairs if len(pair[0]) <= limit_bytes]
        reason = f"it takes no more than {limit_bytes}"
        refused = [Refusal(line, len(record), reason) for record, line in pairs if len(record) > limit_bytes]
        smaller = Batch([record for record, _ in kept], [line for _, line in kept])
        return Fitting(list(self._parts(smaller)), refused)

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """Each with a body of at most `max_body_bytes`, or of one record."""
        ends = list(accumulate(len(record) + SIZE_BYTES for record in batch.records))
        room_bytes = self.max_body_bytes - COUNT_BYTES
        start = sent_bytes = 0
        while start < len(ends):
            end = max(bisect_right(ends, sent_bytes + room_bytes, lo=start), start + 1)
            yield batch.part(start, end)
            start, sent_bytes = end, ends[end - 1]


def halves(batch: Batch) -> Fitting:
    """For a refusal that does not say what is too large: each half goes alone."""
    middle = len(batch.records) // 2
    return Fitting([batch.part(0, middle), batch.part(middle, len(batch.records))], [])
