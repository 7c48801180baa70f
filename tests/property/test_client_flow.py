"""Whatever happens: RDY stays within its limits, nobody starves, each message is answered once at most."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqd_py.client.consuming.flow import ConsumerBackoff, Flow, RdySpread, exponential
from nsqd_py.client.message import AlreadyAnswered
from tests.support.examples import examples
from tests.support.subscription import World, message_id

IDLE_S, TURN_S, REDISTRIBUTE_S, LONGEST_S = 10.0, 30.0, 5.0, 20.0


class Nsqd:
    """A connection: what is asked of it is checked against what all together may be asked for."""

    def __init__(self, max_rdy: int, cluster: Cluster) -> None:
        self.max_rdy = max_rdy
        self.rdy = 0
        self.rdy_since_s = self.last_message_s = cluster.now_s
        self.cluster = cluster
        self.turns = 0

    def ask_for(self, rdy: int, now_s: float) -> None:
        assert 0 <= rdy <= self.max_rdy
        assert rdy != self.rdy
        self.rdy, self.rdy_since_s = rdy, now_s
        self.turns += rdy > 0
        assert self.cluster.total_rdy <= self.cluster.allowed


class Cluster:
    """A flow over connections, and a clock."""

    def __init__(self, max_in_flight: int) -> None:
        self.now_s = 0.0
        self.nsqds: list[Nsqd] = []
        self.allowed = max_in_flight
        self.backoff = ConsumerBackoff(exponential(1.0), LONGEST_S)
        self.flow = Flow(
            max_in_flight, RdySpread(IDLE_S, TURN_S), self.backoff, REDISTRIBUTE_S, lambda: self.now_s, lambda _: None
        )

    @property
    def total_rdy(self) -> int:
        return sum(nsqd.rdy for nsqd in self.nsqds)

    def open(self, max_rdy: int) -> None:
        self.nsqds.append(Nsqd(max_rdy, self))
        self.flow.opened(self.nsqds[-1])

    def close(self, which: int) -> None:
        if self.nsqds:
            nsqd = self.nsqds.pop(which % len(self.nsqds))
            self.flow.closed(nsqd)

    def get_message(self, which: int) -> None:
        ready = [nsqd for nsqd in self.nsqds if nsqd.rdy]
        if ready:
            ready[which % len(ready)].last_message_s = self.now_s

    def set_max_in_flight(self, count: int) -> None:
        self.allowed = max(self.allowed, count)  # while it changes
        self.flow.set_max_in_flight(count)
        self.allowed = count

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.flow.tick(self.now_s)

    def check(self) -> None:
        phase = self.flow.state(self.now_s).phase
        most = self.allowed if phase == "flowing" else min(self.allowed, phase == "probing")
        if self.flow.is_paused:
            most = 0
        most = min(most, sum(nsqd.max_rdy for nsqd in self.nsqds))
        assert self.total_rdy == most  # no more, and nothing is left lying
        rdys = [nsqd.rdy for nsqd in self.nsqds]
        if most < len(rdys):
            assert max(rdys) <= 1


class FlowMachine(RuleBasedStateMachine):
    """Connections come and go, messages succeed and fail, in any order."""

    @initialize(max_in_flight=st.integers(0, 60))
    def begin(self, max_in_flight: int) -> None:
        self.cluster = Cluster(max_in_flight)

    @rule(max_rdy=st.integers(1, 20))
    def open(self, max_rdy: int) -> None:
        self.cluster.open(max_rdy)

    @rule(which=st.integers(0, 9))
    def close(self, which: int) -> None:
        self.cluster.close(which)

    @rule(which=st.integers(0, 9))
    def get_message(self, which: int) -> None:
        self.cluster.get_message(which)

    @rule(count=st.integers(0, 60))
    def set_max_in_flight(self, count: int) -> None:
        self.cluster.set_max_in_flight(count)

    @rule(seconds=st.floats(0, 40))
    def pass_time(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.cluster.flow.pause(is_paused=is_paused)

    @rule(times=st.integers(1, 3))
    def fail(self, times: int) -> None:
        for _ in range(times):
            self.cluster.flow.failed()

    @rule()
    def succeed(self) -> None:
        self.cluster.flow.succeeded()

    @rule()
    def go_on(self) -> None:
        self.cluster.flow.continued()

    @rule()
    def recover(self) -> None:
        """Whatever happened before: when each message that comes succeeds, back-off ends."""
        cluster = self.cluster
        if not cluster.nsqds or not cluster.allowed:
            return
        cluster.flow.pause(is_paused=False)
        for _ in range(40):
            cluster.pass_time(LONGEST_S)
            if cluster.total_rdy:
                cluster.flow.succeeded()
        assert cluster.flow.state(cluster.now_s).phase == "flowing"

    @invariant()
    def rdy_is_what_is_allowed(self) -> None:
        self.cluster.check()


TestFlow = FlowMachine.TestCase
TestFlow.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 12), st.data())
def test_everybody_has_a_turn(count: int, data: st.DataObject) -> None:
    """Also when some are always busy: a turn ends after TURN_S."""
    cluster = Cluster(data.draw(st.integers(1, count - 1)))
    busy = data.draw(st.sets(st.integers(0, count - 1)))
    for _ in range(count):
        cluster.open(2500)
    for nsqd in cluster.nsqds:
        nsqd.turns = 0
    for _ in range(int(count * (TURN_S + 2 * REDISTRIBUTE_S) / REDISTRIBUTE_S)):
        for index in busy:
            cluster.nsqds[index].last_message_s = cluster.now_s
        cluster.pass_time(REDISTRIBUTE_S)
        cluster.check()
    assert min(nsqd.turns for nsqd in cluster.nsqds) >= 1


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 8), st.integers(1, 8))
def test_backoff_ends_when_messages_succeed(count: int, failures: int) -> None:
    """Wherever the message is: the probe comes round."""
    cluster = Cluster(100)
    for _ in range(count):
        cluster.open(2500)
    for _ in range(failures):
        cluster.flow.failed()
        cluster.pass_time(LONGEST_S)
    only = cluster.nsqds[-1]
    for _ in range(400):
        cluster.pass_time(REDISTRIBUTE_S)
        if only.rdy:
            only.last_message_s = cluster.now_s
            cluster.flow.succeeded()
    assert cluster.flow.state(cluster.now_s).phase == "flowing"
    assert all(nsqd.rdy for nsqd in cluster.nsqds)


# ---- answers

ANSWERS = st.one_of(
    st.tuples(st.just("finish"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("requeue"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("finish_some"), st.integers(0, 2), st.lists(st.integers(0, 5), max_size=4)),
    st.tuples(st.just("finish_all"), st.integers(0, 2), st.none()),
    st.tuples(st.just("requeue_all"), st.integers(0, 2), st.none()),
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
        "finish_some": lambda batch, numbers: batches[batch].finish_some([batches[batch].ids[n] for n in numbers]),
        "finish_all": lambda batch, _: batches[batch].finish(),
        "requeue_all": lambda batch, _: batches[batch].requeue(),
    }
    answered: Counter[bytes] = Counter()
    for name, batch, argument in steps:
        before = {message.id for row in messages for message in row if not message.is_answered}
        try:
            if name == "pass_time":
                world.now_s += argument  # type: ignore[operator]
                world.subscription.tick()
            else:
                calls[name](batch, argument)
        except AlreadyAnswered:
            assert before == {message.id for row in messages for message in row if not message.is_answered}
        answered.update(line.split()[1] for line in world.sent() if line.startswith((b"FIN", b"REQ")))
    still_open = {message.id for row in messages for message in row if not message.is_answered}
    assert set(answered.values()) <= {1}
    assert still_open | answered.keys() == {message_id(number) for number in range(18)}
    assert not still_open & answered.keys()
    expected = sum(batch.open_count for batch in batches if batch.is_live)
    assert world.subscription.in_flight == expected
