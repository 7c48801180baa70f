"""Unanswered messages are touched at 60 % of their time-out, and given up when nsqd gives up."""

from __future__ import annotations

import pytest

from nsqd_py.client.session import Negotiated
from tests.support.subscription import World, message_id

LIMITS = Negotiated(msg_timeout_s=10.0, max_msg_timeout_s=25.0)


def touches(world: World, now_s: float) -> list[int]:
    """Return the messages that are touched when the clock shows this."""
    world.now_s = now_s
    world.subscription.tick()
    return [int(line.split()[1], 16) for line in world.sent() if line.startswith(b"TOUCH")]


def world_with(*arrived_s: float, auto_touch: bool = True) -> World:
    world = World(limits=LIMITS, auto_touch=auto_touch)
    for number, world.now_s in enumerate(arrived_s):
        world.batch(number)
    return world


def test_what_is_not_answered_is_touched_in_time() -> None:
    world = world_with(0.0, 1.0)
    assert world.window.due_s == 6.0
    assert touches(world, 5.9) == []
    assert touches(world, 6.0) == [0]
    assert touches(world, 7.0) == [1]
    assert world.window.due_s == 12.0


def test_what_is_answered_is_left_alone() -> None:
    world = World(limits=LIMITS)
    first, _ = world.batch(0), world.batch(1)
    first.finish()
    assert touches(world, 6.0) == [1]


def test_no_message_is_touched_past_the_longest_time() -> None:
    world = world_with(0.0)
    touched_s = []
    while not world.window.is_empty:
        now_s = world.window.due_s
        touched_s += [now_s] * len(touches(world, now_s))
    assert touched_s == [6.0, 12.0, 18.0, 24.0]
    assert now_s == 25.0
    assert world.subscription.stats().timed_out == 1


@pytest.mark.parametrize("touched_s", [[], [9.0], [9.0, 18.0]])
def test_without_automatic_touch_it_times_out(touched_s: list[float]) -> None:
    world = World(limits=LIMITS, auto_touch=False)
    batch = world.batch(0)
    for world.now_s in touched_s:
        batch.touch_some([message_id(0)])
    ends_s = min(([0.0, *touched_s])[-1] + 10.0, 25.0)
    touches(world, ends_s - 0.1)
    assert batch.is_live
    assert touches(world, ends_s) == []
    assert not batch.is_live
