"""A channel's journal is read on behind damage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journal import CHANGE, SNAPSHOT, encode_entry, read_journal

FIRST = encode_entry(SNAPSHOT, 10, [(20, 30)], [(40, 42, 99, 3)])
SECOND = encode_entry(CHANGE, 12, [(33, 35)], [])
THIRD = encode_entry(CHANGE, 15, [(50, 51)], [(52, 53, 0, 1)])
WHOLE = FIRST + SECOND + THIRD


def test_a_whole_journal() -> None:
    journal = read_journal(WHOLE)
    assert (journal.damaged, journal.end) == ([], len(WHOLE))
    assert journal.saved.finished.floor == 15
    assert journal.saved.finished.islands() == [(20, 30), (33, 35), (50, 51)]
    assert journal.saved.waiting == {40: (99, 3), 41: (99, 3), 52: (0, 1)}


def test_an_end_that_is_no_whole_entry_is_torn() -> None:
    journal = read_journal(WHOLE[:-1])
    assert (journal.damaged, journal.end) == ([], len(FIRST + SECOND))
    assert read_journal(WHOLE + bytes(100)).end == len(WHOLE)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_any_damage_forgets_and_never_invents(place: int, change: int) -> None:
    damaged = WHOLE[:place] + bytes([WHOLE[place] ^ change]) + WHOLE[place + 1 :]
    whole, journal = read_journal(WHOLE).saved, read_journal(damaged)
    assert journal.damaged or journal.end < len(damaged)
    assert all(whole.finished.covers(low, high) for low, high in journal.saved.finished.islands())
    assert journal.saved.finished.floor <= whole.finished.floor
    assert journal.saved.waiting.items() <= whole.waiting.items()
