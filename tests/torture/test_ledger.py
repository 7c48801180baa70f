"""The model of the torture test can find fault."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.ledger import (
    FOREVER_NS,
    WRITTEN_AFTER_NS,
    ChannelLedger,
    Fate,
    Finish,
    Lives,
    Published,
    TopicLedger,
)
from tests.support.nsqd_process import HTTPAnswer, NsqdProcess
from tests.support.operations import OPERATIONS, end_cuts, plan
from tests.support.wire import Message

MESSAGE_ID = b"0" * 16


class Story:
    """A topic with one channel, told in steps of a second. Times are in seconds here."""

    def __init__(self) -> None:
        self.now_s = 1
        self.lives = Lives()
        self.topic = TopicLedger("t", ["c"], self.lives)
        self.channel: ChannelLedger = self.topic.channels["c"]

    @property
    def now_ns(self) -> int:
        self.now_s += 1
        return self.now_s * 10**9

    def publish(self, *, is_answered: bool = True, count: int = 1) -> list[bytes]:
        batch = self.topic.publishing(count, self.now_ns)
        if is_answered:
            self.answer(batch)
        return list(batch)

    def answer(self, batch: dict[bytes, Published]) -> None:
        answered_ns = self.now_ns
        for published in batch.values():
            published.answered_ns = answered_ns

    def deliver(self, body: bytes, attempts: int = 1, message_id: bytes = MESSAGE_ID) -> Message:
        message = Message(1, attempts, message_id, body)
        self.channel.delivered(message, self.now_ns)
        return message

    def finish(self, body: bytes) -> None:
        """Delivered, finished, and known to be."""
        self.deliver(body)
        self.channel.finish(body, self.now_ns).processed_ns = self.now_ns

    def cut(self, *, is_answered: bool = True, **kind: int | bool) -> None:
        cut = self.channel.begin_cut(self.now_ns, **kind)
        cut.end_ns, cut.is_answered = self.now_ns, is_answered

    def die(self) -> None:
        self.lives.end(self.now_ns + WRITTEN_AFTER_NS)
        self.lives.begin()

    def fate(self, body: bytes) -> Fate:
        return self.channel.fate(self.topic.messages[body])


@pytest.fixture
def story() -> Story:
    return Story()


def test_what_was_answered_and_never_came_is_lost(story: Story) -> None:
    (body,) = story.publish()
    story.publish(is_answered=False)
    assert story.channel.lost() == [body[:9]]
    story.finish(body)
    assert story.channel.lost() == []


def test_a_fin_that_was_refused_is_none(story: Story) -> None:
    (body,) = story.publish()
    story.finish(body)
    story.channel.refused(body)
    assert story.channel.lost() == [body[:9]]


def deliver_again_with_a_fin_under_way(story: Story, body: bytes) -> Finish:
    """Deliver a message, send its FIN, and deliver it again after a seek: the FIN may belong to either delivery."""
    story.deliver(body)
    finish = story.channel.finish(body, story.now_ns)
    story.cut(before_ns=0, revives=True)
    story.deliver(body)
    return finish


def test_a_fin_under_way_may_finish_what_came_again(story: Story) -> None:
    (body,) = story.publish()
    deliver_again_with_a_fin_under_way(story, body)
    assert story.channel.lost() == []
    story.cut(before_ns=0, revives=True)
    assert story.channel.lost() == [body[:9]]


def test_a_fin_that_was_processed_finishes_nothing_that_comes_later(story: Story) -> None:
    (body,) = story.publish()
    story.finish(body)
    story.cut(before_ns=0, revives=True)
    story.deliver(body)
    assert story.channel.lost() == [body[:9]]


def test_a_fin_under_way_that_was_refused_finishes_nothing(story: Story) -> None:
    (body,) = story.publish()
    deliver_again_with_a_fin_under_way(story, body)
    story.channel.refused(body)
    assert story.channel.lost() == [body[:9]]


@pytest.mark.parametrize("dies", [False, True])
def test_a_fin_under_way_finishes_nothing_once_it_is_over(story: Story, dies: bool) -> None:
    (body,) = story.publish()
    finish = deliver_again_with_a_fin_under_way(story, body)
    if dies:
        story.die()
    else:
        finish.processed_ns = story.now_ns
    story.deliver(body)
    assert story.channel.lost() == [body[:9]]
    assert story.channel.wrong == []


def test_what_was_finished_long_ago_must_not_come_again(story: Story) -> None:
    (body,) = story.publish()
    story.finish(body)
    story.die()
    story.deliver(body)
    assert story.channel.doubled_count == 1
    assert "came again long after it was finished" in story.channel.wrong[0]


def test_what_was_finished_at_the_last_moment_may_come_again(story: Story) -> None:
    (body,) = story.publish()
    story.deliver(body)
    story.channel.finish(body, story.now_ns)
    story.die()
    story.deliver(body)
    assert (story.channel.doubled_count, story.channel.wrong) == (1, [])
    assert story.channel.lost() == [body[:9]]


def test_attempts_and_delays_must_not_be_forgotten(story: Story) -> None:
    (body,) = story.publish()
    message = story.deliver(body, attempts=2)
    story.channel.requeue(message, story.now_ns + 10**12).processed_ns = story.now_ns
    story.die()
    story.deliver(body, attempts=2)
    assert ["forgot attempts" in text or "requeue delay" in text for text in story.channel.wrong] == [True, True]


def test_another_id_and_a_message_that_nobody_published(story: Story) -> None:
    (body,) = story.publish()
    story.deliver(body)
    story.deliver(body, message_id=b"1" * 16)
    story.deliver(b"what is this")
    assert len(story.channel.wrong) == 2


def test_a_part_of_a_batch_that_was_not_answered_is_torn(story: Story) -> None:
    first, *_ = story.publish(is_answered=False, count=3)
    assert story.channel.torn_groups() == []
    story.deliver(first)
    assert story.channel.torn_groups() == [0]


# ---- cuts

CUTS: dict[str, tuple[Callable[[Story], None], Fate]] = {
    "emptied": (lambda story: story.cut(), Fate.GONE),
    "perhaps emptied": (lambda story: story.cut(is_answered=False), Fate.MAY_COME),
    "emptied, but it was in the channel": (lambda story: story.cut(spares_until_ns=2**62), Fate.MUST_COME),
    "emptied, and perhaps it was in the channel": (lambda story: story.cut(takes_from_ns=2**62), Fate.MAY_COME),
    "gone back to the earliest": (lambda story: story.cut(before_ns=0, revives=True), Fate.MUST_COME),
    "gone on to the latest": (lambda story: story.cut(revives=True), Fate.MAY_COME),
    "emptied and gone back": (
        lambda story: [story.cut(), story.cut(before_ns=0, revives=True)][0], Fate.MUST_COME,
    ),
    "emptied and perhaps gone back": (
        lambda story: [story.cut(), story.cut(before_ns=0, revives=True, is_answered=False)][0], Fate.MAY_COME,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_what_a_cut_does(story: Story, name: str) -> None:
    (body,) = story.publish()
    do, fate = CUTS[name]
    do(story)
    (later,) = story.publish()
    assert (story.fate(body), story.fate(later)) == (fate, Fate.MUST_COME)


def test_a_publish_beside_a_cut_may_be_on_either_side(story: Story) -> None:
    batch = story.topic.publishing(1, story.now_ns)
    story.cut()
    story.answer(batch)
    assert story.fate(next(iter(batch))) is Fate.MAY_COME


def test_what_was_emptied_must_not_come_in_a_later_life(story: Story) -> None:
    (body,) = story.publish()
    story.cut()
    story.deliver(body)  # it was on its way
    assert story.channel.wrong == []
    story.die()
    story.deliver(body)
    assert "came although it was emptied" in story.channel.wrong[0]


def test_what_was_finished_comes_again_after_going_back(story: Story) -> None:
    (body,) = story.publish()
    story.finish(body)
    story.cut(before_ns=0, revives=True)
    assert story.channel.lost() == [body[:9]]
    story.deliver(body)
    assert story.channel.wrong == []


def test_the_end_of_cuts_that_were_not_answered(story: Story) -> None:
    cut = story.channel.begin_cut(story.now_ns)
    end_cuts([cut], is_answered=False)
    assert not cut.is_answered
    assert cut.end_ns > cut.start_ns


class DeadNsqd(NsqdProcess):
    """An nsqd that answers nothing."""

    def __init__(self) -> None:
        pass

    def post(self, path: str, body: bytes = b"") -> HTTPAnswer:
        raise ConnectionRefusedError


def test_a_pause_goes_on_when_nobody_answers_what_would_end_it() -> None:
    (topic,) = plan(Lives(), (("t", 1, ("pause the topic",)),))
    topic.paused[""], topic.paused_since_ns = {True}, (10, 20)
    for _ in range(2):  # an unpause, then a pause
        with pytest.raises(ConnectionRefusedError):
            OPERATIONS["pause the topic"](DeadNsqd(), topic, random.Random(0))
    assert topic.paused[""] == {True, False}
    assert topic.paused_since_ns == (10, FOREVER_NS)
