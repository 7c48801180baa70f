"""What a primary does with a standby that acknowledges nothing, and with one that is in its in-sync set twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from gevent.event import Event

from nsqd_py.broker.disk.journal_writer import JournalWriter
from nsqd_py.errors import Invalid
from nsqd_py.feed.codec import FileMessage
from nsqd_py.settings.kinds import ByTopic
from nsqd_py.standby.messages import ROUND, GroupMember, Round, decode
from nsqd_py.standby.primary import Standbys
from nsqd_py.standby.stream import StandbyStream
from tests.support.broker_life import CHANNELS, TOPIC, Life
from tests.support.nsqd_process import wait_until
from tests.support.standby_link import StandbyLink, replay
from tests.unit.fakes import SECOND, FakeConsumer, FakeThreadPool, Received

TIMEOUT = {"standby_timeout_ns": SECOND, "standby_on_timeout": "refuse"}


def begin(tmp_path: Path, *copies: str, election: Any = None, **options: Any) -> tuple[Life, Standbys]:
    """A primary in `primary` with a topic for dead letters, whose log comes first; the copies are made for standbys."""
    for name in ("primary", *copies):
        (tmp_path / name).mkdir()
    life = Life(tmp_path / "primary", lambda *_: None, **{"lease": "", "standby_acks": 0} | TIMEOUT | options)
    life.broker.get_topic(f"{TOPIC}.dead").is_started = True
    life.create()
    replication = Standbys(life.broker, tmp_path / "primary", FakeThreadPool(), election=election)
    life.broker.additions.take_role(replication)
    return life, replication


def wait_for_round(life: Life, *links: StandbyLink) -> None:
    while not all(link.last_round for link in links):
        life.settle()


def before_each_frame(link: StandbyLink, act: Callable[[bytes], object]) -> None:
    send = link.send

    def act_and_send(frame: bytes) -> None:
        act(frame)
        send(frame)

    link.send = act_and_send  # type: ignore[method-assign]


def move(life: Life, consumer: FakeConsumer, message: Received) -> None:
    """Once, to the topic of dead letters."""
    if message.id in consumer.in_flight:
        consumer.requeue(message)
        life.world.run()
        life.broker.journals.save_now(life.broker.topics[TOPIC])


def life_after_first_round(sent: list[bytes | None], path: Path) -> Life:
    """A broker on the copy that the first round makes."""
    first_round = next(
        end for end, data in enumerate(sent, 1) if data is not None and isinstance(decode(data), Round)
    )
    return life_after(sent[:first_round], path)


def life_after(sent: list[bytes | None], path: Path) -> Life:
    path.mkdir()
    replay(sent, path)
    return Life(path, lambda *_: None)


def test_a_member_that_acknowledges_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one line in the log; one that acknowledges its rounds stays."""
    life, replication = begin(tmp_path, "0", "1")
    closed = []
    links = []
    for number, acknowledges in enumerate((True, False)):
        link = StandbyLink(replication, tmp_path / str(number), [])
        link.acknowledges = acknowledges
        link.close = lambda reason, link=link: (closed.append(reason), link.end())  # type: ignore[method-assign]
        links.append(link.connect())
    wait_for_round(life, *links)
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(StandbyStream, "tick", None)  # a bug that ends one round of checks
        life.pass_time(SECOND)
    passed_s = 1
    while not closed and passed_s < 60:
        life.pass_time(SECOND)
        passed_s += 1
    assert passed_s > 30
    assert closed == ["no ACK in time"]
    assert (links[0].closed, links[1].closed) == (False, True)
    assert sum("no ACK for 30 s" in line for line in life.broker.log.warnings) == 1
    life.end()


def test_no_round_follows_one_that_could_not_be_read(tmp_path: Path) -> None:
    """The standby would acknowledge what it does not have."""
    life, replication = begin(tmp_path, "standby", standby_acks=1)
    closed = []
    link = StandbyLink(replication, tmp_path / "standby", []).connect()
    wait_for_round(life, link)
    link.close = lambda reason: (closed.append(reason), link.end())  # type: ignore[method-assign]

    before_each_frame(link, Mock(side_effect=OSError("bad disk")))
    publisher = life.publish(b"first")
    wait_until(lambda: life.settle() or closed, what="the end of the connection")  # type: ignore[func-returns-value]
    assert closed == ["failed to read what the standby needs - bad disk"]
    assert publisher.holds == 1
    life.end()


def test_a_data_path_has_one_connection_and_is_not_a_copy_of_another(tmp_path: Path) -> None:
    own, other = GroupMember("1", "a:4150"), GroupMember("2", "b:4150")
    election = SimpleNamespace(member=own, write_members=lambda _: True)
    life, replication = begin(tmp_path, "a", "b", election=election, lease="etcd://a:1/b", standby_acks=1)

    def link(name: str, member: GroupMember | None) -> StandbyLink:
        made = StandbyLink(replication, tmp_path / name, [])
        made.copy.member = member
        made.close = lambda reason: made.end()  # type: ignore[method-assign]
        return made

    first = link("a", other).connect()
    second = link("a", GroupMember("2", "c:4150")).connect()
    assert (first.closed, second.closed) == (True, False)
    for member, reason in ((own, "nsqd.member is a copy of mine"), (None, "you have none")):
        with pytest.raises(Invalid, match=reason):
            link("b", member).connect()
    life.end()


def test_a_backup_has_a_message_that_moves_while_it_is_made(tmp_path: Path) -> None:
    """The log of dead letters is sent before that message gets there, and the journal that says so after that."""
    life, replication = begin(tmp_path, "backup", max_attempts=ByTopic(1))
    life.publish(b"poison")
    consumer = life.consumer("fast", rdy=1)
    life.settle()
    (poison,) = consumer.take()
    link = StandbyLink(replication, tmp_path / "backup", [], is_backup=True)

    before_each_frame(link, lambda frame: poison.body in frame and move(life, consumer, poison))
    link.connect()
    while not link.is_over:
        life.settle()
    link.end()
    life.end()
    again = Life(tmp_path / "backup", lambda *_: None)
    assert [again.broker.topics[name].next_seq for name in (TOPIC, f"{TOPIC}.dead")] == [1, 1]
    assert again.drain("fast") == []
    again.end()


def test_a_backup_ends_with_journals_that_are_as_new_as_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that comes and goes between its rounds is in neither: without the journal, its messages would count as lost."""
    life, replication = begin(tmp_path, "backup", max_bytes_per_file=2_000)
    life.publish(b"first")
    consumers = [life.consumer(name, rdy=9) for name in CHANNELS]
    link = StandbyLink(replication, tmp_path / "backup", [], is_backup=True)
    at_end = Event()
    has_changed = Event()

    def wait_at_end(frame: bytes) -> None:
        if frame[8] == ROUND and not at_end.is_set():
            at_end.set()
            has_changed.wait()

    before_each_frame(link, wait_at_end)
    link.connect()
    while not at_end.is_set():
        life.settle()
    for number in range(4):
        life.publish(b"%d" % number * 1_500)
    life.settle()
    for consumer in consumers:
        received = consumer.take()
        assert len(received) == 5
        consumer.finish(*received)
    life.pass_time(SECOND // 4)
    life.broker.housekeeper.run()
    assert life.broker.topics[TOPIC].log.first_seq > 1
    writes = iter((True, True, True))
    monkeypatch.setattr(JournalWriter, "is_writing", property(lambda _: next(writes, False)))
    has_changed.set()
    while not link.is_over:
        life.settle()
    link.end()
    monkeypatch.undo()
    life.end()
    again = Life(tmp_path / "backup", lambda *_: None)
    topic = again.broker.topics[TOPIC]
    assert [channel.distributor.lost_count for channel in topic.channels.values()] == [0, 0]
    assert topic.log.damage.missing_count == 0
    assert [again.drain(name) for name in CHANNELS] == [[], []]
    again.end()


def test_wherever_the_stream_ends_a_standby_has_a_message_that_moves(tmp_path: Path) -> None:
    """In a round that sent the log of dead letters before the message gets there, and sends the journals after that."""
    life, replication = begin(tmp_path, "standby", max_attempts=ByTopic(1))
    life.publish(b"poison")
    life.publish(b"other")
    consumer = life.consumer("fast", rdy=2)
    life.settle()
    poison, other = sorted(consumer.take(), key=lambda message: message.body, reverse=True)
    sent = []
    link = StandbyLink(replication, tmp_path / "standby", sent).connect()
    wait_for_round(life, link)
    complete = len(sent)

    before_each_frame(link, lambda frame: b"trigger" in frame and move(life, consumer, poison))
    consumer.finish(other)
    life.world.pass_time(SECOND)  # its journal is written, and is in the same round
    life.publish(b"trigger")
    while b"poison" not in b"".join(data or b"" for data in sent[complete:]):
        life.settle()
    life.settle()
    link.end()
    life.end()
    for end in range(complete, len(sent) + 1):
        promoted = life_after(sent[:end], tmp_path / str(end))
        dead = promoted.broker.topics[f"{TOPIC}.dead"].next_seq
        assert b"poison" in promoted.drain("fast") or dead == 1, end
        promoted.end()


@pytest.mark.parametrize("is_backup", [False, True])
def test_the_first_round_has_a_journal_that_is_replaced_while_it_is_sent(
    tmp_path: Path, *, is_backup: bool
) -> None:
    life, replication = begin(tmp_path, "copy")
    life.publish(b"finished")
    for name in CHANNELS:
        assert life.drain(name) == [b"finished"]
    life.pass_time(SECOND)
    sent = []
    link = StandbyLink(replication, tmp_path / "copy", sent, is_backup=is_backup)
    channels = dict(life.broker.topics[TOPIC].channels)

    def replace(frame: bytes) -> None:
        for name in [name for name in channels if b".cursor" in frame and f":{name}.".encode() not in frame]:
            channel = channels.pop(name)
            before = channel.journal.version
            channel.save_snapshot()
            assert channel.journal.version != before

    before_each_frame(link, replace)
    wait_for_round(life, link.connect())
    link.end()
    life.end()
    again = life_after_first_round(sent, tmp_path / "first")
    assert [again.drain(name) for name in CHANNELS] == [[], []]
    again.end()


def test_the_first_round_has_a_message_that_moves_to_a_file_that_it_has_sent(tmp_path: Path) -> None:
    life, replication = begin(tmp_path, "copy", max_bytes_per_file=2_000)
    bodies = [b"%02d" % number * 50 for number in range(30)]
    for body in bodies:
        life.publish(body)
    life.drain("slow")
    consumer = life.consumer("fast", rdy=len(bodies))
    life.settle()
    received = consumer.take()
    log, housekeeper = life.broker.topics[TOPIC].log, life.broker.housekeeper
    first, second = log.files[:2]
    consumer.finish(*received[: first.end_seq - 1])
    life.pass_time(SECOND)
    housekeeper.run()  # the last message of the first file is alone in it now
    consumer.finish(*received[first.end_seq : second.end_seq - 1])
    life.pass_time(SECOND)
    sent = []
    link = StandbyLink(replication, tmp_path / "copy", sent).connect()

    def move(frame: bytes) -> None:
        message = decode(frame[8:])
        if (
            second in log.files
            and isinstance(message, FileMessage)
            and message.name == log.files[0].path.name
        ):
            housekeeper.run()
            assert log.files[0].end_seq == second.end_seq and second not in log.files

    before_each_frame(link, move)
    wait_for_round(life, link)
    link.end()
    life.end()
    again = life_after_first_round(sent, tmp_path / "first")
    assert again.drain("fast") == [bodies[first.end_seq - 1], *bodies[second.end_seq - 1 :]]
    again.end()
