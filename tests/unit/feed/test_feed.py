"""The feed: which pieces a round has, in which order, and who learns of changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.broker.state_files import read_epochs
from nsqd_py.feed.feed import Feed
from nsqd_py.feed.lag import Lag
from nsqd_py.feed.pieces import Commit, Remove, TopicListing, TopicsListed, Write
from tests.support.broker_life import CHANNELS, TOPIC, Life
from tests.support.feed_reader import FeedReader
from tests.unit.fakes import SECOND, FakeThreadPool


@pytest.fixture
def life(directory: Path) -> Life:
    life = Life(directory / "primary", lambda *_: None)
    life.create()
    return life


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "primary").mkdir()
    return tmp_path


def new_feed(life: Life, changes: list[int]) -> Feed:
    feed = Feed(life.broker, life.directory, FakeThreadPool(), {}, lambda: changes.append(1))
    life.broker.listen(feed)
    return feed


def test_a_round_has_logs_then_journals_then_names_that_are_gone(life: Life) -> None:
    feed = new_feed(life, [])
    listed = list(feed.list_files())
    assert [type(piece) for piece in listed[:2]] == [TopicListing, TopicsListed]
    list(feed.round())
    feed.follow()
    consumer = life.consumer("fast", rdy=1)
    life.publish(b"one")
    life.settle()
    consumer.finish(*consumer.take())
    life.pass_time(SECOND)
    life.broker.metadata.persist()
    pieces = list(feed.round())
    assert [piece.name for piece in pieces if isinstance(piece, Write)] == [
        f"{TOPIC}.00000000000000000000.log",
        f"{TOPIC}:fast.cursor",
    ]
    assert [piece.name for piece in pieces if isinstance(piece, Commit)] == ["nsqd.dat"]
    assert b"one" in next(piece.data for piece in pieces if isinstance(piece, Write))
    assert list(feed.round()) == []
    life.end()


def test_a_first_copy_counts_in_bytes_only(life: Life) -> None:
    """A standby that leaves before it has its first copy is not behind by messages."""
    feed = new_feed(life, [])
    life.publish(b"x" * 100)
    list(feed.list_files())
    life.publish(b"x" * 100)
    assert feed.unread().messages == 0
    assert feed.unread().size_bytes > 200
    list(feed.round())
    feed.follow()
    life.publish(b"x" * 100)
    assert feed.unread().messages == 1
    life.end()


def test_the_lag_counts_what_is_unread_and_what_is_unconfirmed(life: Life) -> None:
    """Its age is that of the older one: of the round that is on its way, or of what no round has yet."""
    life.publish(b"first")
    feed = new_feed(life, [])
    list(feed.list_files())
    list(feed.round())
    feed.follow()
    confirmed = feed.amount
    assert feed.lag(confirmed) == Lag()
    life.publish(b"one")
    list(feed.round())
    sent_ns = life.broker.clock()
    size_bytes = feed.amount.size_bytes - confirmed.size_bytes
    life.pass_time(SECOND)
    assert feed.lag(confirmed, sent_ns) == Lag(1, size_bytes, 1000)
    assert feed.lag(feed.amount) == Lag()
    life.publish(b"two")
    life.pass_time(SECOND)
    assert feed.lag(confirmed, sent_ns) == Lag(2, 2 * size_bytes, 2000)
    assert feed.lag(feed.amount) == Lag(1, size_bytes, 1000)
    life.end()


def test_names_that_are_gone_come_last(directory: Path) -> None:
    life = Life(directory / "primary", lambda *_: None, max_bytes_per_file=2_000)
    life.create()
    feed = new_feed(life, [])
    life.publish(b"x" * 1_500)
    list(feed.list_files())
    list(feed.round())
    life.publish(b"y" * 1_500)
    life.publish(b"z" * 1_500)
    for name in CHANNELS:
        life.drain(name)
    life.pass_time(SECOND)
    life.broker.housekeeper.run()
    feed.note_gone_files()
    pieces = list(feed.round())
    first_gone = next(index for index, piece in enumerate(pieces) if isinstance(piece, Remove))
    assert any(isinstance(piece, Write) for piece in pieces[:first_gone])
    assert all(isinstance(piece, Remove) for piece in pieces[first_gone:])
    life.end()


def test_all_followers_learn_of_all_changes_until_they_end(life: Life) -> None:
    counts: list[list[int]] = [[], []]
    one, other = (new_feed(life, changes) for changes in counts)
    assert life.broker.sync.every == 1
    life.publish(b"x")
    assert all(counts)
    assert one.since_ns == other.since_ns > 0
    life.broker.stop_listening(one)
    before = len(counts[0])
    life.publish(b"y")
    assert len(counts[0]) == before < len(counts[1])
    life.broker.stop_listening(other)
    life.broker.stop_listening(other)
    assert life.broker.sync.every == life.broker.sync.sync_every > 1
    life.end()


def test_a_topic_that_is_deleted_and_created_again_while_it_is_read(life: Life, directory: Path) -> None:
    reader = FeedReader(life, directory / "copy")
    life.publish(b"old")
    life.pass_time(SECOND)
    reader.catch_up()
    life.broker.delete_topic(TOPIC)
    life.settle()
    life.create()
    life.publish(b"new")
    life.pass_time(SECOND)
    reader.catch_up()
    life.broker.delete_channel(life.broker.topics[TOPIC], "slow")
    reader.catch_up()
    reader.end()
    life.end()
    again = Life(directory / "copy", lambda *_: None)
    assert [*again.broker.topics[TOPIC].channels] == ["fast"]
    assert again.drain("fast") == [b"new"]
    again.end()


def test_a_topic_that_is_deleted_is_gone_from_the_copy(life: Life, directory: Path) -> None:
    reader = FeedReader(life, directory / "copy")
    life.publish(b"old")
    reader.catch_up()
    life.broker.delete_topic(TOPIC)
    reader.catch_up()
    reader.end()
    life.end()
    assert not list((directory / "copy").glob(f"{TOPIC}*"))
    saved = read_epochs(directory / "copy")
    assert saved is not None
    assert [log.messages for log in saved.ended[TOPIC]] == [1]
    again = Life(directory / "copy", lambda *_: None)
    assert again.broker.topics == {}
    again.end()


def test_a_round_that_cannot_be_read_fails(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not end, and so be taken for one that has everything."""
    feed = new_feed(life, [])
    list(feed.list_files())
    life.publish(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(Feed, "_read", lambda *_: b"")
        with pytest.raises(OSError, match=r"ends at 0, not at \d+"):
            list(feed.round())
    life.end()
