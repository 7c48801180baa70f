"""A history put together: what became of each publish, and of each message in each channel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.ledger.cuts import Cut, Fate, first_fate
from tests.support.ledger.history import FOREVER_NS, Kind, Operation

# nsqd writes what consumers did after 0.1 s at the latest; the rest is room for a busy machine.
JOURNAL_DELAY_S = 0.4


@dataclass(slots=True)
class Publish:
    """One message as its publisher knows it.

    number      of the publish; the messages of an MPUB share it
    index       of the message in its publish, which has `size` messages
    """

    topic: str
    body: str
    number: int
    index: int
    size: int
    client: str
    sent_ns: int
    defer_ns: int
    resends: bool
    answered_ns: int | None = None
    answered_number: int | None = None
    is_refused: bool = False


class Server(NamedTuple):
    """A life of an nsqd, in one epoch of it."""

    nsqd: str
    life: int
    epoch: int


@dataclass(slots=True)
class Delivery:
    """One delivery, as the consumer saw it."""

    number: int
    at_ns: int
    client: str
    server: Server
    id: str
    attempts: int
    timestamp_ns: int


@dataclass(slots=True)
class Answer:
    """A FIN or REQ for a delivery.

    processed_number   of the operation by which it was known that nsqd had processed it; 0 while it was not
    """

    number: int
    at_ns: int
    delivery: Delivery
    is_fin: bool
    delay_ns: int
    processed_number: int = 0
    processed_ns: int = 0
    is_denied: bool = False


@dataclass(slots=True)
class Course:
    """The life of one message in one channel; without `publish`, nobody published it."""

    body: str
    publish: Publish | None
    deliveries: list[Delivery] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def answers_since(self, number: int) -> Iterator[Answer]:
        """Yield the FINs and REQs from an operation on that nsqd did not refuse."""
        return (answer for answer in self.answers if answer.number > number and not answer.is_denied)


@dataclass(slots=True)
class Channel:
    """A channel.

    created     the number of the operation since which it is known to be there
    drained     that of the operation since which nothing is left
    deliveries  all of them, in their order, with the courses that they belong to
    """

    topic: str
    name: str
    created: int | None = None
    drained: int | None = None
    cuts: list[Cut] = field(default_factory=list)
    courses: dict[str, Course] = field(default_factory=dict)
    deliveries: list[tuple[Delivery, Course]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"

    def is_uncut(self, delivery: Delivery) -> bool:
        """True if no cut had begun when this delivery came."""
        return not self.cuts or self.cuts[0].number > delivery.number

    def fate(self, publish: Publish) -> Fate:
        """Return what has to become of a message, after all cuts."""
        fate = first_fate(publish)
        for cut in self.cuts:
            fate = cut.fate_after(publish, fate)
        return fate

    def fates(self, publish: Publish) -> Iterator[tuple[Cut, Fate]]:
        """Yield what has to become of a message after each cut."""
        fate = first_fate(publish)
        for cut in self.cuts:
            fate = cut.fate_after(publish, fate)
            yield cut, fate


@dataclass(slots=True)
class _Life:
    """The end of one life of an nsqd: None while it goes on."""

    end_ns: int | None = None
    is_clean: bool = False


@dataclass
class Story:
    """All of a history. Times and numbers are those of its operations.

    served   the epochs, for each operation that an nsqd served: (operation, nsqd, epoch)
    """

    journal_delay_ns: int
    publishes: dict[tuple[str, str], Publish] = field(default_factory=dict)
    channels: dict[tuple[str, str], Channel] = field(default_factory=dict)
    served: list[Operation] = field(default_factory=list)
    kills: int = 0
    _lives: dict[str, list[_Life]] = field(default_factory=lambda: defaultdict(lambda: [_Life()]))
    _sent: dict[int, list[Publish]] = field(default_factory=dict)
    _delivered: dict[int, tuple[Delivery, Course]] = field(default_factory=dict)
    _answers: dict[int, Answer] = field(default_factory=dict)
    _unprocessed: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    _cuts: dict[int, Cut] = field(default_factory=dict)
    _open_cuts: dict[str, list[Cut]] = field(default_factory=lambda: defaultdict(list))

    def acknowledged(self) -> Iterator[Publish]:
        return (publish for publish in self.publishes.values() if publish.answered_ns is not None)

    def has_kept(self, answer: Answer, delivery: Delivery) -> bool:
        """True if what nsqd did for this FIN or REQ must be known to it when it sent this delivery.

        It had processed it before, as the consumer had seen, and either it still lived, or had ended with status 0, or
        was killed later than `journal_delay_ns` after that.
        """
        if not answer.processed_number or answer.processed_number > delivery.number:
            return False
        server = answer.delivery.server
        if server == delivery.server:
            return True
        if (server.nsqd, server.epoch) != (delivery.server.nsqd, delivery.server.epoch):
            return False  # a standby that was promoted may lack the last of a journal
        life = self._lives[server.nsqd][server.life]
        if life.end_ns is None:
            return False
        return life.is_clean or answer.processed_ns < life.end_ns - self.journal_delay_ns

    # ---- how it is put together

    def add(self, operation: Operation) -> None:
        _ADD[operation.kind](self, operation)

    def _channel(self, operation: Operation) -> Channel:
        key = operation.topic, operation.channel
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = Channel(*key)
        return channel

    def _add_created(self, operation: Operation) -> None:
        channel = self._channel(operation)
        if channel.created is None:
            channel.created = operation.number

    def _add_sending(self, operation: Operation) -> None:
        publishes = [
            Publish(
                operation.topic,
                body,
                operation.number,
                index,
                len(operation.bodies),
                operation.client,
                operation.at_ns,
                operation.defer_ns,
                operation.resends,
            )
            for index, body in enumerate(operation.bodies)
        ]
        for publish in publishes:
            before = self.publishes.setdefault((publish.topic, publish.body), publish)
            if before is not publish:
                raise ValueError(
                    f"{publish.topic}: {publish.body} is published twice; a history needs bodies that differ"
                )
        self._sent[operation.number] = publishes

    def _add_ok(self, operation: Operation) -> None:
        for publish in self._sent[operation.of]:
            publish.answered_ns, publish.answered_number = operation.at_ns, operation.number
        self.served.append(operation)

    def _add_refused(self, operation: Operation) -> None:
        for publish in self._sent[operation.of]:
            publish.is_refused = True

    def _add_delivered(self, operation: Operation) -> None:
        channel = self._channel(operation)
        (body,) = operation.bodies
        course = channel.courses.get(body)
        if course is None:
            course = channel.courses[body] = Course(body, self.publishes.get((operation.topic, body)))
        server = Server(operation.nsqd, len(self._lives[operation.nsqd]) - 1, operation.epoch)
        delivery = Delivery(
            operation.number,
            operation.at_ns,
            operation.client,
            server,
            operation.id,
            operation.attempts,
            operation.timestamp_ns,
        )
        course.deliveries.append(delivery)
        channel.deliveries.append((delivery, course))
        self._delivered[operation.number] = delivery, course
        self.served.append(operation)

    def _add_answer(self, operation: Operation) -> None:
        delivery, course = self._delivered[operation.of]
        is_fin = operation.kind == Kind.FIN
        answer = Answer(operation.number, operation.at_ns, delivery, is_fin, operation.delay_ns)
        course.answers.append(answer)
        self._answers[operation.number] = answer
        self._unprocessed[delivery.client].append(answer)

    def _add_denied(self, operation: Operation) -> None:
        self._answers[operation.of].is_denied = True

    def _add_processed(self, operation: Operation) -> None:
        waiting = self._unprocessed[operation.client]
        for answer in waiting:
            if answer.number <= operation.of:
                answer.processed_number, answer.processed_ns = operation.number, operation.at_ns
        self._unprocessed[operation.client] = [answer for answer in waiting if answer.number > operation.of]

    def _add_cut(self, operation: Operation) -> None:
        life = len(self._lives[operation.nsqd]) - 1
        parameters = {"start_ns": operation.at_ns, **(operation.cut or {})}
        cut = self._cuts[operation.number] = Cut(operation.number, life, **parameters)
        self._channel(operation).cuts.append(cut)
        self._open_cuts[operation.nsqd].append(cut)

    def _add_cut_ended(self, operation: Operation) -> None:
        cut = self._cuts[operation.of]
        latest_ns: int = (operation.cut or {}).get("latest_ns", FOREVER_NS)
        cut.end_ns = min(operation.at_ns, latest_ns)
        cut.is_answered = operation.is_answered

    def _add_started(self, operation: Operation) -> None:
        """What was under way has happened or not."""
        lives = self._lives[operation.nsqd]
        if lives[-1].end_ns is not None:
            lives.append(_Life())
        for cut in self._open_cuts.pop(operation.nsqd, ()):
            cut.end_ns = min(cut.end_ns, operation.at_ns)

    def _add_killed(self, operation: Operation) -> None:
        self._end_life(operation, is_clean=False)
        self.kills += 1

    def _add_stopped(self, operation: Operation) -> None:
        self._end_life(operation, is_clean=True)

    def _end_life(self, operation: Operation, *, is_clean: bool) -> None:
        life = self._lives[operation.nsqd][-1]
        if life.end_ns is None:
            life.end_ns, life.is_clean = operation.at_ns, is_clean

    def _add_drained(self, operation: Operation) -> None:
        self._channel(operation).drained = operation.number

    def _pass_over(self, operation: Operation) -> None: ...


_ADD: dict[str, Callable[[Story, Operation], None]] = {
    Kind.CREATED: Story._add_created,
    Kind.SENDING: Story._add_sending,
    Kind.OK: Story._add_ok,
    Kind.REFUSED: Story._add_refused,
    Kind.UNKNOWN: Story._pass_over,
    Kind.DELIVERED: Story._add_delivered,
    Kind.FIN: Story._add_answer,
    Kind.REQ: Story._add_answer,
    Kind.DENIED: Story._add_denied,
    Kind.PROCESSED: Story._add_processed,
    Kind.CUT: Story._add_cut,
    Kind.CUT_ENDED: Story._add_cut_ended,
    Kind.STARTED: Story._add_started,
    Kind.KILLED: Story._add_killed,
    Kind.STOPPED: Story._add_stopped,
    Kind.DRAINED: Story._add_drained,
}


def tell(operations: Iterable[Operation], journal_delay_s: float = JOURNAL_DELAY_S) -> Story:
    """Put a history together. Raises ValueError if a body is published twice in a topic."""
    story = Story(round(journal_delay_s * 1e9))
    for operation in operations:
        story.add(operation)
    return story
