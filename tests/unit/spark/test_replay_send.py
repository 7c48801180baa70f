"""What a Sender does with what nsqd says; nsqd is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from nsq_spark.replay.job import Destination, Job
from nsq_spark.replay.task import TaskResult
from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed, TimedOut
from tests.support.archives import messages
from tests.support.replay import PlayedNsqd, files_of, replayed, write_framed

Verdict = Callable[[str, list[bytes]], NsqClientError | None]


def sent(tmp_path: Path, nsqd: PlayedNsqd, job: Job | None = None, count: int = 50) -> TaskResult:
    path = write_framed(tmp_path / "orders.framed", messages(count))
    destination = Destination(("played:1",), batch_bytes=250)
    job = job or Job((str(path),), destination=destination, give_up_after_s=5)
    results = replayed(job, files_of(path), nsqd, slice_bytes=1 << 20)
    assert len(results) == 1
    return results[0]


def bodies(count: int = 50) -> list[bytes]:
    return [message.body for message in messages(count)]


def fails(times: int, error: NsqClientError) -> Verdict:
    left = [times]

    def verdict(topic: str, some: list[bytes]) -> NsqClientError | None:
        left[0] -= 1
        return error if left[0] >= 0 else None

    return verdict


def test_all_is_sent_in_batches_that_are_not_too_large(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    sizes: list[int] = []
    nsqd.verdict = lambda topic, some: sizes.append(4 + sum(4 + len(body) for body in some))
    result = sent(tmp_path, nsqd)
    assert nsqd.bodies == bodies()
    assert max(sizes) <= 250
    assert (result.matched, result.counts.messages, result.failed) == (50, 50, 0)
    assert result.counts.size_bytes == sum(map(len, bodies()))
    assert result.counts.topics == {"orders": 50}


@pytest.mark.parametrize(
    "error",
    [
        PublishFailed("played:1", "E_MPUB_FAILED", "disk full"),
        NoNsqd("none"),
        ConnectionLost("played:1", "gone"),
        TimedOut("played:1", "slow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_tried_again(tmp_path: Path, error: NsqClientError) -> None:
    nsqd = PlayedNsqd()
    nsqd.verdict = fails(3, error)
    result = sent(tmp_path, nsqd)
    assert sorted(nsqd.bodies) == bodies()
    assert result.error == ""
    is_unknown = isinstance(error, ConnectionLost | TimedOut)
    assert (result.counts.possible_duplicates > 0) is is_unknown


def test_an_nsqd_that_ends_before_it_answers_a_batch(tmp_path: Path) -> None:
    """What may be there twice is not more than ten times what is."""
    nsqd = PlayedNsqd()
    calls = iter(range(1000))

    def verdict(topic: str, some: list[bytes]) -> NsqClientError | None:
        if next(calls) != 3:
            return None
        nsqd.stored += [(topic, body) for body in some]
        return ConnectionLost("played:1", "killed")

    nsqd.verdict = verdict
    result = sent(tmp_path, nsqd, count=1000)
    assert nsqd.counts().keys() == set(bodies(1000))
    twice = len(nsqd.stored) - 1000
    assert 0 < twice <= result.counts.possible_duplicates <= 10 * twice


def test_what_does_not_pass_ends_the_task_in_time(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    nsqd.verdict = lambda topic, some: NoNsqd("played:1: connection refused")
    job = Job(("x",), destination=Destination(("played:1",)), give_up_after_s=0.3)
    result = sent(tmp_path, nsqd, job)
    assert "not published in 0.3s" in result.error and "connection refused" in result.error
    assert result.counts.messages == 0


def test_what_will_always_be_refused_ends_the_task_at_once(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    nsqd.verdict = lambda topic, some: PublishFailed("played:1", "E_BAD_TOPIC", "no")
    result = sent(tmp_path, nsqd)
    assert "E_BAD_TOPIC" in result.error and "played:1" in result.error


def test_batches_that_are_too_large_are_cut_and_a_message_that_is_fails_alone(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    refused = bodies()[17]

    def verdict(topic: str, some: list[bytes]) -> NsqClientError | None:
        if len(some) > 3:
            return PublishFailed("played:1", "E_BAD_BODY", "MPUB body too big")
        if refused in some:
            return PublishFailed("played:1", "E_BAD_MESSAGE", "MPUB message too big")
        return None

    nsqd.verdict = verdict
    result = sent(tmp_path, nsqd)
    assert sorted(nsqd.bodies) == sorted(set(bodies()) - {refused})
    assert (result.counts.messages, result.failed, result.error) == (49, 1, "")
    assert "orders.framed, a message of 20 bytes: " in result.failures[0]


def test_a_deferred_message_is_a_command(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    job = Job(("x",), destination=Destination(("played:1",), defer_s=5))
    nsqd.verdict = fails(1, NoNsqd("none"))
    assert sent(tmp_path, nsqd, job).counts.messages == 50
    assert set(nsqd.bodies) == set(bodies())
    assert nsqd.acknowledged_publishes >= 50


def test_topics_get_their_new_names(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    destination = Destination(("played:1",), topic_map=(("orders", "orders_again"),), to_topic="other")
    sent(tmp_path, nsqd, Job(("x",), destination=destination))
    assert {topic for topic, _ in nsqd.stored} == {"orders_again"}
    assert replace(destination, topic_map=()).topic("orders") == "other"
