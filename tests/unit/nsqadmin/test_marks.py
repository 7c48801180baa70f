"""Marks in charts: actions and starts, and whom they concern."""

from __future__ import annotations

from nsqadmin_py.history.annotations import MOST_MARKS, Marks, marks_json
from nsqadmin_py.history.file import NOTHING, decode, encode
from nsqadmin_py.history.series import History

DAY_S = 24 * 3600.0
NOW_S = 1_700_000_000.0


def some_marks() -> Marks:
    marks = Marks()
    marks.note_starts([("a", int(NOW_S) - 60), ("b", int(NOW_S) - 50), ("c", 0)], NOW_S)
    marks.note_action("pause_channel", NOW_S - 30, {"topic": "orders", "channel": "archive"}, "bob")  # Go's name
    marks.note_action("empty", NOW_S - 20, {"topic": "orders", "channel": "billing"}, "")
    marks.note_action("delete_topic", NOW_S - 10, {"topic": "orders"}, "")
    marks.note_action("tombstone_topic_producer", NOW_S - 5, {"topic": "secret", "node": "b"}, "")
    marks.note_action("publish", NOW_S, {"topic": "orders"}, "")  # which is no mark
    return marks


def texts(marks: Marks, topic: str = "", channel: str = "", node: str = "", having: tuple[str, ...] = ()) -> list[str]:
    found = marks.of(topic, channel, node, having)
    return [" ".join(filter(None, (mark.action, mark.topic, mark.channel, mark.node, mark.user))) for mark in found]


def test_marks_of_a_topic_a_channel_and_an_nsqd() -> None:
    marks = some_marks()
    archive = ["pause orders archive bob", "delete orders"]
    assert texts(marks, "orders", "archive") == archive
    assert texts(marks, "orders", having=("b",)) == ["start b", archive[0], "empty orders billing", archive[1]]
    assert texts(marks, node="b") == ["start b", "tombstone secret b"]
    assert len(texts(marks)) == 6


def test_a_start_is_marked_once_and_a_restart_again() -> None:
    marks = some_marks()
    marks.note_starts([("a", int(NOW_S) - 60)], NOW_S)
    marks.note_starts([("a", int(NOW_S) + 7), ("d", int(NOW_S - 2 * DAY_S))], NOW_S + 8)
    assert texts(marks, node="a") == ["start a", "start a"]
    assert texts(marks, node="d") == []


def test_marks_of_yesterday_go_and_there_are_never_too_many() -> None:
    marks = some_marks()
    marks.note_starts([], NOW_S + DAY_S - 25)
    assert [text.split()[0] for text in texts(marks)] == ["empty", "delete", "tombstone"]
    for _ in range(2 * MOST_MARKS):
        marks.note_action("seek", NOW_S, {"topic": "t", "channel": "c"}, "")
    assert len(texts(marks)) == MOST_MARKS


def test_users_see_marks_of_their_topics_only() -> None:
    shown = marks_json(some_marks().of("", "", "", ()), lambda topic: topic == "orders")
    assert {row["topic"] for row in shown} == {"orders", ""}


def test_marks_outlast_a_restart_of_nsqadmin() -> None:
    again = Marks()
    again.load(decode(encode(History(), NOTHING._replace(marks=some_marks().dump())), History()).marks)
    again.load([{"time_s": "x"}, 7])  # from a damaged file
    assert texts(again) == texts(some_marks())
    again.note_starts([("a", int(NOW_S) - 60)], NOW_S)
    assert texts(again, node="a") == ["start a"]
