"""The policy of a topic, and dead letters: messages with too many attempts, which are moved to another topic.

A message is finished in its channel after it is written to the other topic (with `--sync-every=1`: synced). After a
crash in between it is redelivered, and may be moved twice; no message is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from nsqd_py.pqueues.alarms import Clock
from nsqd_py.pqueues.in_flight import Delivery, Entry, InFlightTable, runs_of_entries
from nsqd_py.protocol import names
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.frames import hex_ids
from nsqd_py.runtime.iteration_end import IterationEnd
from nsqd_py.runtime.logs.lines import LineWriter

MOST_REMEMBERED = 100
_REPORT_EVERY_NS = 60 * 1_000_000_000


# ---- the policy of a topic


class TopicPolicy(NamedTuple):
    """The settings of one topic; 0 or "" turns one off.

    retention_ns, retention_bytes: how much of the log is retained after all channels have finished it.
    max_attempts: after this number of attempts a message is moved to `dead_letter_topic`.
    ttl_ns: the time to live of a message.
    max_bytes: the size of the log at which publishes are refused.
    takes_dead_letters: the topic can contain messages that were moved from another topic.
    """

    retention_ns: int = 0
    retention_bytes: int = 0
    max_attempts: int = 0
    dead_letter_topic: str = ""
    ttl_ns: int = 0
    max_bytes: int = 0
    takes_dead_letters: bool = False


def policy_of(options: Any, topic: str) -> TopicPolicy:
    """Return the policy of a topic; `options` are those of nsqd."""
    dead_letters = dead_letter_topic(topic, options.dead_letter_topic.of(topic))
    return TopicPolicy(
        retention_ns=options.retention_time_ns.of(topic),
        retention_bytes=options.retention_bytes.of(topic),
        max_attempts=options.max_attempts.of(topic) if dead_letters != topic else 0,
        dead_letter_topic=dead_letters,
        ttl_ns=options.message_ttl_ns.of(topic),
        max_bytes=options.max_topic_bytes.of(topic),
        takes_dead_letters=takes_dead_letters(options, topic),
    )


def takes_dead_letters(options: Any, topic: str) -> bool:
    """True if the options can send dead letters to this topic, or if it has the name of a default dead letter topic."""
    return dead_letter_topic(topic, "") == topic or topic in options.dead_letter_topic.values


def dead_letter_topic(topic: str, given: str) -> str:
    """Return the topic that receives a topic's dead letters: `given`, or that of `names.dead_letter_topic`."""
    return given or names.dead_letter_topic(topic)


# ---- moving dead letters


class DeadLetterTopic(Protocol):
    """The topic that receives dead letters."""

    is_closed: bool

    def remember_dead_letter(self, summary: dict[str, Any]) -> None:
        """Store {id, attempts, topic, channel, timestamp, died} of a dead letter, with times in ns."""

    def publish_dead_letters(self, batch: Batch, died_ns: int, publisher: Any, ticket: int) -> None:
        """Publish messages of another topic with their ids and timestamps."""


class Origin(NamedTuple):
    """The channel whose messages are moved.

    finish    (low, high): finish these sequence numbers
    wait      (entries, due_ns): requeue these messages, or defer them until `due_ns` if it is not 0
    batch_at  (seq): return the batch that contains `seq`, or else the next batch. Raises OSError
    """

    topic: str
    channel: str
    finish: Callable[[int, int], None]
    wait: Callable[[list[Entry], int], None]
    batch_at: Callable[[int], Batch | None]


@dataclass(eq=False, repr=False)
class DeadLetters:
    """Moves messages of one channel after `max_attempts` attempts.

    count   the number of moved messages
    error   why the other topic last refused messages, which stay in the channel; empty if it took all so far
    moving  messages that are not written to the other topic yet; they count as in flight
    """

    origin: Origin
    max_attempts: int
    topic: str
    _target: Callable[[], DeadLetterTopic]
    iteration: IterationEnd
    _clock: Clock
    wall_clock: Clock
    _log: LineWriter
    count: int = 0
    error: str = ""
    moving: InFlightTable = field(default_factory=InFlightTable)
    _moves: dict[_Move, None] = field(default_factory=dict)
    _logged_ns: int = -_REPORT_EVERY_NS

    def take(self, entries: list[Entry], due_ns: int) -> list[Entry]:
        """Move messages with enough attempts; return the others. Messages that cannot be moved wait until `due_ns`."""
        dead = [entry for entry in entries if entry[1].attempts >= self.max_attempts]
        if not dead:
            return entries
        target = self._target()
        if target.is_closed:
            return entries
        move = _Move(self, target, due_ns)
        self._moves[move] = None
        move.begin(dead, self._clock())
        return [entry for entry in entries if entry[1].attempts < self.max_attempts]

    def settle(self) -> None:
        """Finish written messages, without waiting for the end of the event-loop iteration."""
        for move in list(self._moves):
            move.deliver()

    def refused(self, error: OSError) -> None:
        """Note why messages are not moved, and log it at most once a minute: consumers get them again and again."""
        self.error = error.strerror or str(error)
        now_ns = self._clock()
        if now_ns < self._logged_ns + _REPORT_EVERY_NS:
            return
        self._logged_ns = now_ns
        self._log.error(
            "CHANNEL(%s/%s): failed to move messages to topic %s after %d attempts, consumers get them again - %s",
            self.origin.topic,
            self.origin.channel,
            self.topic,
            self.max_attempts,
            self.error,
        )

    def forget(self, move: _Move) -> None:
        """Remove a completed move."""
        self._moves.pop(move, None)


class _DeadLetterGroup(NamedTuple):
    """Messages of one batch that are moved together."""

    batch: Batch
    delivery: Delivery
    ids: list[bytes]


class _Move:
    """Messages that are being moved. It is a publisher of the topic that receives them.

    A publisher is notified only of failures. To detect success, it registers as a deliverer, which runs after the
    write in the same event-loop iteration, and registers again when `release` ends the last hold.
    """

    def __init__(self, owner: DeadLetters, target: DeadLetterTopic, due_ns: int) -> None:
        self._owner = owner
        self._target = target
        self._due_ns = due_ns
        self._died_ns = 0
        self._groups: list[_DeadLetterGroup] = []
        self._failed: dict[int, OSError] = {}
        self._holds = 0
        self._in_iteration = False

    def begin(self, dead: list[Entry], now_ns: int) -> None:
        self._died_ns = self._owner.wall_clock()  # shown to people; ages use the steady clock
        self._want_iteration_end()
        for low, high, delivery in runs_of_entries(dead):
            while low < high:
                batch = self._part(low, high, delivery)
                ids = hex_ids(batch.base_id, batch.count) if batch is not None else []
                # Delivery retries a failed read, or counts the messages as lost. Two with one id are moved in turn.
                if batch is None or not self._owner.moving.add(ids, low, delivery):
                    entries = [(seq, delivery) for seq in range(low, high)]
                    self._owner.origin.wait(entries, self._due_ns)
                    break
                self._groups.append(_DeadLetterGroup(batch, delivery, ids))
                self._target.publish_dead_letters(batch, now_ns, self, len(self._groups) - 1)
                low = batch.end_seq

    def _part(self, low: int, high: int, delivery: Delivery) -> Batch | None:
        """Return the part of a batch from `low` up to at most `high`, or None if it cannot be read."""
        try:
            batch = delivery.batch or self._owner.origin.batch_at(low)
        except OSError:  # the topic has reported it
            return None
        if batch is None or batch.first_seq > low:
            return None
        return batch.part(low - batch.first_seq, min(high, batch.end_seq) - batch.first_seq)

    def _want_iteration_end(self) -> None:
        if not self._in_iteration:
            self._in_iteration = True
            self._owner.iteration.add_deliverer(self)

    # ---- the Publisher interface

    def publish_failed(self, ticket: int, error: OSError) -> None:
        self._failed[ticket] = error

    def hold(self) -> None:
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._want_iteration_end()

    # ---- the end

    def deliver(self) -> None:
        """Finish the messages, or requeue those that were not written. Called after the iteration's writes."""
        self._in_iteration = False
        if self._holds:
            return
        self._owner.forget(self)
        if self._failed:
            self._owner.refused(next(iter(self._failed.values())))
        groups, self._groups = self._groups, []
        for ticket, group in enumerate(groups):
            found = map(self._owner.moving.pop, group.ids)
            left = [entry for entry in found if entry is not None]  # the channel may have been emptied since
            if ticket in self._failed:
                self._owner.origin.wait(left, self._due_ns)
            else:
                self._finish(group, left)

    def _finish(self, group: _DeadLetterGroup, left: list[Entry]) -> None:
        owner = self._owner
        owner.count += len(group.ids)
        for message_id in group.ids[-MOST_REMEMBERED:]:
            self._target.remember_dead_letter(self._summary(message_id.decode(), group))
        for low, high, _ in runs_of_entries(left):
            owner.origin.finish(low, high)

    def _summary(self, message_id: str, group: _DeadLetterGroup) -> dict[str, Any]:
        return {
            "id": message_id,
            "attempts": group.delivery.attempts,
            "topic": self._owner.origin.topic,
            "channel": self._owner.origin.channel,
            "timestamp": group.batch.timestamp_ns,
            "died": self._died_ns,
        }
