"""Keys of a terminal, as nsq-stat reads them, and the window of rows that they move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.live import DOWN, END, HOME, PAGE_DOWN, PAGE_UP, UP, keys_in
from nsq_tools.stat.screen import VisibleRows

SEQUENCES = {
    "\x1b[A": UP,
    "\x1bOB": DOWN,
    "\x1b[1;5A": UP,
    "\x1b[H": HOME,
    "\x1b[4~": END,
    "\x1b[5~": PAGE_UP,
    "\x1b[6;2~": PAGE_DOWN,
    "q": "q",
}


@given(st.lists(st.sampled_from(sorted(SEQUENCES)), max_size=6), st.data())
def test_keys_may_come_in_pieces(texts: list[str], data: st.DataObject) -> None:
    typed, rest, keys = "".join(texts), "", []
    while typed:
        count = data.draw(st.integers(1, len(typed)))
        found, rest = keys_in(rest + typed[:count])
        keys += found
        typed = typed[count:]
    assert (keys, rest) == ([SEQUENCES[text] for text in texts], "")


@pytest.mark.parametrize("text", ["\x1b[99~", "\x1b[Z", "\x1bx"])
def test_other_keys_do_nothing(text: str) -> None:
    keys, rest = keys_in(text + "q")
    assert [key for key in keys if key in SEQUENCES.values()] == ["q"]
    assert rest == ""


@given(st.integers(-50, 50), st.integers(0, 30), st.integers(0, 40))
def test_a_window_has_only_rows_that_are_there(top: int, count: int, total: int) -> None:
    window = VisibleRows.at(top, count, total)
    assert window.top >= 0
    assert window.top + window.count + window.below == total
    assert window.count == min(count, total)
