"""The sampling profile of this process, and the counts of its garbage collector."""

from __future__ import annotations

import gc
import signal
import time

import gevent
import pytest

from nsqd_py.debug.collector import Collections
from nsqd_py.debug.profile import INTERVAL_S, Profile, Profiler, ProfileUnderWay


def use_processor(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def work_in_slices(slices: int) -> None:
    for _ in range(slices):
        use_processor(0.01)
        gevent.sleep(0.001)


def profile_of_work() -> tuple[Profile, float]:
    """Profile a worker for a while; return the processor time too."""
    worker = gevent.spawn(work_in_slices, 1_000_000)
    before_s = time.process_time()
    profile = Profiler().profile(0.45)
    used_s = time.process_time() - before_s
    worker.kill()
    return profile, used_s


def test_what_works_is_seen_as_often_as_it_works() -> None:
    # Where the machine has others to serve, it uses little of the processor: then again.
    profile, used_s = next(found for found in (profile_of_work() for _ in range(100)) if found[1] > 0.1)
    seen = {name for stack in profile.stacks for name in stack}
    assert f"{__name__}.work_in_slices" in seen
    busy = sum(samples for stack, samples in profile.stacks.items() if f"{__name__}.use_processor" in stack)
    # At most one an interval; at least what the slowest usual tick (100 Hz) lets through.
    assert 0.3 * used_s / 0.01 <= busy <= 1.3 * used_s / INTERVAL_S
    assert busy >= 0.8 * profile.samples
    assert 0.5 * used_s <= profile.cpu_s <= 1.1 * used_s


def test_one_at_a_time() -> None:
    profiler = Profiler()
    first = gevent.spawn(profiler.profile, 0.1)
    gevent.sleep(0.01)
    with pytest.raises(ProfileUnderWay):
        profiler.profile(0.1)
    first.join()
    assert profiler.profile(0.01).wall_s < 40


def test_a_signal_after_the_end_does_no_harm() -> None:
    profiler = Profiler()
    profiler.profile(0.01)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    signal.raise_signal(signal.SIGPROF)


def test_stacks_without_number_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqd_py.debug.profile._MOST_STACKS", 0)
    for _ in range(50):
        worker = gevent.spawn(work_in_slices, 10)
        profile = Profiler().profile(0.1)
        worker.join()
        if profile.stacks:
            break  # on a busy machine, nothing may have run for 0.1 s
    assert set(profile.stacks) == {("(other stacks)",)}


def test_pauses_of_the_collector() -> None:
    collections = Collections()
    collections.watch()
    collections.watch()
    try:
        gc.collect()
        gc.collect(0)
    finally:
        gc.callbacks.remove(collections._on_phase)
    report = collections.report()
    latest, before = report["last_pauses"][:2]
    assert (latest["generation"], before["generation"]) == (0, 2)
    assert 0 < before["pause_ns"] <= report["generations"][2]["longest_pause_ns"]
    assert report["generations"][2]["total_pause_ns"] >= before["pause_ns"]
    assert abs(latest["time"] - time.time()) < 60
    assert report["frozen"] == gc.get_freeze_count()
    assert [one["threshold"] for one in report["generations"]] == list(gc.get_threshold())
