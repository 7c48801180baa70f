"""Dead letters: messages that were tried so often that they are moved out of the way, to a topic of their own.

A message is finished in its channel when it is written there (with `--sync-every=1`: synced), not before. A crash in
between lets it come again, and perhaps die twice; none is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from nsqd_py.batch import Batch
from nsqd_py.net.loop_iteration import Turn
from nsqd_py.protocol.frames import hex_ids
from nsqd_py.queue.in_flight import Delivery, Entry, InFlightTable
from nsqd_py.queue.journal_buffer import runs_of_entries

MOST_REMEMBERED = 100


class Graveyard(Protocol):
    """The topic that takes them."""

    is_closed: bool

    def remember_dead_letter(self, obituary: dict[str, Any]) -> None:
        """Keep {id, attempts, topic, channel, timestamp, died}, both times in ns, of the last of them."""

    def bury(self, batch: Batch, died_ns: int, publisher: Any, ticket: int) -> None:
        """Take messages that another topic had, with their ids and time stamps."""


class Origin(NamedTuple):
    """The channel that they leave.

    finish    (low, high): these sequence numbers are done with
    wait      (entries, due_ns): these are queued again, or deferred, as if nothing had happened
    batch_at  (seq): the batch that holds it, or the first behind it. Raises OSError
    """

    topic: str
    channel: str
    finish: Callable[[int, int], None]
    wait: Callable[[list[Entry], int], None]
    batch_at: Callable[[int], Batch | None]


class DeadLetters:
    """What becomes of one channel's messages that were tried `max_attempts` times.

    count   how many were moved
    moving  those that are not written yet; they count as in flight
    """

    def __init__(
        self, origin: Origin, max_attempts: int, graveyard: Callable[[], Graveyard], turn: Turn,
        clock: Callable[[], int], wall_clock: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.wall_clock = wall_clock or clock
        self.count = 0
        self.moving = InFlightTable()
        self.origin = origin
        self.turn = turn
        self._max_attempts = max_attempts
        self._graveyard = graveyard
        self._clock = clock
        self._moves: dict[_Move, None] = {}

    def take(self, entries: list[Entry], due_ns: int) -> list[Entry]:
        """Move those that were tried often enough; the others. Those that cannot be moved wait until `due_ns`."""
        dead = [entry for entry in entries if entry[1].attempts >= self._max_attempts]
        if not dead:
            return entries
        graveyard = self._graveyard()
        if graveyard.is_closed:
            return entries
        move = _Move(self, graveyard, due_ns)
        self._moves[move] = None
        move.begin(dead, self._clock())
        return [entry for entry in entries if entry[1].attempts < self._max_attempts]

    def settle(self) -> None:
        """Finish what is written, without waiting for the end of the turn."""
        for move in list(self._moves):
            move.deliver()

    def forget(self, move: _Move) -> None:
        """It is over."""
        self._moves.pop(move, None)


class _Letter(NamedTuple):
    """Messages of one batch that die together."""

    batch: Batch
    delivery: Delivery
    ids: list[bytes]


class _Move:
    """Some messages on their way. To the topic that takes them this is a publisher.

    A publisher hears of failures only; so that it learns of success, it comes in the turn behind the writing, and
    again when it is not held any more.
    """

    def __init__(self, owner: DeadLetters, graveyard: Graveyard, due_ns: int) -> None:
        self._owner = owner
        self._graveyard = graveyard
        self._due_ns = due_ns
        self._died_ns = 0
        self._letters: list[_Letter] = []
        self._failed: set[int] = set()
        self._holds = 0
        self._in_turn = False

    def begin(self, dead: list[Entry], now_ns: int) -> None:
        self._died_ns = self._owner.wall_clock()  # for people; an age counts on the steady clock
        self._want_turn()
        for low, high, delivery in runs_of_entries(dead):
            while low < high:
                batch = self._part(low, high, delivery)
                if batch is None:  # consumers are to wait for it, or to be told that it is lost
                    self._owner.origin.wait([(seq, delivery) for seq in range(low, high)], self._due_ns)
                    break
                letter = _Letter(batch, delivery, hex_ids(batch.base_id, batch.count))
                self._letters.append(letter)
                self._owner.moving.add(letter.ids, low, delivery)
                self._graveyard.bury(batch, now_ns, self, len(self._letters) - 1)
                low = batch.end_seq

    def _part(self, low: int, high: int, delivery: Delivery) -> Batch | None:
        """The messages from `low` on, up to `high`, as far as one batch has them; None where they cannot be read."""
        try:
            batch = delivery.batch or self._owner.origin.batch_at(low)
        except OSError:  # the topic has reported it
            return None
        if batch is None or batch.first_seq > low:
            return None
        return batch.part(low - batch.first_seq, min(high, batch.end_seq) - batch.first_seq)

    def _want_turn(self) -> None:
        if not self._in_turn:
            self._in_turn = True
            self._owner.turn.add_deliverer(self)

    # ---- what a topic tells its publishers

    def publish_failed(self, ticket: int, _error: OSError) -> None:
        self._failed.add(ticket)

    def hold(self) -> None:
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._want_turn()

    # ---- the end

    def deliver(self) -> None:
        """Called by the turn, when all is written that was published in it."""
        self._in_turn = False
        if self._holds:
            return
        self._owner.forget(self)
        letters, self._letters = self._letters, []
        for ticket, letter in enumerate(letters):
            found = map(self._owner.moving.pop, letter.ids)
            left = [entry for entry in found if entry is not None]  # what the channel was not emptied of meanwhile
            if ticket in self._failed:
                self._owner.origin.wait(left, self._due_ns)
            else:
                self._finish(letter, left)

    def _finish(self, letter: _Letter, left: list[Entry]) -> None:
        owner = self._owner
        owner.count += len(letter.ids)
        for message_id in letter.ids[-MOST_REMEMBERED:]:
            self._graveyard.remember_dead_letter(self._obituary(message_id.decode(), letter))
        for low, high, _ in runs_of_entries(left):
            owner.origin.finish(low, high)

    def _obituary(self, message_id: str, letter: _Letter) -> dict[str, Any]:
        return {
            "id": message_id,
            "attempts": letter.delivery.attempts,
            "topic": self._owner.origin.topic,
            "channel": self._owner.origin.channel,
            "timestamp": letter.batch.timestamp_ns,
            "died": self._died_ns,
        }
