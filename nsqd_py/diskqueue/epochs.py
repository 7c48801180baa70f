"""The epochs of a log: which of its messages were written before, and after, a standby was promoted.

Sequence numbers alone do not identify messages: a topic that was deleted and created again counts from 0 again, and
after a promotion two nsqds may have written different messages with the same numbers. So a log has epochs. The first
begins when the log is created, another one with each promotion. The number of an epoch is the time at which it began,
in ns since 1970, so that no two are equal. A follower compares its epochs with those of its primary.

`nsqd.epochs` has them: the crc32c of the rest in hex, a newline, and JSON. It exists from the first time that a standby
follows this nsqd, and in the data path of a standby. Elsewhere a log has another epoch after each start, which nobody
sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from google_crc32c import extend

from nsqd_py.runtime.documents import BAD_CONTENT, checked_number

EPOCHS_FILE = "nsqd.epochs"

_MOST_EPOCHS = 32


class Epoch(NamedTuple):
    """An epoch of one log, and the sequence number of its first message."""

    number: int
    first_seq: int


Epochs = tuple[Epoch, ...]


class EpochNumbers:
    """Gives out the numbers of epochs; each is higher than all before."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, self._clock())
        return self._last

    def skip_past(self, number: int) -> None:
        """Give out only higher numbers from now on."""
        self._last = max(self._last, number)


class SavedEpochs(NamedTuple):
    """The content of `nsqd.epochs`.

    node  number of the epoch in which this nsqd was promoted; 0 if it never was a standby
    logs  the epochs of each log, by topic
    """

    node: int
    logs: dict[str, Epochs]


def encode_epoch_file(node: int, logs: Mapping[str, Epochs]) -> bytes:
    content = json.dumps({"node": node, "logs": logs}).encode()
    return b"%08x\n%b" % (extend(0, content), content)


def decode_epoch_file(data: bytes) -> SavedEpochs:
    """Return the content of the file. Raises ValueError if it is damaged."""
    checksum, _, content = data.partition(b"\n")
    if checksum != b"%08x" % extend(0, content):
        raise ValueError("the checksum does not match")
    try:
        return decode_epochs_of_logs(json.loads(content))
    except BAD_CONTENT as error:
        raise ValueError(f"the content is not valid: {error!r}") from error


def decode_epochs_of_logs(fields: dict[str, Any]) -> SavedEpochs:
    """Return the JSON of the file as objects. Raises BAD_CONTENT."""
    logs = {topic: decode_epochs(epochs) for topic, epochs in fields["logs"].items()}
    return SavedEpochs(checked_number(fields["node"]), logs)


def decode_epochs(fields: object) -> Epochs:
    """Return the epochs from a JSON list of pairs. Raises ValueError and TypeError."""
    if not isinstance(fields, list):
        raise TypeError("the epochs are no list")
    epochs = tuple(Epoch(*map(checked_number, pair)) for pair in fields)
    if list(epochs) != sorted(set(epochs)):
        raise ValueError("the epochs are not in order")
    return epochs


def raised(epochs: Epochs, number: int, next_seq: int) -> Epochs:
    """Return the epochs of a log whose next messages, from `next_seq` on, belong to the epoch `number`."""
    return (*epochs, Epoch(number, next_seq))[-_MOST_EPOCHS:]


def common_end(mine: Epochs, theirs: Epochs) -> int | None:
    """Return the number up to which my messages are those of another copy of the log; None without a limit.

    `theirs` are the epochs of the newer copy. 0: the two are different logs, which have no message in common.
    """
    if not mine or not theirs:
        return 0
    for epoch, later in zip(theirs, [*theirs[1:], None], strict=True):
        if epoch.number == mine[-1].number:
            return later.first_seq if later is not None else None
    return 0
