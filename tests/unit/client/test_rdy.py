"""max_in_flight over connections: evenly, and in turn where there are more connections than messages."""

from __future__ import annotations

from nsqd_py.client.consuming.flow import RdySpread, even_shares

IDLE_S, TURN_S = 10.0, 30.0


class Connection:
    """What the spread asks of it is kept."""

    def __init__(self, max_rdy: int = 2500) -> None:
        self.rdy = 0
        self.max_rdy = max_rdy
        self.rdy_since_s = 0.0
        self.last_message_s = 0.0
        self.asked: list[int] = []

    def ask_for(self, rdy: int, now_s: float) -> None:
        self.rdy, self.rdy_since_s = rdy, now_s
        self.asked.append(rdy)


def spread_over(count: int, most: int, *caps: int) -> tuple[RdySpread, list[Connection]]:
    spread = RdySpread(IDLE_S, TURN_S)
    connections = [Connection(*caps[index : index + 1]) for index in range(count)]
    for connection in connections:
        spread.add(connection)
    spread.share(most, 0.0)
    return spread, connections


def rdys(connections: list[Connection]) -> list[int]:
    return [connection.rdy for connection in connections]


def test_what_one_may_not_have_goes_to_the_others() -> None:
    assert even_shares(100, [10, 2500, 2500]) == [10, 45, 45]
    assert even_shares(100, [10, 20, 30]) == [10, 20, 30]


def test_only_changes_are_sent() -> None:
    spread, connections = spread_over(2, 100)
    spread.share(100, 1.0)
    assert [connection.asked for connection in connections] == [[50], [50]]


def test_less_is_asked_for_before_more() -> None:
    spread, (first, second) = spread_over(2, 10, 4, 10)
    asked = []
    first.ask_for = lambda rdy, now_s: asked.append(("first", rdy))  # type: ignore[method-assign]
    second.ask_for = lambda rdy, now_s: asked.append(("second", rdy))  # type: ignore[method-assign]
    first.max_rdy, second.max_rdy = 10, 1
    spread.share(10, 1.0)
    assert asked == [("second", 1), ("first", 9)]


def test_a_turn_ends_when_nothing_comes() -> None:
    spread, connections = spread_over(3, 1)
    order = [rdys(connections).index(1)]
    now_s = 0.0
    for _ in range(5):
        spread.change_turns(now_s + IDLE_S)
        assert rdys(connections).index(1) == order[-1]
        now_s += IDLE_S + 1
        spread.change_turns(now_s)
        order.append(rdys(connections).index(1))
    assert order[:3] == order[3:]
    assert sorted(order[:3]) == [0, 1, 2]


def test_a_turn_with_messages_ends_too() -> None:
    spread, connections = spread_over(2, 1)
    busy = next(connection for connection in connections if connection.rdy)
    busy.last_message_s = TURN_S - 1
    spread.change_turns(TURN_S)
    assert busy.rdy == 1
    busy.last_message_s = TURN_S
    spread.change_turns(TURN_S + 0.1)
    assert busy.rdy == 0
    assert sum(rdys(connections)) == 1


def test_probes_go_to_one_after_the_other() -> None:
    """As back-off has it: nothing, then one for somebody, then nothing."""
    spread, connections = spread_over(3, 30)
    probed = []
    for attempt in range(6):
        spread.share(0, float(attempt))
        assert rdys(connections) == [0, 0, 0]
        spread.share(1, float(attempt))
        probed.append(rdys(connections).index(1))
    assert sorted(probed[:3]) == [0, 1, 2]
    assert probed[:3] == probed[3:]
