"""Annotations in charts: actions and starts, and whom they concern."""

from __future__ import annotations

from nsqadmin_py.history.annotations import MOST_ANNOTATIONS, Annotations, annotations_json
from nsqadmin_py.history.file import NOTHING, decode, encode
from nsqadmin_py.history.series import History

DAY_S = 24 * 3600.0
NOW_S = 1_700_000_000.0


def some_marks() -> Annotations:
    annotations = Annotations()
    annotations.note_starts([("a", int(NOW_S) - 60), ("b", int(NOW_S) - 50), ("c", 0)], NOW_S)
    annotations.note_action("pause_channel", NOW_S - 30, {"topic": "orders", "channel": "archive"}, "bob")  # Go's name
    annotations.note_action("empty", NOW_S - 20, {"topic": "orders", "channel": "billing"}, "")
    annotations.note_action("delete_topic", NOW_S - 10, {"topic": "orders"}, "")
    annotations.note_action("tombstone_topic_producer", NOW_S - 5, {"topic": "secret", "node": "b"}, "")
    annotations.note_action("publish", NOW_S, {"topic": "orders"}, "")  # which is no annotation
    return annotations


def texts(
    annotations: Annotations, topic: str = "", channel: str = "", node: str = "", having: tuple[str, ...] = ()
) -> list[str]:
    rows = annotations_json(annotations.of(topic, channel, node, having), lambda name: True)
    names = ("action", "topic", "channel", "node", "user")
    return [" ".join(filter(None, (row[name] for name in names))) for row in rows]


def test_marks_of_a_topic_a_channel_and_an_nsqd() -> None:
    annotations = some_marks()
    archive = ["pause orders archive bob", "delete orders"]
    assert texts(annotations, "orders", "archive") == archive
    assert texts(annotations, "orders", having=("b",)) == ["start b", archive[0], "empty orders billing", archive[1]]
    assert texts(annotations, node="b") == ["start b", "tombstone secret b"]
    assert len(texts(annotations)) == 6


def test_a_start_is_marked_once_and_a_restart_again() -> None:
    annotations = some_marks()
    annotations.note_starts([("a", int(NOW_S) - 60)], NOW_S)
    annotations.note_starts([("a", int(NOW_S) + 7), ("d", int(NOW_S - 2 * DAY_S))], NOW_S + 8)
    assert texts(annotations, node="a") == ["start a", "start a"]
    assert texts(annotations, node="d") == []


def test_marks_of_yesterday_go_and_there_are_never_too_many() -> None:
    annotations = some_marks()
    annotations.note_starts([], NOW_S + DAY_S - 25)
    assert [text.split()[0] for text in texts(annotations)] == ["empty", "delete", "tombstone"]
    for _ in range(2 * MOST_ANNOTATIONS):
        annotations.note_action("seek", NOW_S, {"topic": "t", "channel": "c"}, "")
    assert len(texts(annotations)) == MOST_ANNOTATIONS


def test_users_see_marks_of_their_topics_only() -> None:
    shown = annotations_json(some_marks().of("", "", "", ()), lambda topic: topic == "orders")
    assert {row["topic"] for row in shown} == {"orders", ""}


def test_marks_outlast_a_restart_of_nsqadmin() -> None:
    again = Annotations()
    again.load(decode(encode(History(), NOTHING._replace(annotations=some_marks().dump())), History()).annotations)
    again.load([{"time_s": "x"}, 7])  # from a damaged file
    assert texts(again) == texts(some_marks())
    again.note_starts([("a", int(NOW_S) - 60)], NOW_S)
    assert texts(again, node="a") == ["start a"]
