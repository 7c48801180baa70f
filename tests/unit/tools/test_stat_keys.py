"""What the keys of nsq-stat's live table do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.rows import Name
from nsq_tools.stat.screen.cursor import Cursor, Scroll
from nsq_tools.stat.screen.keys import KeyReader
from nsq_tools.stat.screen.navigation import HelpView, Navigation, ProblemTable, TopicView

# --- bytes


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[1~\x1b[F", ["page up", "page down", "home", "end"]),
        (b"\r\n\x7f\x08\x15", ["enter", "enter", "backspace", "backspace", "clear"]),
        (b"\x1b[[A\x1b[15;2~x", ["x"]),  # function keys
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        ("ä\x01".encode(), []),
        (b"/a b", ["/", "a", " ", "b"]),
    ],
)
def test_keys_have_names(typed: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(typed) == keys
    reader = KeyReader()
    assert [key for byte in typed for key in reader.feed(bytes([byte]))] == keys


def test_escape_alone_is_a_key_after_a_pause() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_in_sequence
    assert reader.flush() == ["escape"]
    assert reader.feed(b"\x1b[") == []
    assert reader.flush() == []
    assert not reader.is_in_sequence
    assert reader.feed(b"A") == ["A"]


# --- the selected line


def test_the_cursor_stays_with_its_line() -> None:
    cursor = Cursor()
    cursor.show(["a", "b", "c"], 3)
    cursor.press("down")
    cursor.show(["z", "c", "b", "a"], 3)
    assert (cursor.key, cursor.index) == ("b", 2)
    cursor.show(["z", "a"], 3)  # it is gone
    assert cursor.key == "a"
    cursor.press("home")
    cursor.show(["new", "z", "a"], 3)
    assert cursor.key == "new", "the first line stays the first line"
    cursor.show([], 3)
    assert cursor.key is None
    cursor.press("end")
    assert cursor.index == 0


moves = st.lists(
    st.sampled_from(["up", "down", "j", "k", "g", "G", "page up", "page down", "home", "end"]), max_size=20
)


@given(moves, st.integers(0, 30), st.integers(0, 12))
def test_the_selected_line_is_visible_and_no_line_is_empty(pressed: list[str], total: int, page: int) -> None:
    cursor, scroll = Cursor(), Scroll()
    cursor.show(list(range(total)), page)
    scroll.fit(total, page)
    for key in pressed:
        assert cursor.press(key)
        assert scroll.press(key)
        if page and total:
            assert cursor.top <= cursor.index < cursor.top + cursor.page
        assert 0 <= cursor.top <= max(0, total - cursor.page)
        assert 0 <= scroll.top <= max(0, total - scroll.page)


# --- views and the filter


def pressed(*keys: str) -> Navigation:
    navigation = Navigation()
    navigation.table.show([(Name("orders"), ""), (Name("users", "mail"), "")], 2)
    for key in keys:
        navigation.press(key)
    return navigation


def test_views_lie_on_each_other() -> None:
    navigation = pressed("j", "enter", "?")
    assert isinstance(navigation.view, HelpView)
    navigation.press("q")
    assert isinstance(navigation.view, TopicView) and navigation.view.topic == "users"
    navigation.press("p")
    assert isinstance(navigation.view, ProblemTable)
    navigation.view.topics = {"one": "orders", "two": ""}
    navigation.view.show(["one", "two"], 2)
    navigation.press("enter")
    assert isinstance(navigation.view, TopicView) and navigation.view.topic == "orders"
    for _ in range(2):
        navigation.press("escape")
    assert navigation.view is navigation.table
    navigation.press("escape")
    assert not navigation.is_over
    navigation.press("q")
    assert navigation.is_over


def test_a_problem_without_a_topic_opens_nothing() -> None:
    navigation = pressed("p")
    assert isinstance(navigation.view, ProblemTable)
    navigation.view.topics = {"two": ""}
    navigation.view.show(["two"], 1)
    navigation.press("enter")
    assert isinstance(navigation.view, ProblemTable)


@pytest.mark.parametrize(
    ("keys", "text", "is_typing"),
    [
        ("/", "", True),
        ("/qsp?", "qsp?", True),
        ("/ab<", "a", True),
        ("/ab!", "ab", False),
        ("/ab!/c", "abc", True),
        ("/ab^", "", False),
        ("/ab!^", "", False),
        ("/a<<", "", False),
        ("/ab~c", "c", True),
    ],
)
def test_a_filter_is_typed_kept_and_cleared(keys: str, text: str, is_typing: bool) -> None:
    names = {"<": "backspace", "!": "enter", "^": "escape", "~": "clear"}
    navigation = pressed(*(names.get(key, key) for key in keys))
    assert (navigation.filter, navigation.is_typing, navigation.is_over) == (text, is_typing, False)
    assert navigation.view is navigation.table


def test_order_and_filter_select_the_first_line_again() -> None:
    for keys in ("s",), ("r",), ("/", "x"):
        assert pressed("j", *keys).table.index == 0
    assert str(pressed("s", "r").order) == "-channel"
