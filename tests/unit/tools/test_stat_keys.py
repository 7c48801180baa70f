"""What a user of nsq-stat's live table does with keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.controls import DOWN, END, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP, Controls, KeyDecoder, Window, typed_filter
from nsq_tools.stat.model import Name
from nsq_tools.stat.selection import BadPattern, Order

SEQUENCES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME,
    "\x1bOH": HOME,
    "\x1b[1~": HOME,
    "\x1b[7~": HOME,
    "\x1b[F": END,
    "\x1bOF": END,
    "\x1b[4~": END,
    "\x1b[8~": END,
    "\x1b[1;5B": DOWN,
    "\x1b[5;2~": PAGE_UP,
}


# --- keys


@pytest.mark.parametrize(("text", "key"), SEQUENCES.items())
def test_keys_of_several_characters(text: str, key: str) -> None:
    assert KeyDecoder().feed(f"a{text}b") == ["a", key, "b"]


@given(st.lists(st.sampled_from([*SEQUENCES, "a", "\x1b[24~", "\x1b[200~", "\x1bx"]), max_size=8), st.data())
def test_keys_may_come_in_pieces(texts: list[str], data: st.DataObject) -> None:
    whole, pieces = KeyDecoder(), KeyDecoder()
    text = "".join(texts)
    cut = data.draw(st.integers(0, len(text)))
    assert pieces.feed(text[:cut]) + pieces.feed(text[cut:]) == whole.feed(text)
    assert not whole.is_waiting


def test_escape_is_a_key_when_nothing_follows() -> None:
    decoder = KeyDecoder()
    assert (decoder.feed("\x1b"), decoder.is_waiting) == ([], True)
    assert (decoder.end(), decoder.is_waiting) == ([ESCAPE], False)
    assert decoder.feed("\x1b\x1b[A") == [ESCAPE, UP]
    assert (decoder.feed("\x1b[1;"), decoder.end()) == ([], [])  # torn: it means nothing


# --- scrolling


@pytest.mark.parametrize(
    ("keys", "top"),
    [
        ([DOWN], 1),
        ([DOWN, DOWN, UP], 1),
        ([UP], 0),
        ([PAGE_DOWN], 20),
        ([PAGE_DOWN] * 3, 60),
        ([END], 180),
        ([END, UP], 179),
        ([END, PAGE_DOWN], 180),
        ([END, PAGE_UP], 160),
        ([PAGE_UP], 0),
        ([END, HOME], 0),
    ],
)
def test_keys_scroll(keys: list[str], top: int) -> None:
    controls, window = Controls(Order()), Window.at(0, 20, 200)
    for key in keys:
        controls.press(key, window)
        window = Window.at(controls.top, 20, 200)
    assert window.top == top


@given(st.integers(-5, 300), st.integers(0, 100), st.integers(0, 200))
def test_a_window_has_only_rows_that_are_there(top: int, count: int, total: int) -> None:
    window = Window.at(top, count, total)
    assert window.above >= 0 and window.below >= 0
    assert window.count == min(count, total)


def test_another_order_begins_at_the_top() -> None:
    for key, order in (("s", "channel"), ("r", "-topic")):
        controls = Controls(Order())
        controls.press(END, Window.at(0, 20, 200))
        controls.press(key, Window.at(180, 20, 200))
        assert (controls.top, str(controls.order)) == (0, order)


# --- a filter


NAMES = [Name("orders"), Name("orders", "archive"), Name("users"), Name("users", "mail")]


def typed(keys: str, *more: str) -> tuple[Controls, list[str]]:
    controls = Controls(Order())
    for key in [*keys, *more]:
        controls.press(key, Window.at(0, 20, 200))
    return controls, [str(name) for name in NAMES if controls.filter.shows(name)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ["orders", "orders/archive", "users", "users/mail"]),
        ("ord", ["orders", "orders/archive"]),
        ("chiv", ["orders/archive"]),
        ("s/m", ["users/mail"]),
        ("u*", ["users", "users/mail"]),
        ("*l", ["users/mail"]),
        ("/", ["orders", "orders/archive", "users", "users/mail"]),
        ("/^(orders|mail)$", ["orders", "orders/archive", "users/mail"]),
        ("/^(orders|mail)$/", ["orders", "orders/archive", "users/mail"]),
        ("srq", []),  # no commands while typing
    ],
)
def test_a_filter_holds_while_it_is_typed(text: str, shown: list[str]) -> None:
    controls, names = typed("/" + text)
    assert (controls.is_typing, controls.text, names) == (True, text, shown)
    assert str(controls.order) == "topic"


def test_enter_keeps_it_and_escape_drops_it() -> None:
    kept, names = typed("/ord", "enter", "s")
    assert (kept.is_typing, kept.text, names) == (False, "ord", ["orders", "orders/archive"])
    assert str(kept.order) == "channel"
    dropped, names = typed("/ord", "enter", "/", "x", "escape")
    assert (dropped.is_typing, dropped.text, names) == (False, "ord", ["orders", "orders/archive"])
    cleared, names = typed("/ord", "enter", "escape")
    assert (cleared.text, len(names)) == ("", 4)


def test_it_can_be_corrected() -> None:
    assert typed("/orx", "backspace", "d")[0].text == "ord"
    assert typed("/orx", "clear", "u")[0].text == "u"
    assert typed("/", "backspace", "\t", "home")[0].text == ""


def test_what_is_no_expression_yet_leaves_the_last_one() -> None:
    controls, names = typed("//^use(", "enter")
    assert (controls.is_typing, names) == (True, ["users", "users/mail"])
    assert "is not a regular expression" in controls.error
    controls, names = typed("//^use(", "r", ")", "enter")
    assert (controls.is_typing, controls.error, names) == (False, "", ["users", "users/mail"])
    with pytest.raises(BadPattern):
        typed_filter("/(")
