"""An nsqlookupd with 200 nsqds that have 500 topics of 3 channels each, and 50 clients that ask for them.

Who they are: `bench/lookup`. In all loads but `one_at_a_time` the nsqds register as ours does: they send all and
then read the answers.
"""

from bench import procfs
from bench.lookup.fleet import ONE_AT_A_TIME
from bench.lookup.simulation import Simulation
from bench.run import Amount, Endpoint, Run, Stopwatch

PACED_S = 0.1


def one_at_a_time(endpoint: Endpoint, amount: Amount) -> Run:
    """Seconds until all is registered by nsqds that wait for each answer, as Go's does."""
    return _register(endpoint, ONE_AT_A_TIME)


def pipelined(endpoint: Endpoint, amount: Amount) -> Run:
    """Seconds until all is registered."""
    return _register(endpoint, None)


def closed_loop(endpoint: Endpoint, amount: Amount) -> Run:
    """The 99th percentile of /lookup in ms, while each client asks again right after its answer."""
    return _ask(endpoint, amount, 0.0)


def paced(endpoint: Endpoint, amount: Amount) -> Run:
    """The 99th percentile of /lookup in ms, while each client asks ten times a second."""
    return _ask(endpoint, amount, PACED_S)


def memory(endpoint: Endpoint, amount: Amount) -> Run:
    """Resident memory in MB when all is registered; and after the clients have asked, in the details."""
    empty_bytes = procfs.rss_bytes(endpoint.pid)
    with Simulation(endpoint) as simulation:
        watch = Stopwatch(endpoint.pid)
        simulation.register()
        rss_bytes, pss_bytes = procfs.rss_bytes(endpoint.pid), procfs.pss_bytes(endpoint.pid)
        simulation.ask(amount.seconds)
        watch.stop()
        return watch.run(
            rss_bytes / 1e6,
            simulation.registrations,
            empty_mb=empty_bytes / 1e6,
            pss_mb=pss_bytes / 1e6,
            asked_mb=procfs.rss_bytes(endpoint.pid) / 1e6,
        )


def restart(endpoint: Endpoint, amount: Amount) -> Run:
    """Seconds from the start of the new process until a client saw every topic with all its producers, while each
    client asks again right after its answer."""
    return _restart(endpoint, 0.0)


def paced_restart(endpoint: Endpoint, amount: Amount) -> Run:
    """The same while each client asks ten times a second: clients leave room for the nsqds."""
    return _restart(endpoint, PACED_S)


def _restart(endpoint: Endpoint, pause_s: float) -> Run:
    with Simulation(endpoint) as simulation:
        simulation.register()
        watch = Stopwatch(endpoint.pid)
        recovery = simulation.restart(pause_s, watch.turn_to)
        watch.stop()
        return watch.run(
            recovery.whole_s,
            simulation.registrations,
            registered_s=recovery.registered_s,
            asked_p99_ms=recovery.asked.p99_ms,
            asked_per_s=recovery.asked.per_s,
        )


def _register(endpoint: Endpoint, window: int | None) -> Run:
    with Simulation(endpoint, window) as simulation:
        watch = Stopwatch(endpoint.pid)
        elapsed_s = simulation.register()
        watch.stop()
        return watch.run(elapsed_s, simulation.registrations, per_s=simulation.registrations / elapsed_s)


def _ask(endpoint: Endpoint, amount: Amount, pause_s: float) -> Run:
    with Simulation(endpoint) as simulation:
        simulation.register()
        watch = Stopwatch(endpoint.pid)
        window = simulation.ask(amount.seconds, pause_s)
        watch.stop()
        return watch.run(
            window.p99_ms, window.requests, p50_ms=window.p50_ms, max_ms=window.max_ms, requests_per_s=window.per_s
        )
