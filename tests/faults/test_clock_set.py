"""The wall clock is set while nsqd runs, and between two lives: what is fresh stays, what is deferred waits as long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sampled
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

HOUR_S = 3600
COUNT = 20
SetClock = Callable[[int], None]


@pytest.fixture
def set_clock(tmp_path, monkeypatch) -> SetClock:
    """`set_clock(by_s)`: from now on the wall clock of the nsqd is wrong by so many seconds."""
    file = tmp_path / "wrong_by"
    file.write_text("0")
    script = Path(__file__).parents[1] / "support" / "clock_moved.py"
    monkeypatch.setenv("NSQD_COMMAND", f"{sys.executable} {script} {file}")
    monkeypatch.setenv("PYTHONPATH", str(script.parents[2]))

    def set_clock(by_s: int) -> None:
        temporary = file.with_name("wrong_by.tmp")
        temporary.write_text(str(by_s))
        temporary.rename(file)

    return set_clock


@pytest.fixture
def nsqd(tmp_path, set_clock) -> Iterator[NsqdProcess]:
    with NsqdProcess(tmp_path / "data", "--message-ttl=10m", "--mem-queue-size=5") as nsqd:
        yield nsqd


def delivered(nsqd: NsqdProcess, count: int) -> list[bytes]:
    with nsqd.consumer("t", "c", count + 1) as client:
        return bodies(client.messages(count))


FRESH = [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("by_s", [-24 * HOUR_S, 24 * HOUR_S])
def test_due_times_do_not_change_where_a_store_is_restored(set_clock, tmp_path, by_s):
    """The clock of the machine that is lost was wrong by a day."""
    store = f"file://{tmp_path}/store"
    set_clock(by_s)
    with NsqdProcess(tmp_path / "lost", f"--store={store}", "--store-acks=1") as lost:
        lost.start().create("t", "c")
        lost.dpub("t", HOUR_S * 1000, b"later")
        lost.dpub("t", 4000, b"soon")
        lost.kill()
    set_clock(0)
    with NsqdProcess(tmp_path / "new", f"--store={store}", f"--restore-from={store}") as new:
        new.start()
        assert delivered(new, 1) == [b"soon"]
        assert new.channel_stats("t", "c")["deferred_count"] == 1


CASES = product((-HOUR_S, HOUR_S), ("running", "stopped", "killed"))
QUICK = (-HOUR_S, "running"), (-HOUR_S, "killed"), (HOUR_S, "stopped")


@pytest.mark.parametrize(("by_s", "away"), sampled(CASES, *QUICK))
def test_the_clock_is_set_and_set_right(nsqd, set_clock, away, by_s):
    nsqd.start().create("t", "c")
    nsqd.pub("t", b"first")
    set_clock(by_s)
    nsqd.pub("t", *FRESH)
    if away == "stopped":
        nsqd.stop()
    elif away == "killed":
        nsqd.kill()
    set_clock(0)
    if away != "running":
        nsqd.start()
    nsqd.pub("t", b"last")
    assert delivered(nsqd, COUNT + 2) == [b"first", *FRESH, b"last"]
    assert "expired_count" not in nsqd.channel_stats("t", "c")


@pytest.mark.parametrize("is_noticed", [True, False], ids=["set while it runs", "set while it does not"])
def test_a_clock_that_was_wrong_from_the_first_start(nsqd, set_clock, is_noticed):
    set_clock(-HOUR_S)
    nsqd.start().create("t", "c")
    nsqd.pub("t", *FRESH)
    if is_noticed:
        set_clock(0)
        wait_until(lambda: "the clock was set by" in nsqd.log_text(), what="the step to be noticed")
    nsqd.stop()
    set_clock(0)
    nsqd.start()
    assert delivered(nsqd, COUNT) == FRESH
