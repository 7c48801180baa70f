"""Unanswered messages are touched at 60 % of their time-out, and given up when nsqd gives up."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd_py.client.consuming.lane import Touching

TIMEOUT_S, MOST_S = 10.0, 25.0


@dataclass(eq=False)
class Batch:
    arrived_s: float
    due_s: float = 0.0


def with_batches(*arrived_s: float, is_automatic: bool = True) -> tuple[Touching[Batch], list[Batch]]:
    touching: Touching[Batch] = Touching(TIMEOUT_S, MOST_S, is_automatic=is_automatic)
    batches = [Batch(each_s) for each_s in arrived_s]
    for batch in batches:
        touching.add(batch)
    return touching, batches


def test_what_is_not_answered_is_touched_in_time() -> None:
    touching, (first, second) = with_batches(0.0, 1.0)
    assert touching.due_s == 6.0
    assert touching.look(5.9) == ([], [])
    assert touching.look(6.0) == ([first], [])
    assert touching.look(7.0) == ([first, second], [])


def test_what_is_touched_has_its_time_again() -> None:
    touching, (first, second) = with_batches(0.0, 1.0)
    touching.touched(first, 6.0)
    assert touching.due_s == 7.0
    touching.touched(second, 7.0)
    assert touching.due_s == 12.0


def test_what_is_answered_is_left_alone() -> None:
    touching, (first, second) = with_batches(0.0, 1.0)
    touching.discard(first)
    touching.discard(first)
    assert touching.look(100.0) == ([], [second])
    assert len(touching) == 0


def test_nothing_is_touched_past_the_longest_time() -> None:
    touching, (batch,) = with_batches(0.0)
    touched_s = []
    while touching.due_s is not None:
        now_s = touching.due_s
        to_touch, expired = touching.look(now_s)
        touched_s += [now_s] * len(to_touch)
        for each in to_touch:
            touching.touched(each, now_s)
    assert touched_s == [6.0, 12.0, 18.0, 24.0]
    assert expired == [batch]
    assert now_s == MOST_S


def test_without_automatic_touch_it_times_out() -> None:
    touching, (batch,) = with_batches(0.0, is_automatic=False)
    assert touching.look(9.9) == ([], [])
    assert touching.look(10.0) == ([], [batch])


def test_a_touch_by_hand_puts_the_time_out_off() -> None:
    touching, (batch,) = with_batches(0.0, is_automatic=False)
    touching.touched(batch, 9.0)
    assert touching.look(18.9) == ([], [])
    touching.touched(batch, 18.0)
    assert touching.due_s == MOST_S


def test_what_is_forgotten_is_not_brought_back_by_a_touch() -> None:
    touching, (batch,) = with_batches(0.0)
    touching.discard(batch)
    touching.touched(batch, 1.0)
    assert touching.due_s is None
