"""A plain model of one topic: per channel, a dict of what every message is doing.

It looks at no log and no journal. What a channel sends is told to it and checked; what it must not know (which
consumer gets which message, what of the last 100 ms a crash loses) it takes from the real one, within bounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nsqd_py.queue.channel import Channel

QUEUED = "queued"
IN_FLIGHT = "in flight"
DEFERRED = "deferred"
FINISHED = "finished"

SWEEP_NS = 1_100_000_000  # what is too old goes no later

Seen = tuple[str, int, int]  # state, attempts, due_ns (0 unless deferred)

ID_TIME_NS = 2 << 20  # the age of a message counts from the time in its id, which is exact to 1 ms


@dataclass
class Message:
    """One message of one channel.

    attempts   how often it was sent
    due_ns     while it is deferred
    born_ns    from when on its age counts
    wait       (due_ns, attempts) when it was last requeued or timed out, and
    kept_wait  what of that is known to be on disk
    is_kept    its being finished is known to be on disk
    """

    state: str = QUEUED
    attempts: int = 0
    due_ns: int = 0
    born_ns: int = 0
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

    deaths    how often each message was moved to the topic of dead letters, which the disk may refuse
    """

    max_attempts: int = 0
    ttl_ns: int = 0
    can_publish_dead_letters: bool = True
    deaths: Counter[int] = field(default_factory=Counter)

    def is_too_old(self, message: Message, now_ns: int, grace_ns: int = 0) -> bool:
        return self.ttl_ns > 0 and message.born_ns + self.ttl_ns + grace_ns < now_ns


@dataclass
class ModelChannel:
    """`first` is where the channel began: what is below it was never its own."""

    first: int
    rules: Rules = field(default_factory=Rules)
    messages: dict[int, Message] = field(default_factory=dict)
    is_paused: bool = False

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
        rules, message = self.rules, self.messages[seq]
        if not rules.max_attempts or message.attempts < rules.max_attempts or not rules.can_publish_dead_letters:
            return False
        rules.deaths[seq] += 1
        message.finish()
        return True

    def forget_too_old(self, found: dict[int, Seen], now_ns: int) -> None:
        """What the real one dropped since it is too old; it need not do so at once."""
        for seq, message in self.messages.items():
            if message.state == QUEUED and found[seq][0] == FINISHED and self.rules.is_too_old(message, now_ns):
                message.finish()
            if message.state == QUEUED and message.wait == (0, 0):
                assert not self.rules.is_too_old(message, now_ns, grace_ns=SWEEP_NS), f"{seq} is still there"

    def send(self, seq: int, attempts: int, owner: object, now_ns: int, deadline_ns: int) -> None:
        """The real channel sent this to a consumer."""
        self.advance(now_ns)
        message = self.messages[seq]
        assert not self.is_paused, f"{seq} was sent by a paused channel"
        assert message.state == QUEUED, f"{seq} was sent while {message.state}"
        too_old = self.rules.is_too_old(message, now_ns, grace_ns=ID_TIME_NS)
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

    def release(self, seq: int, due_ns: int, born_ns: int) -> None:
        self.messages[seq] = Message(
            DEFERRED if due_ns else QUEUED, due_ns=due_ns, born_ns=born_ns, wait=(due_ns, 0), kept_wait=(due_ns, 0)
        )

    def empty(self) -> None:
        for message in self.messages.values():
            message.finish()

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

    def restart_after_a_crash(self, found: dict[int, Seen], now_ns: int) -> None:
        """Check what was found against what has to be there, and go on with it."""
        for seq, message in self.messages.items():
            state, attempts, due_ns = found[seq]
            kept_due_ns, kept_attempts = message.kept_wait
            if message.state == FINISHED:
                assert not message.is_kept or state == FINISHED, f"{seq} came again"
            else:
                assert state in (QUEUED, DEFERRED), f"{seq} was {message.state}, came back {state}"
                assert attempts <= message.attempts
            if state == FINISHED:
                message.is_kept = True
                continue
            assert attempts >= kept_attempts, f"{seq} was tried {kept_attempts} times, came back with {attempts}"
            if message.state == DEFERRED and message.wait == message.kept_wait and kept_due_ns > now_ns:
                assert (state, due_ns) == (DEFERRED, kept_due_ns)
            message.queue()
            message.state, message.attempts, message.due_ns = state, attempts, due_ns
            message.wait = message.kept_wait = (due_ns, attempts)


@dataclass
class ModelTopic:
    """`held` are (sequence number, due_ns, born_ns) that no channel has yet."""

    rules: Rules = field(default_factory=Rules)
    channels: dict[str, ModelChannel] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    is_paused: bool = False

    def publish(self, bodies: list[bytes], due_ns: int, now_ns: int) -> None:
        for body in bodies:
            self.held.append((len(self.bodies), due_ns, max(due_ns, now_ns)))
            self.bodies.append(body)
        self.release()

    def release(self) -> None:
        if self.is_paused or not self.channels:
            return
        for channel in self.channels.values():
            for held in self.held:
                channel.release(*held)
        self.held.clear()

    def drop_held(self, count: int) -> None:
        """The first of them are finished in all channels, before these had them."""
        for channel in self.channels.values():
            for held in self.held[:count]:
                channel.release(*held)
                channel.messages[held[0]].finish()
        del self.held[:count]

    def forget_too_old(self, released: int, now_ns: int) -> None:
        """The real one dropped what it held below `released`, since it is too old."""
        too_old = [self.rules.ttl_ns and born_ns + self.rules.ttl_ns < now_ns for _, _, born_ns in self.held]
        count = released - self.released
        assert all(too_old[:count]), f"{self.released} to {released} were dropped"
        self.drop_held(count)

    @property
    def released(self) -> int:
        return self.held[0][0] if self.held else len(self.bodies)

    def add_channel(self, name: str) -> None:
        self.channels[name] = ModelChannel(self.released, self.rules)
        self.release()

    def is_needed(self, low: int, high: int) -> bool:
        held = any(low <= seq < high for seq, _, _ in self.held)
        return held or any(channel.is_needed(low, high) for channel in self.channels.values())


def observe(channel: Channel) -> dict[int, Seen]:
    """What a real channel says of every message below `released`; that it says one thing of each is checked."""
    position = channel.position
    seen: dict[int, list[Seen]] = {seq: [] for seq in range(position.released)}
    for seq in range(position.finished.floor):
        seen[seq].append((FINISHED, 0, 0))
    for low, high in position.finished.islands():
        for seq in range(low, high):
            seen[seq].append((FINISHED, 0, 0))
    skipped = {seq for low, high in position.skips for seq in range(low, high)}
    for seq in range(position.next_fresh, position.released):
        if seq not in skipped:
            seen[seq].append((QUEUED, 0, 0))
    for low, high, attempts, _ in position.again:
        for seq in range(low, high):
            seen[seq].append((QUEUED, attempts, 0))
    for due_ns, (low, high, attempts, _) in position.deferred:
        for seq in range(low, high):
            seen[seq].append((DEFERRED, attempts, due_ns))
    for table in channel._tables:
        for seq, delivery in table.entries():
            seen[seq].append((IN_FLIGHT, delivery.attempts, 0))
    for seq, states in seen.items():
        assert len(states) == 1, f"message {seq} is {states or 'nowhere'}"
    return {seq: states[0] for seq, states in seen.items()}
