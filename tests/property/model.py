"""A plain model of one topic: per channel, a dict of what every message is doing.

It looks at no log and no journal. What a channel sends is asked to it and checked; what it cannot know (which consumer
gets which message, what a crash loses of the last 100 ms, what an ephemeral channel drops) it takes from the real one,
within bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

QUEUED = "queued"
IN_FLIGHT = "in flight"
DEFERRED = "deferred"
FINISHED = "finished"
LOST = "lost"  # neither finished nor in the log

SWEEP_NS = 1_100_000_000  # what is too old goes no later

Seen = tuple[str, int, int]  # state, attempts, due_ns (0 unless deferred)

ID_TIME_NS = 2 << 20  # the age of a message counts from the time in its id, which is exact to 1 ms


@dataclass
class Message:
    """One message of one channel.

    attempts   how often it was sent
    due_ns     while it is deferred
    born_ns    from when on its age counts
    since_ns   when the channel got it, or got it again
    wait       (due_ns, attempts) when it was last requeued or timed out, and
    kept_wait  what of that is known to be on disk
    is_kept    its being finished is known to be on disk
    """

    state: str = QUEUED
    attempts: int = 0
    due_ns: int = 0
    born_ns: int = 0
    since_ns: int = 0
    delivered_ns: int = 0
    deadline_ns: int = 0
    owner: object = None
    wait: tuple[int, int] = (0, 0)
    kept_wait: tuple[int, int] = (0, 0)
    is_kept: bool = False

    @property
    def seen(self) -> Seen:
        return self.state, self.attempts, self.due_ns if self.state == DEFERRED else 0

    def queue(self) -> None:
        self.state = QUEUED
        self.due_ns = 0
        self.owner = None

    def time_out(self) -> None:
        self.queue()
        self.wait = (0, self.attempts)

    def finish(self) -> None:
        self.state = FINISHED
        self.owner = None


@dataclass
class Rules:
    """What the settings say; 0 is: not.

    deaths    how often each body was moved to the topic of dead letters, which the disk may refuse
    """

    max_attempts: int = 0
    ttl_ns: int = 0
    can_publish_dead_letters: bool = True
    deaths: Counter[bytes] = field(default_factory=Counter)

    def is_too_old(self, message: Message, now_ns: int, grace_ns: int = 0) -> bool:
        return self.ttl_ns > 0 and message.born_ns + self.ttl_ns + grace_ns < now_ns


@dataclass
class ModelChannel:
    """`first` is where the channel began: what is below it was never its own."""

    topic: ModelTopic
    first: int
    is_ephemeral: bool = False
    messages: dict[int, Message] = field(default_factory=dict)
    is_paused: bool = False

    def copy(self) -> ModelChannel:
        return replace(self, messages={seq: replace(message) for seq, message in self.messages.items()})

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages.values())

    def in_flight_of(self, owner: object) -> list[int]:
        return [seq for seq, m in self.messages.items() if m.state == IN_FLIGHT and m.owner is owner]

    def advance(self, now_ns: int) -> None:
        """What timed out or came due by now is queued."""
        for seq, message in self.messages.items():
            if message.state == IN_FLIGHT and message.deadline_ns <= now_ns:
                if not self._dies(seq):
                    message.time_out()
            elif message.state == DEFERRED and message.due_ns <= now_ns:
                message.queue()

    def _dies(self, seq: int) -> bool:
        """Whether it was tried so often that it is moved away now."""
        rules, message = self.topic.rules, self.messages[seq]
        if (
            not rules.max_attempts
            or message.attempts < rules.max_attempts
            or not rules.can_publish_dead_letters
        ):
            return False
        rules.deaths[self.topic.bodies[seq]] += 1
        message.finish()
        return True

    def forget_too_old(self, found: dict[int, Seen], now_ns: int) -> None:
        """What the real one dropped since it is too old; it need not do so at once."""
        rules = self.topic.rules
        for seq, message in self.messages.items():
            if message.state == QUEUED and found[seq][0] == FINISHED and rules.is_too_old(message, now_ns):
                message.finish()
            if message.state == QUEUED and message.wait == (0, 0) and message.since_ns + SWEEP_NS < now_ns:
                assert not rules.is_too_old(message, now_ns, grace_ns=SWEEP_NS), f"{seq} is still there"

    def forget_overflow(self, found: dict[int, Seen], most: int) -> None:
        """What the real one dropped of the messages that it has just got, since it is ephemeral."""
        dropped = [seq for seq, m in self.messages.items() if m.state == QUEUED and found[seq][0] == FINISHED]
        assert not dropped or self.is_ephemeral, f"{dropped} are gone"
        for seq in dropped:
            message = self.messages[seq]
            assert (message.attempts, message.since_ns) == (0, self.topic.clock()), f"{seq} was dropped late"
            message.finish()
        assert not dropped or self.count(QUEUED) + self.count(IN_FLIGHT) >= most, (
            f"there was room for {dropped}"
        )

    def send(self, seq: int, attempts: int, owner: object, now_ns: int, deadline_ns: int) -> None:
        """The real channel sent this to a consumer."""
        self.advance(now_ns)
        message = self.messages[seq]
        assert not self.is_paused, f"{seq} was sent by a paused channel"
        assert message.state == QUEUED, f"{seq} was sent while {message.state}"
        too_old = self.topic.rules.is_too_old(message, now_ns, grace_ns=ID_TIME_NS)
        assert not too_old, f"{seq} was sent although it is too old"
        assert attempts == message.attempts + 1
        message.state = IN_FLIGHT
        message.attempts = attempts
        message.owner = owner
        message.delivered_ns = now_ns
        message.deadline_ns = deadline_ns

    def requeue(self, seq: int, due_ns: int) -> None:
        message = self.messages[seq]
        if self._dies(seq):
            return
        message.queue()
        message.wait = (due_ns, message.attempts)
        if due_ns:
            message.state = DEFERRED
            message.due_ns = due_ns

    def touch(self, seq: int, now_ns: int, timeout_ns: int, max_timeout_ns: int) -> None:
        message = self.messages[seq]
        message.deadline_ns = min(now_ns + timeout_ns, message.delivered_ns + max_timeout_ns)

    def release(self, seq: int) -> None:
        due_ns, published_ns = self.topic.births[seq]
        self.messages[seq] = Message(
            DEFERRED if due_ns else QUEUED,
            due_ns=due_ns,
            born_ns=max(due_ns, published_ns),
            since_ns=self.topic.clock(),
            wait=(due_ns, 0),
            kept_wait=(due_ns, 0),
        )

    def empty(self) -> None:
        for message in self.messages.values():
            message.finish()

    def seek(self, seq: int, stored: Container[int], skip_below: int) -> int:
        """All that the log has from `seq` on is queued; what waits for its time goes on waiting.

        Of what is before, only messages below `skip_below` that were queued and never sent are finished. Returns their
        number.
        """
        now_ns = self.topic.clock()
        skipped = 0
        for low in range(min(seq, self.first), self.topic.released):
            message = self.messages.get(low)
            if low < seq:
                if (
                    message is not None
                    and low < skip_below
                    and (message.state, message.attempts) == (QUEUED, 0)
                ):
                    message.finish()
                    skipped += 1
            elif low not in stored:
                if message is not None:
                    message.finish()
            elif message is not None and message.state in (QUEUED, IN_FLIGHT) and message.attempts:
                message.time_out()
            elif message is None or message.state != DEFERRED:
                self.release(low)
                if self.messages[low].due_ns <= now_ns:
                    self.messages[low].queue()
        self.first = min(seq, self.first)
        for missing in [n for n in range(self.first, self.topic.released) if n not in self.messages]:
            self.messages[missing] = Message(FINISHED)
        self.keep()
        return skipped

    def keep(self) -> None:
        """All that happened is on disk."""
        for message in self.messages.values():
            message.kept_wait = message.wait
            message.is_kept = message.state == FINISHED

    def is_needed(self, low: int, high: int) -> bool:
        return any(low <= seq < high and m.state != FINISHED for seq, m in self.messages.items())

    # ---- restarts

    def restart_cleanly(self, now_ns: int) -> None:
        """Everything is as it was, but what was in flight is queued."""
        for message in self.messages.values():
            if message.state == IN_FLIGHT:
                message.time_out()
        self.keep()
        self.advance(now_ns)

    def restart_after_a_crash(self, before: ModelChannel, found: dict[int, Seen], now_ns: int) -> None:
        """Check what was found against what has to be there, and go on with it.

        The crash was at some moment since `before`: all that was kept by then must be, what came later may be.
        """
        for seq, later in self.messages.items():
            first = Message(FINISHED) if seq < before.first else Message()
            earlier = before.messages.get(seq, first)
            state, attempts, due_ns = found[seq]
            are_done = earlier.state == later.state == FINISHED
            if state == FINISHED:
                assert FINISHED in (earlier.state, later.state), f"{seq} was {earlier.state}, and is gone"
                later.finish()
                later.is_kept = True
                continue
            assert not (are_done and earlier.is_kept and later.is_kept), f"{seq} came again"
            assert state in (QUEUED, DEFERRED), f"{seq} was {earlier.state}, came back {state}"
            assert attempts <= max(earlier.attempts, later.attempts)
            least = min(earlier.kept_wait[1], later.kept_wait[1])
            assert are_done or attempts >= least, f"{seq} was tried {least} times, came back with {attempts}"
            waits = {earlier.wait, later.wait, earlier.kept_wait, later.kept_wait}
            if earlier.state == later.state == DEFERRED and len(waits) == 1 and later.due_ns > now_ns:
                assert (state, due_ns) == (DEFERRED, later.due_ns)
            later.queue()
            later.state, later.attempts, later.due_ns = state, attempts, due_ns
            later.wait = later.kept_wait = (due_ns, attempts)


@dataclass
class ModelTopic:
    """What was published to a topic, and what each channel has of it.

    bodies, births  by sequence number; a birth is (due_ns, published_ns)
    ends            where a publish ended, of which a kill leaves all or nothing
    released        the messages from this number on are held: no channel has them yet
    ids             the ids that consumers saw, by sequence number
    """

    name: str
    clock: Callable[[], int]
    rules: Rules = field(default_factory=Rules)
    channels: dict[str, ModelChannel] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    births: list[tuple[int, int]] = field(default_factory=list)
    ends: set[int] = field(default_factory=lambda: {0})
    ids: dict[int, bytes] = field(default_factory=dict)
    released: int = 0
    is_paused: bool = False

    def copy(self) -> ModelTopic:
        channels = {name: channel.copy() for name, channel in self.channels.items()}
        rules = replace(self.rules, deaths=self.rules.deaths.copy())
        return replace(self, channels=channels, bodies=self.bodies[:], rules=rules)

    @property
    def held(self) -> range:
        return range(self.released, len(self.bodies))

    def seq_of(self, body: bytes) -> int:
        return self.bodies.index(body)

    def publish(self, bodies: list[bytes], due_ns: int) -> None:
        for body in bodies:
            self.births.append((due_ns, self.clock()))
            self.bodies.append(body)
        self.ends.add(len(self.bodies))
        self.release()

    def withdraw(self, count: int) -> None:
        """The last messages were not accepted."""
        end = len(self.bodies) - count
        del self.bodies[end:], self.births[end:]
        self.released = min(self.released, end)
        self.ids = {seq: message_id for seq, message_id in self.ids.items() if seq < end}
        for channel in self.channels.values():
            for seq in range(end, end + count):
                channel.messages.pop(seq, None)

    def release(self) -> None:
        if self.is_paused or not self.channels:
            return
        for channel in self.channels.values():
            for seq in self.held:
                channel.release(seq)
        self.released = len(self.bodies)

    def drop_held(self, count: int) -> None:
        """The first of them are finished in all channels, before these had them."""
        for channel in self.channels.values():
            for seq in self.held[:count]:
                channel.release(seq)
                channel.messages[seq].finish()
        self.released += count

    def forget_too_old(self, released: int, now_ns: int) -> None:
        """The real one dropped what it held below `released`, since it is too old."""
        born_ns = [max(self.births[seq]) for seq in range(self.released, released)]
        too_old = [self.rules.ttl_ns and born + self.rules.ttl_ns < now_ns for born in born_ns]
        assert all(too_old), f"{self.released} to {released} were dropped"
        self.drop_held(released - self.released)

    def add_channel(self, name: str, *, is_ephemeral: bool) -> None:
        self.channels[name] = ModelChannel(self, self.released, is_ephemeral)
        self.release()

    def is_needed(self, low: int, high: int) -> bool:
        return high > self.released or any(channel.is_needed(low, high) for channel in self.channels.values())

    # ---- restarts

    def end_of_life(self) -> int:
        """Forget the ephemeral channels, which end with the process.

        Return the first message that is held now: without other channels, the first that they had not finished.
        """
        ephemeral = [channel for channel in self.channels.values() if channel.is_ephemeral]
        self.channels = {name: channel for name, channel in self.channels.items() if not channel.is_ephemeral}
        if self.channels:
            return self.released
        open_seqs = [
            seq for channel in ephemeral for seq, m in channel.messages.items() if m.state != FINISHED
        ]
        return min([self.released, *open_seqs])

    def go_on_from(self, released: int) -> None:
        """What its channels have ends at `released`."""
        for channel in self.channels.values():
            for seq in [seq for seq in channel.messages if seq >= released]:
                del channel.messages[seq]
            for seq in range(self.released, released):
                channel.release(seq)
        self.released = released
