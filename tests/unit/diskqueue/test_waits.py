"""Waiting messages in the form that a start reads them, compared with a dictionary of all of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.waits import WAIT_BYTES, PackedWaits, grouped, without
from nsqd_py.pqueues.deferred import Wait

States = dict[int, tuple[int, int]]  # (due_ns, attempts) by number

runs = st.tuples(
    st.integers(0, 30), st.integers(0, 6), st.sampled_from([-9, 0, 5, 10**18]), st.integers(0, 2)
)
waits = st.lists(runs.map(lambda run: (run[0], run[0] + run[1], run[2], run[3])), max_size=12)


def states(given_waits: list[Wait]) -> States:
    """The last state of each message, in the order of their last requeue."""
    found = {}
    for low, high, due_ns, attempts in given_waits:
        for seq in range(low, high):
            found.pop(seq, None)
            found[seq] = due_ns, attempts
    return found


@given(waits)
def test_the_last_state_of_each_message_stays_in_its_place(given_waits: list[Wait]) -> None:
    latest = PackedWaits(given_waits).latest()
    numbers = [seq for low, high, _, _ in latest for seq in range(low, high)]
    assert (numbers, latest.by_number()) == (list(states(given_waits)), states(given_waits))
    assert latest.end == max(numbers, default=-1) + 1


@given(waits)
def test_in_the_order_of_numbers_nothing_is_there_twice(given_waits: list[Wait]) -> None:
    rising = list(PackedWaits(given_waits).latest().rising())
    assert all(before[1] <= run[0] for before, run in pairwise(rising))
    runs_of_one_state = list(grouped(rising))
    assert states(runs_of_one_state) == states(given_waits)
    assert not any(before[1:] == (run[0], *run[2:]) for before, run in pairwise(runs_of_one_state)), (
        "two that could be one"
    )


@given(waits, waits)
def test_without_others(given_waits: list[Wait], others: list[Wait]) -> None:
    rest = list(without(PackedWaits(given_waits).latest().rising(), PackedWaits(others).latest().rising()))
    assert all(low < high for low, high, _, _ in rest)
    assert states(rest) == {
        seq: state for seq, state in states(given_waits).items() if seq not in states(others)
    }
    assert [run[0] for run in rest] == sorted(run[0] for run in rest)


def test_attempts_are_as_large_as_a_journal_has_them() -> None:
    packed = PackedWaits([(1, 2, 0, 70_000)])
    packed.add(2, 3, 0, 70_000)
    assert list(packed) == [(1, 2, 0, 65_535), (2, 3, 0, 65_535)]
    assert len(bytes(packed)) == 2 * WAIT_BYTES
