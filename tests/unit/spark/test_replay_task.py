"""What a Sender does with what nsqd says; nsqd is played."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")

from nsq_spark.replay.checkpoint.directory import open_checkpoint
from nsq_spark.replay.job import Destination, Job
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.pace import Pace
from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed, TimedOut
from tests.support.archives import BASE_NS, messages
from tests.support.replay import PlayedNsqd, files_of, replayed, write_framed

Verdict = Callable[[str, list[bytes]], NsqClientError | None]


def sent(tmp_path: Path, nsqd: PlayedNsqd, job: Job | None = None, count: int = 50) -> Outcome:
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
    assert result.errors == []
    is_unknown = not isinstance(error, NoNsqd)
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


@pytest.mark.parametrize("defer_s", [0.0, 1.0], ids=["MPUB", "DPUB"])
def test_an_nsqd_that_stores_what_it_refuses(tmp_path: Path, defer_s: float) -> None:
    """Its bucket does not answer in time: each copy is counted as a possible one."""
    nsqd = PlayedNsqd()
    calls = iter(range(1000))

    def verdict(topic: str, some: list[bytes]) -> NsqClientError | None:
        if next(calls) >= 5:
            return None
        nsqd.stored += [(topic, body) for body in some]
        return PublishFailed("played:1", "E_MPUB_FAILED", "the store did not take a message in time")

    nsqd.verdict = verdict
    job = Job(("x",), destination=Destination(("played:1",), batch_bytes=250, defer_s=defer_s))
    result = sent(tmp_path, nsqd, job)
    assert nsqd.counts().keys() == set(bodies())
    assert 0 < len(nsqd.stored) - 50 <= result.counts.possible_duplicates


def test_what_does_not_pass_ends_the_task_in_time(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    nsqd.verdict = lambda topic, some: NoNsqd("played:1: connection refused")
    job = Job(("x",), destination=Destination(("played:1",)), give_up_after_s=0.3)
    result = sent(tmp_path, nsqd, job)
    assert "not published in 0.3s" in result.errors[0] and "connection refused" in result.errors[0]
    assert result.counts.messages == 0


def test_what_will_always_be_refused_ends_the_task_at_once(tmp_path: Path) -> None:
    nsqd = PlayedNsqd()
    nsqd.verdict = lambda topic, some: PublishFailed("played:1", "E_BAD_TOPIC", "no")
    result = sent(tmp_path, nsqd)
    assert "E_BAD_TOPIC" in result.errors[0] and "played:1" in result.errors[0]


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
    assert (result.counts.messages, result.failed, result.is_failed) == (49, 1, False)
    assert "orders.framed, a message of 20 bytes: " in result.errors[0]


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


# ---- the pace of a replay, with a clock that is moved by hand

SECOND_NS = 1_000_000_000


def sent_in(pace: Pace, seconds: float, times_ns: list[int] | None = None, left: int = 10**9) -> int:
    """How many leave when somebody sends all he may, and waits as long as he is notified."""
    now_s, count = 0.0, 0
    times = None if times_ns is None else np.array(times_ns)
    while left:
        rest = np.broadcast_to(0, left) if times is None else times[count : count + left]
        ready = pace.take(rest, now_s)
        count += ready
        left -= ready
        if left and not ready:
            wait_s = pace.wait_s(rest, now_s)
            assert wait_s > 0
            now_s += wait_s
            if now_s > seconds:
                break
    return count


@pytest.mark.parametrize("rate", [0.5, 1.0, 7.0, 1000.0, 2_500_000.0])
def test_a_rate_is_kept(rate: float) -> None:
    assert sent_in(Pace(rate).begin(0.0), 20.0) == pytest.approx(20 * rate, abs=1 + rate * 0.1)


def test_a_rate_makes_up_for_no_long_stop() -> None:
    bucket = Pace(1000.0).begin(0.0)
    assert bucket.take(np.zeros(10**6), 3600.0) == 100


def test_the_gaps_of_the_archive_are_kept() -> None:
    pace = Pace(speed=1.0, origin_ns=500).begin(0.0)
    times = np.array([500, 500 + SECOND_NS, 500 + 3 * SECOND_NS])
    assert pace.take(times, 10.0) == 1
    assert pace.wait_s(times[1:], 10.0) == pytest.approx(1.0, abs=0.01)
    assert pace.take(times[1:], 10.9) == 0
    assert pace.take(times[1:], 11.0) == 1
    assert pace.take(times[2:], 13.0) == 1


def test_the_clock_starts_when_the_first_message_is_ready() -> None:
    """A sort took an hour: nothing leaves at once for that, also if another topic has the first message."""
    pace = Pace(speed=2.0, origin_ns=0).begin(0.0)
    times = np.array([10 * SECOND_NS, 12 * SECOND_NS])
    assert pace.take(times, 3600.0) == 0
    assert pace.wait_s(times, 3600.0) == pytest.approx(5.0, abs=0.01)
    assert [pace.take(times, 3600.0 + at_s) for at_s in (4.9, 5.0, 5.0)] == [0, 1, 1]
    assert [pace.take(times[1:], 3600.0 + at_s) for at_s in (5.9, 6.0)] == [0, 1]


def test_a_stall_shifts_the_rest() -> None:
    pace = Pace(speed=1.0, origin_ns=0).begin(0.0)
    times = np.array([0, SECOND_NS, 2 * SECOND_NS, 60 * SECOND_NS])
    assert pace.take(times, 0.0) == 1
    assert pace.take(times[1:], 31.0) == 1
    assert pace.take(times[2:], 31.9) == 0
    assert pace.take(times[2:], 32.0) == 1
    assert pace.wait_s(times[3:], 32.0) == pytest.approx(58.0, abs=0.01)


def test_a_short_stop_shifts_nothing() -> None:
    pace = Pace(speed=1.0, origin_ns=0).begin(0.0)
    times = np.array([number * SECOND_NS for number in range(1000)])
    for number in range(1000):
        assert pace.take(times[number:], number + 0.09) == 1


def test_what_catches_up_leaves_at_once_and_delays_nothing() -> None:
    pace = Pace(speed=1.0, origin_ns=0, catches_up=True).begin(0.0)
    times = np.array([0, SECOND_NS, 2 * SECOND_NS, 60 * SECOND_NS])
    assert pace.take(times, 0.0) == 1
    assert pace.take(times[1:], 30.0) == 2
    assert pace.wait_s(times[3:], 30.0) == pytest.approx(30.0, abs=0.01)


def test_messages_close_together_wait_once() -> None:
    times = [number * 1000 for number in range(100_000)]  # 0.1 s of the archive
    pace = Pace(speed=1.0, origin_ns=0).begin(0.0)
    now_s, waits, count = 0.0, 0, 0
    while count < len(times):
        rest = np.array(times[count:])
        ready = pace.take(rest, now_s)
        count += ready
        if not ready:
            waits += 1
            now_s += pace.wait_s(rest, now_s)
    assert waits <= 25
    assert now_s == pytest.approx(0.1, abs=0.02)


def test_of_two_paces_the_slower_one_counts() -> None:
    times = [number * SECOND_NS // 1000 for number in range(1000)]
    for seconds, count in (2.0, 20), (20.0, 100):
        both = Pace(10.0, 1.0).begin(0.0)
        assert sent_in(both, seconds, times, left=100) == pytest.approx(count, abs=2)


def test_a_task_that_is_tried_again_goes_on_at_once(tmp_path: Path) -> None:
    path = write_framed(tmp_path / "orders.framed", messages(3))
    job = Job(
        (str(path),),
        destination=Destination(("played:1",)),
        speed=1.0,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    paces = {0: Pace(speed=1.0, origin_ns=BASE_NS - 3600 * SECOND_NS)}  # it would wait for an hour
    nsqd = PlayedNsqd()
    with closing(open_checkpoint(str(tmp_path / "checkpoint"), job, files_of(path))) as checkpoint:
        replayed(job, files_of(path), nsqd, checkpoint, attempt=1, paces=paces)
    assert nsqd.bodies == bodies(3)
