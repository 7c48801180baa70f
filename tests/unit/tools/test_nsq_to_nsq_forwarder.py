"""What becomes of a batch in nsq-to-nsq, with destinations in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from nsq_tools.hosts import HOSTPOOL, ROUND_ROBIN, HostShares, Timings
from nsq_tools.nsq_to_nsq.forwarder import MAX_GROUP_BYTES, MAX_INCOMPLETE_ATTEMPTS, Forwarder, JsonFilter, PublishGroup
from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.runtime.logs import FATAL, Log

NO_RULES = JsonFilter("", "", ())
OnDone = Callable[[NsqClientError | None], object]
SILENT = Log("", FATAL)


@dataclass
class Batch:
    """Messages whose ids are their bodies' first letters; it keeps how each is answered, and allows one answer."""

    bodies: Sequence[bytes]
    attempt: int = 1
    answers: dict[bytes, str] = field(default_factory=dict)

    @property
    def ids(self) -> list[bytes]:
        return [body[:1] for body in self.bodies]

    @property
    def attempts(self) -> list[int]:
        return [self.attempt] * len(self.bodies)

    def finish_some(self, ids: Collection[bytes]) -> None:
        self._answer(ids, "finished")

    def requeue(self, delay_s: float | None, ids: Collection[bytes], *, backoff: bool) -> None:
        assert (delay_s, backoff) == (None, True)
        self._answer(ids, "requeued")

    def _answer(self, ids: Collection[bytes], answer: str) -> None:
        assert not self.answers.keys() & set(ids)
        self.answers.update(dict.fromkeys(ids, answer))


class Destination:
    """Takes everything, until it is notified which error to answer, to whom."""

    def __init__(self) -> None:
        self.published: list[list[bytes]] = []
        self.topics: set[str] = set()
        self.error: NsqClientError | None = None
        self.dislikes: Collection[bytes] = ()
        self.hangs = self.is_closed = False
        self.unanswered: list[OnDone] = []

    def multi_publish_soon(self, topic: str, bodies: list[bytes], on_done: OnDone) -> None:
        self.topics.add(topic)
        if self.is_closed:
            raise NoNsqd("closed")
        if self.hangs:
            self.unanswered.append(on_done)
        elif self.error is not None and (not self.dislikes or set(self.dislikes) & set(bodies)):
            on_done(self.error)
        else:
            self.published.append(bodies)
            on_done(None)


class Setting:
    """A forwarder between batches and two destinations."""

    def __init__(self, rules: JsonFilter = NO_RULES, *, pool: bool = False, total: int = 100) -> None:
        self.a, self.b = Destination(), Destination()
        self.now_s = 0.0
        names = ("a", "b")
        self.forwarder = Forwarder(
            {"a": self.a, "b": self.b},
            HostShares(HOSTPOOL if pool else ROUND_ROBIN, names, total, Random()),
            rules,
            Timings(names, 0, SILENT),
            SILENT,
            lambda: self.now_s,
        )

    def forward(self, *bodies: bytes, attempt: int = 1) -> dict[bytes, str]:
        """How each was answered, by its first letter."""
        batch: Any = Batch(bodies, attempt)
        self.forwarder.handle("t", batch)
        self.forwarder.join(40)
        answers: dict[bytes, str] = batch.answers
        return answers


FINISHED = {b"1": "finished", b"2": "finished", b"3": "finished"}
REQUEUED = dict.fromkeys(FINISHED, "requeued")
LOST = ConnectionLost("a", "gone")
BAD = PublishFailed("a", "E_BAD_MESSAGE", "MPUB message too big")


@pytest.fixture
def setting() -> Setting:
    return Setting()


# ---- the good case


def test_a_batch_is_shared_out_and_finished(setting: Setting) -> None:
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert (setting.a.published, setting.b.published) == ([[b"1", b"2"]], [[b"3"]])
    assert setting.a.topics == {"t"}


def test_nothing_is_finished_before_it_is_stored(setting: Setting) -> None:
    setting.a.hangs = True
    batch: Any = Batch([b"1", b"2", b"3"])
    setting.forwarder.handle("t", batch)
    assert batch.answers == {b"3": "finished"}
    setting.a.unanswered.pop()(None)
    assert batch.answers == FINISHED


def test_a_message_that_is_in_a_batch_twice_is_sent_once(setting: Setting) -> None:
    assert setting.forward(b"1", b"1") == {b"1": "finished"}
    assert setting.a.published + setting.b.published == [[b"1"]]


# ---- what goes wrong


def test_what_one_does_not_store_goes_to_the_other(setting: Setting) -> None:
    setting.a.error = LOST
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert sorted(setting.b.published) == [[b"1", b"2"], [b"3"]]


def test_what_none_stores_is_requeued(setting: Setting) -> None:
    setting.a.error = setting.b.error = LOST
    assert setting.forward(b"1", b"2", b"3") == REQUEUED


def test_what_one_does_not_even_begin_to_send_goes_to_the_other(setting: Setting) -> None:
    setting.a.is_closed = True
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert setting.a.published == []


def test_only_the_message_that_is_refused_is_requeued(setting: Setting) -> None:
    setting.a.error, setting.a.dislikes = BAD, {b"3"}
    assert setting.forward(*(b"%d" % number for number in range(1, 9))) == {
        b"%d" % number: "requeued" if number == 3 else "finished" for number in range(1, 9)
    }
    assert sorted(body for bodies in setting.a.published for body in bodies) == [b"1", b"2", b"4"]


def test_a_destination_that_refuses_a_message_is_no_bad_destination() -> None:
    setting = Setting(pool=True)
    setting.a.error, setting.a.dislikes = BAD, {b"1"}
    assert setting.forward(b"1", b"2") == {b"1": "requeued", b"2": "finished"}
    assert setting.forward(b"3", b"4") == {b"3": "finished", b"4": "finished"}
    assert setting.a.published == [[b"3"]]


def test_a_destination_that_fails_gets_nothing_for_a_while() -> None:
    setting = Setting(pool=True)
    setting.a.error = LOST
    setting.forward(b"1", b"2", b"3")
    setting.a.error = None
    setting.now_s = 1.0
    setting.forward(b"1", b"2", b"3")
    assert setting.a.published == []
    setting.now_s = 31.0
    setting.forward(b"1", b"2", b"3")
    # One, to see; the others of the batch could not wait for what comes of it.
    assert setting.a.published == [[b"1"]]


def test_what_finds_no_second_destination_is_requeued_and_not_forgotten() -> None:
    """The only other one is due for a try, with one message."""
    setting = Setting(pool=True)
    setting.b.error = LOST
    setting.forward(b"1", b"2")
    setting.now_s = 31.0
    setting.a.hangs = True
    batch: Any = Batch([b"1", b"2", b"3", b"4"])
    setting.forwarder.handle("t", batch)
    setting.b.error = None
    setting.now_s = 100.0
    for on_done in setting.a.unanswered:
        on_done(LOST)
    setting.forwarder.join(40)
    assert len(batch.answers) == 4
    assert "requeued" in batch.answers.values()


def test_at_the_end_nothing_is_tried_again(setting: Setting) -> None:
    setting.a.error = LOST
    setting.forwarder.stop_retrying()
    assert setting.forward(b"1", b"2", b"3") == {b"1": "requeued", b"2": "requeued", b"3": "finished"}


# ---- filters


def test_what_does_not_pass_is_finished_and_not_sent() -> None:
    setting = Setting(JsonFilter("a", "1", ("b",)))
    passes, fails, unreadable = b'{"a":1,"b":2,"c":3}', b' {"a":2}', b"x"
    assert set(setting.forward(passes, fails, unreadable).values()) == {"finished"}
    assert setting.a.published == [[b'{"b":2}']]
    assert setting.b.published == []


def test_what_lacks_the_field_to_compare_is_requeued_some_times_and_then_finished() -> None:
    setting = Setting(JsonFilter("a", "1", ()))
    assert setting.forward(b"{}", attempt=MAX_INCOMPLETE_ATTEMPTS) == {b"{": "requeued"}
    assert setting.forward(b"{}", attempt=MAX_INCOMPLETE_ATTEMPTS + 1) == {b"{": "finished"}
    assert setting.a.published == setting.b.published == []


# ---- portions


def sizes(*bodies: bytes) -> list[int]:
    batch: Any = None
    group = PublishGroup(batch, "t", [b"%d" % number for number in range(len(bodies))], bodies, 0.0)
    parts = list(group.publishable())
    assert [message_id for part in parts for message_id in part.ids] == list(group.ids)
    assert [body for part in parts for body in part.bodies] == list(bodies)
    return list(map(len, parts))


def test_portions_are_cut_where_they_would_be_too_large() -> None:
    half = bytes(MAX_GROUP_BYTES // 2)
    assert sizes(b"x") == [1]
    assert sizes(half, half) == [2]
    assert sizes(half, half, b"x") == [2, 1]
    assert sizes(half + b"x", half, half) == [1, 2]
    assert sizes(bytes(2 * MAX_GROUP_BYTES)) == [1]
    assert sizes(b"x", bytes(2 * MAX_GROUP_BYTES), b"x") == [1, 1, 1]
