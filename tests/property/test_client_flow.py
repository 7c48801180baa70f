"""Whatever happens: RDY stays within its limits, nobody starves, each message is answered once at most."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqd_py.client.consuming.subscription import InFlightWindow, Subscription
from nsqd_py.client.message import AlreadyAnswered
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Negotiated
from tests.support.examples import examples
from tests.support.subscription import World, message_id

IDLE_S, TURN_S, REDISTRIBUTE_S, LONGEST_S = 10.0, 30.0, 5.0, 20.0


class Cluster:
    """A subscription over any number of nsqds, and a clock. Each RDY is checked against what all together may ask for."""

    def __init__(self, max_in_flight: int, count: int) -> None:
        self.begin(max_in_flight)
        for _ in range(count):
            self.open(2500)

    def begin(self, max_in_flight: int) -> None:
        self.now_s = 0.0
        self.allowed = max_in_flight
        self.opened = 0
        self.windows: list[InFlightWindow] = []
        self.rdys: dict[str, int] = {}
        self.turns: Counter[str] = Counter()
        self.subscription = Subscription(
            "topic",
            "channel",
            ClientOptions.of(
                max_in_flight=max_in_flight,
                low_rdy_idle_timeout=IDLE_S,
                low_rdy_timeout=TURN_S,
                rdy_redistribute_interval=REDISTRIBUTE_S,
                max_backoff_duration=LONGEST_S,
            ),
            auto_touch=True,
            now_s=lambda: self.now_s,
            chance=lambda: 0.0,
            on_output=self.check_output,
            on_backoff=lambda _: None,
            lock=nullcontext(),
        )

    @property
    def is_flowing(self) -> bool:
        return self.subscription.stats().backoff.phase == "flowing"

    @property
    def total_rdy(self) -> int:
        return sum(window.rdy for window in self.windows)

    def check_output(self) -> None:
        for address, window in self.subscription.windows.items():
            for line in window.take_output().splitlines():
                rdy = int(line.removeprefix(b"RDY "))
                assert 0 <= rdy <= window.max_rdy
                assert rdy != self.rdys.get(address, 0)
                self.rdys[address] = rdy
                self.turns[address] += rdy > 0
                assert sum(self.rdys.values()) <= self.allowed

    def open(self, max_rdy: int) -> None:
        self.opened += 1
        self.windows.append(self.subscription.opened(f"nsqd:{self.opened}", Negotiated(max_rdy)))

    def close(self, which: int) -> None:
        if self.windows:
            window = self.windows.pop(which % len(self.windows))
            self.rdys.pop(window.address, None)
            self.subscription.closed(window)

    def get_message(self, which: int) -> None:
        ready = [window for window in self.windows if window.rdy]
        if ready:
            ready[which % len(ready)].last_message_s = self.now_s

    def set_max_in_flight(self, count: int) -> None:
        self.allowed = max(self.allowed, count)  # while it changes
        self.subscription.set_max_in_flight(count)
        self.allowed = count

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.subscription.tick()

    def check(self) -> None:
        stats = self.subscription.stats()
        phase = stats.backoff.phase
        most = self.allowed if phase == "flowing" else min(self.allowed, phase == "probing")
        if stats.is_paused:
            most = 0
        most = min(most, sum(window.max_rdy for window in self.windows))
        assert self.total_rdy == most == sum(self.rdys.values())  # no more, and nothing is left lying
        if most < len(self.windows):
            assert max(window.rdy for window in self.windows) <= 1


class FlowMachine(Cluster, RuleBasedStateMachine):
    """Connections come and go, messages succeed and fail, in any order."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)

    begin = initialize(max_in_flight=st.integers(0, 60))(Cluster.begin)
    open = rule(max_rdy=st.integers(1, 20))(Cluster.open)
    close = rule(which=st.integers(0, 9))(Cluster.close)
    get_message = rule(which=st.integers(0, 9))(Cluster.get_message)
    set_max_in_flight = rule(count=st.integers(0, 60))(Cluster.set_max_in_flight)
    pass_time = rule(seconds=st.floats(0, 40))(Cluster.pass_time)
    check = invariant()(Cluster.check)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.subscription.pause(is_paused=is_paused)

    @rule(times=st.integers(1, 3))
    def fail(self, times: int) -> None:
        for _ in range(times):
            self.subscription.failed()

    @rule()
    def succeed(self) -> None:
        self.subscription.succeeded()

    @rule()
    def go_on(self) -> None:
        self.subscription.continued()

    @rule()
    def recover(self) -> None:
        """Whatever happened before: when each message that comes succeeds, back-off ends."""
        if not self.windows or not self.allowed:
            return
        self.subscription.pause(is_paused=False)
        for _ in range(40):
            self.pass_time(LONGEST_S)
            if self.total_rdy:
                self.subscription.succeeded()
        assert self.is_flowing


TestFlow = FlowMachine.TestCase
TestFlow.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 12), st.data())
def test_everybody_has_a_turn(count: int, data: st.DataObject) -> None:
    """Also when some are always busy: a turn ends after TURN_S."""
    cluster = Cluster(data.draw(st.integers(1, count - 1)), count)
    busy = data.draw(st.sets(st.integers(0, count - 1)))
    cluster.turns.clear()
    for _ in range(int(count * (TURN_S + 2 * REDISTRIBUTE_S) / REDISTRIBUTE_S)):
        for index in busy:
            cluster.windows[index].last_message_s = cluster.now_s
        cluster.pass_time(REDISTRIBUTE_S)
        cluster.check()
    assert all(cluster.turns[window.address] for window in cluster.windows)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 8), st.integers(1, 8))
def test_backoff_ends_when_messages_succeed(count: int, failures: int) -> None:
    """Wherever the message is: the probe comes round."""
    cluster = Cluster(100, count)
    for _ in range(failures):
        cluster.subscription.failed()
        cluster.pass_time(LONGEST_S)
    only = cluster.windows[-1]
    for _ in range(400):
        cluster.pass_time(REDISTRIBUTE_S)
        if only.rdy:
            only.last_message_s = cluster.now_s
            cluster.subscription.succeeded()
    assert cluster.is_flowing
    assert all(window.rdy for window in cluster.windows)


# ---- answers

WHICH, NUMBER = st.integers(0, 2), st.integers(0, 5)
ANSWERS = st.one_of(
    st.tuples(st.sampled_from(["finish", "requeue"]), WHICH, NUMBER),
    st.tuples(st.just("finish_some"), WHICH, st.lists(NUMBER, max_size=4)),
    st.tuples(st.sampled_from(["finish_all", "requeue_all"]), WHICH, st.none()),
    st.tuples(st.just("pass_time"), st.none(), st.floats(0, 500)),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(ANSWERS, max_size=30))
def test_a_message_is_answered_once_at_most(steps: list[tuple[str, int, object]]) -> None:
    world = World(max_backoff_duration=0)
    batches = [world.batch(*range(first, first + 6)) for first in (0, 6, 12)]
    messages = [batch.messages() for batch in batches]
    calls = {
        "finish": lambda batch, number: messages[batch][number].finish(),
        "requeue": lambda batch, number: messages[batch][number].requeue(),
        "finish_some": lambda batch, numbers: batches[batch].finish_some(
            [batches[batch].ids[n] for n in numbers]
        ),
        "finish_all": lambda batch, _: batches[batch].finish(),
        "requeue_all": lambda batch, _: batches[batch].requeue(),
    }
    answered = Counter()

    def still_open() -> set[bytes]:
        return {message.id for row in messages for message in row if not message.is_answered}

    for name, batch, argument in steps:
        before = still_open()
        try:
            if name == "pass_time":
                world.now_s += argument  # type: ignore[operator]
                world.subscription.tick()
            else:
                calls[name](batch, argument)
        except AlreadyAnswered:
            assert before == still_open()
        answered.update(line.split()[1] for line in world.sent() if line.startswith((b"FIN", b"REQ")))
    assert set(answered.values()) <= {1}
    assert still_open() | answered.keys() == {message_id(number) for number in range(18)}
    assert not still_open() & answered.keys()
    expected = sum(batch.open_count for batch in batches if batch.is_live)
    assert world.subscription.in_flight == expected
