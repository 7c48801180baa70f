"""nsqlookupd at the size it is made for: 200 nsqds with 500 topics of 3 channels each, and 50 clients that ask.

The same simulation as `python -m bench --only lookup`, and the same targets. `-s` shows the figures.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bench import procfs
from bench.lookup.crowd import Window
from bench.lookup.fleet import ONE_AT_A_TIME
from bench.lookup.simulation import Simulation
from bench.scenarios import LOOKUP_MEMORY_MB, LOOKUP_P99_MS, LOOKUP_RESTART_S
from bench.server import NSQLOOKUPD, Server
from tests.support.nsqlookupd_process import nsqlookupd_command

pytestmark = [pytest.mark.alone, pytest.mark.slow]

WINDOWS = 5
WINDOW_S = 2.0
PACED_S = 0.1
# The figures of `make bench` are held to LOOKUP_P99_MS; a machine that others share may take twice as long.
MOST_P99_MS = 2 * LOOKUP_P99_MS


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(NSQLOOKUPD, nsqlookupd_command()) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Those of this process, full of other tests, would be measured as nsqlookupd's."""
    gc.disable()
    yield
    gc.enable()


def best_window(simulation: Simulation, what: str, pause_s: float) -> Window:
    """The first that meets the target, or the best of all: another process may have disturbed the others."""
    windows: list[Window] = []
    while len(windows) < WINDOWS and not (windows and windows[-1].p99_ms < MOST_P99_MS):
        windows.append(simulation.ask(WINDOW_S, pause_s))
        print(f"  {what}: {windows[-1]}")
    return min(windows, key=lambda window: window.p99_ms)


def rss_mb(server: Server) -> float:
    return procfs.rss_bytes(server.endpoint.pid) / 1e6


def test_two_hundred_nsqds_are_served_and_come_back_after_a_crash(server: Server) -> None:
    with Simulation(server.endpoint) as simulation:
        registered_s = simulation.register()
        registered_mb = rss_mb(server)
        print(f"\n  registered, pipelined: {simulation.registrations:,} in {registered_s:.2f} s")
        closed_loop = best_window(simulation, "50 clients without a pause", 0.0)
        paced = best_window(simulation, "50 clients, 10 requests/s each", PACED_S)
        asked_mb = rss_mb(server)
        recovery = simulation.restart()
        restarted_mb = rss_mb(server)
    print(f"  memory: {registered_mb:.0f} MB, {asked_mb:.0f} MB when asked, {restarted_mb:.0f} MB after the restart")
    print(f"  restarted: registered after {recovery.registered_s:.2f} s, whole after {recovery.whole_s:.2f} s")
    print(f"  asked meanwhile: {recovery.asked}")
    assert closed_loop.p99_ms < MOST_P99_MS
    assert paced.p99_ms < MOST_P99_MS
    assert max(registered_mb, asked_mb, restarted_mb) < LOOKUP_MEMORY_MB
    assert recovery.whole_s < LOOKUP_RESTART_S


def test_nsqds_that_wait_for_each_answer_register_as_well(server: Server) -> None:
    """As Go's do."""
    with Simulation(server.endpoint, ONE_AT_A_TIME) as simulation:
        registered_s = simulation.register()
        print(f"\n  registered, one at a time: {simulation.registrations:,} in {registered_s:.2f} s")
        assert best_window(simulation, "50 clients without a pause", 0.0).p99_ms < MOST_P99_MS
    assert rss_mb(server) < LOOKUP_MEMORY_MB
