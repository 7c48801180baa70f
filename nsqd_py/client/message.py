"""Messages as consumers receive them, singly or in batches, and their answers. No I/O.

Threads
MessageBatch._open_ids  any thread: to finish one message removes its id in one step, without the lock; other answers take ids
    one by one, under the lock
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import repeat
from typing import Any, Protocol

from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.options import Delay, milliseconds_of
from nsqd_py.protocol.incoming import IncomingMessages


class AlreadyAnswered(NsqClientError):
    """A message can be finished or requeued only once."""


class Requeue(Exception):
    """A handler raises this to receive the message again after `delay_s`, by default longer with each attempt.

    With `backoff` the consumer slows down, as after any failure.
    """

    def __init__(self, delay_s: Delay | None = None, *, backoff: bool = True) -> None:
        """Raises ValueError, TypeError for a delay that cannot be."""
        super().__init__(delay_s, backoff)
        _checked(delay_s)
        self.delay_s = delay_s
        self.backoff = backoff


def _checked(delay_s: Delay | None) -> int | None:
    if delay_s is None:
        return None
    return milliseconds_of(delay_s)


class BatchWindow(Protocol):
    """The part of `InFlightWindow` that a batch uses: where its messages come from, and go to."""

    topic: str
    channel: str
    address: str
    http_port: int
    is_open: bool
    subscription: Any
    lock: Any

    def answered(self, batch: Any) -> None: ...
    def finish_one(self, message_id: bytes) -> None: ...
    def finish(self, ids: Collection[bytes]) -> None: ...
    def succeeded(self) -> None: ...
    def requeue(self, message_id: bytes, attempts: int, delay_ms: int | None, *, backoff: bool) -> None: ...
    def touch(self, batch: Any, ids: Collection[bytes]) -> None: ...


class MessageBatch:
    """Messages of one nsqd that arrived together, as columns, and which of them are not answered yet.

    Any thread may answer them: answers take the lock of the consumer, but to finish one message needs none.

    topic, channel, nsqd                    their origin; `nsqd` is an address
    ids, bodies, timestamps_ns, attempts    lists with an item for each message
    is_live                                 False if nsqd will redeliver those not answered: the connection is lost,
                                            or their time-out is over
    """

    __slots__ = ("_messages", "_open_ids", "_window", "arrived_s", "due_s", "is_live")

    def __init__(self, window: BatchWindow, messages: IncomingMessages, arrived_s: float) -> None:
        self._window = window
        self._messages = messages
        self._open_ids: set[bytes] | None = (
            None  # None: all of them; a batch that is finished whole needs no set
        )
        self.arrived_s = arrived_s
        self.due_s = arrived_s
        self.is_live = True

    is_detached = False

    def __str__(self) -> str:
        return f"{len(self)} messages of {self.topic}"

    # ---- what it holds

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def topic(self) -> str:
        return self._window.topic

    @property
    def channel(self) -> str:
        return self._window.channel

    @property
    def nsqd(self) -> str:
        return self._window.address

    @property
    def connection(self) -> object:
        """The same object for all messages of one connection."""
        return self._window

    @property
    def http_port(self) -> int:
        """The HTTP port of the nsqd; 0 if it is not known."""
        return self._window.http_port

    @property
    def ids(self) -> list[bytes]:
        return self._messages.ids

    @property
    def bodies(self) -> list[bytes]:
        return self._messages.bodies

    @property
    def timestamps_ns(self) -> list[int]:
        return self._messages.timestamps_ns

    @property
    def attempts(self) -> list[int]:
        return self._messages.attempts

    def messages(self) -> list[Message]:
        """Return the messages as objects. Answering one also counts here."""
        columns = self._messages
        return list(
            map(Message, columns.ids, columns.bodies, columns.timestamps_ns, columns.attempts, repeat(self))
        )

    @property
    def open_count(self) -> int:
        """Return how many are not answered.

        An id that is here twice, because the message timed out and was redelivered before the first was read, counts once as
        soon as one message is answered.
        """
        return len(self._messages if self._open_ids is None else self._open_ids)

    @property
    def is_answered(self) -> bool:
        return not self.open_count

    def open_ids(self) -> Collection[bytes]:
        """Return the ids of messages that are not answered, in order."""
        if self._open_ids is None:
            return self.ids
        return [message_id for message_id in self.ids if message_id in self._open_ids]

    # ---- answers

    def finish(self) -> None:
        """Finish all that are not answered. Raises AlreadyAnswered if none are left."""
        window = self._window
        with window.lock:
            ids = self._take_all()
            if window.is_open:
                window.finish(ids)

    def finish_some(self, ids: Collection[bytes]) -> None:
        """Finish these messages. Raises AlreadyAnswered, and finishes none, if one of them is answered already."""
        window = self._window
        with window.lock:
            self._take(ids)
            if ids and window.is_open:
                window.finish(ids)

    def requeue(
        self, delay_s: Delay | None = None, ids: Collection[bytes] | None = None, *, backoff: bool = False
    ) -> None:
        """Receive these again after `delay_s`, by default longer with each attempt. Raises as `finish_some`."""
        delay_ms = _checked(delay_s)
        with self._window.lock:
            if ids is None:
                ids = self._take_all()
            else:
                self._take(ids)
            attempts = dict(zip(self.ids, self.attempts, strict=True))
            for message_id in ids:
                self._requeue_taken(message_id, attempts[message_id], delay_ms, backoff=backoff)

    def settle(self) -> None:
        """Leave the answers to the handler, which has returned."""

    def touch(self) -> None:
        """Restart the time-out of what is not answered. Needed only with `auto_touch=False`."""
        self.touch_some(self.open_ids())

    def touch_some(self, ids: Collection[bytes]) -> None:
        window = self._window
        with window.lock:
            if ids and window.is_open:
                window.touch(self, ids)

    # ---- one of them

    def is_open(self, message_id: bytes) -> bool:
        """True if this message is not answered."""
        return message_id in self._open_set()

    def finish_one(self, message_id: bytes) -> None:
        """Finish one message. Raises as `finish_some`."""
        if not self.finish_if_open(message_id):
            raise _answered_before(message_id)

    def finish_if_open(self, message_id: bytes) -> bool:
        """Finish one message. Return False if it is answered already.

        Called for each message that a handler has taken, so without the lock: each of its steps is one call of the
        interpreter. The output is added before the batch ends, so that the connection stays open for it.
        """
        open_ids = self._open_ids
        if open_ids is None:
            open_ids = self._open_set()
        try:
            open_ids.remove(message_id)
        except KeyError:
            return False
        window = self._window
        if window.is_open:
            window.finish_one(message_id)
        if not open_ids or window.subscription.reports_success:
            self._finished_one()
        return True

    def _finished_one(self) -> None:
        """Note that the last message of the batch, or one during back-off, was finished."""
        window = self._window
        with window.lock:
            if self.is_answered:
                window.answered(self)
            if window.is_open:
                window.succeeded()

    def requeue_one(self, message_id: bytes, attempts: int, delay_s: Delay | None, *, backoff: bool) -> None:
        delay_ms = _checked(delay_s)
        with self._window.lock:
            if not self.is_open(message_id):
                raise _answered_before(message_id)
            self._take((message_id,))
            self._requeue_taken(message_id, attempts, delay_ms, backoff=backoff)

    def _requeue_taken(
        self, message_id: bytes, attempts: int, delay_ms: int | None, *, backoff: bool
    ) -> None:
        if self._window.is_open:
            self._window.requeue(message_id, attempts, delay_ms, backoff=backoff)

    # ---- the account of what is open

    def _take_all(self) -> Collection[bytes]:
        ids: Collection[bytes] = self.ids
        if self._open_ids is not None:
            ids = self._taken(ids)
        if not ids:
            raise AlreadyAnswered("all messages of this batch were answered before")
        self._open_ids = set()
        self._window.answered(self)
        return ids

    def _take(self, ids: Collection[bytes]) -> None:
        requested = set(ids)
        open_ids = self._open_set()
        taken = []
        if len(requested) == len(ids) and requested <= open_ids:
            taken = self._taken(ids)
        if len(taken) < len(ids):
            open_ids.update(taken)
            raise AlreadyAnswered("a message was answered before, is here twice, or is of another batch")
        if not open_ids:
            self._window.answered(self)

    def _taken(self, ids: Collection[bytes]) -> list[bytes]:
        """Remove these from the open ones, one by one, since `finish_if_open` takes no lock. Return those that were open."""
        open_ids = self._open_set()
        taken = []
        for message_id in ids:
            try:
                open_ids.remove(message_id)
            except KeyError:
                continue
            taken.append(message_id)
        return taken

    def _open_set(self) -> set[bytes]:
        with self._window.lock:
            if self._open_ids is None:
                self._open_ids = set(self.ids)
            return self._open_ids


class Message:
    """One message.

    id            16 hex characters, as bytes
    body          bytes
    timestamp_ns  the time of publishing, since the epoch
    attempts      how often it was delivered, including this time
    """

    __slots__ = ("_batch", "attempts", "body", "id", "is_detached", "timestamp_ns")

    def __init__(
        self, message_id: bytes, body: bytes, timestamp_ns: int, attempts: int, batch: MessageBatch
    ) -> None:
        self.id = message_id
        self.body = body
        self.timestamp_ns = timestamp_ns
        self.attempts = attempts
        self._batch = batch
        self.is_detached = False

    def __str__(self) -> str:
        return f"message {self.id.decode('latin-1')} of {self.topic}"

    def __repr__(self) -> str:
        return f"<Message {self.id.decode('latin-1')} of {self.topic}, attempt {self.attempts}, {len(self.body)} bytes>"

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def channel(self) -> str:
        return self._batch.channel

    @property
    def nsqd(self) -> str:
        """Return the address of the nsqd that sent it."""
        return self._batch.nsqd

    @property
    def batch(self) -> MessageBatch:
        """Return the messages that arrived with it, and itself."""
        return self._batch

    @property
    def is_answered(self) -> bool:
        return not self._batch.is_open(self.id)

    @property
    def is_live(self) -> bool:
        """False if nsqd will redeliver it; see MessageBatch."""
        return self._batch.is_live

    def detach(self) -> None:
        """Let other code answer it, now or later: its handler's return or failure does not."""
        self.is_detached = True

    def finish(self) -> None:
        """Finish it. Raises AlreadyAnswered."""
        self._batch.finish_one(self.id)

    def requeue(self, delay_s: Delay | None = None, *, backoff: bool = True) -> None:
        """Receive it again after `delay_s`, by default longer with each attempt. Raises AlreadyAnswered.

        Delays are numbers of seconds, or timedeltas.
        """
        self._batch.requeue_one(self.id, self.attempts, delay_s, backoff=backoff)

    def settle(self) -> None:
        """Finish it after its handler has returned, unless it is answered or detached."""
        if not self.is_detached:
            self._batch.finish_if_open(self.id)

    def touch(self) -> None:
        """Restart its time-out. Needed only with `auto_touch=False`. Raises AlreadyAnswered."""
        if self.is_answered:
            raise _answered_before(self.id)
        self._batch.touch_some((self.id,))


def _answered_before(message_id: bytes) -> AlreadyAnswered:
    return AlreadyAnswered(f"message {message_id.decode('latin-1')} was answered before")


def whole_batches(items: Collection[Message | MessageBatch]) -> tuple[list[MessageBatch], list[Message]]:
    """Return the batches of which all messages are here, in order, and the messages of the others."""
    messages: dict[MessageBatch, list[Message]] = {}
    for item in items:
        if isinstance(item, MessageBatch):
            messages[item] = []
        else:
            messages.setdefault(item.batch, []).append(item)
    batches = []
    rest = []
    for batch, found in messages.items():
        if not found or len(found) == len(batch):
            batches.append(batch)
        else:
            rest += found
    return batches, rest
