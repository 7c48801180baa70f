"""The epochs of a log, and `nsqd.epochs`, the file that has those of all logs.

A log begins an epoch when it is created, and when its nsqd is promoted. Two copies of a log have the same messages as far
as their epochs agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from google_crc32c import extend

from nsqd_py.pqueues.alarms import Clock
from nsqd_py.runtime.documents import checked_number

EPOCHS_FILE = "nsqd.epochs"

_MOST_EPOCHS = 32
# Of topics whose logs were deleted. Those that were deleted last are remembered.
_MOST_ENDED_TOPICS = 1000


class Epoch(NamedTuple):
    """An epoch of one log, and the sequence number of its first message."""

    number: int
    first_seq: int


Epochs = tuple[Epoch, ...]


class EpochNumbers:
    """Gives out the numbers of epochs; each is higher than all before."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, self._clock())
        return self._last

    def skip_past(self, number: int) -> None:
        """Give out only higher numbers from now on."""
        self._last = max(self._last, number)


class EndedLog(NamedTuple):
    """A log that was deleted with its topic: its first epoch, and the number of messages that were published to it."""

    epoch: int
    messages: int


EndedLogs = dict[str, tuple[EndedLog, ...]]


def with_ended(ended: EndedLogs, topic: str, log: EndedLog) -> EndedLogs:
    """Return the ended logs by topic with one more."""
    newest_last = dict(ended)
    logs = (*newest_last.pop(topic, ()), log)
    newest_last[topic] = logs[-_MOST_EPOCHS:]
    latest = list(newest_last.items())[-_MOST_ENDED_TOPICS:]
    return dict(latest)


class SavedEpochs(NamedTuple):
    """The content of `nsqd.epochs`.

    node   number of the epoch in which this nsqd was promoted; 0 if it never was a standby
    logs   the epochs of each log, by topic
    ended  logs that were deleted, by topic, the last one last
    """

    node: int
    logs: dict[str, Epochs]
    ended: EndedLogs


def encode_epoch_file(node: int, logs: Mapping[str, Epochs], ended: EndedLogs | None = None) -> bytes:
    document = {"node": node, "logs": logs, "ended": ended or {}}
    content = json.dumps(document).encode()
    return b"%08x\n%b" % (extend(0, content), content)


def decode_epochs_of_logs(fields: dict[str, Any]) -> SavedEpochs:
    """Return the JSON of the file as objects. Raises BAD_CONTENT."""
    logs = {}
    for topic, epochs in fields["logs"].items():
        logs[topic] = decode_epochs(epochs)
    ended = {}
    for topic, one in fields.get("ended", {}).items():
        ended[topic] = _decode_ended(one)
    return SavedEpochs(checked_number(fields["node"]), logs, ended)


def _decode_ended(fields: object) -> tuple[EndedLog, ...]:
    if not isinstance(fields, list):
        raise TypeError("the ended logs are no list")
    return tuple(EndedLog(*map(checked_number, pair)) for pair in fields)


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
            if later is not None:
                return later.first_seq
            return None
    return 0
