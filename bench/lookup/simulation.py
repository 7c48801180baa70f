"""The whole of it: nsqds and clients around one nsqlookupd, and what is done with them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.lookup.cluster import Cluster
from bench.lookup.crowd import Crowd, Window
from bench.lookup.fleet import Fleet
from bench.lookup.reactor import Reactor
from bench.run import Endpoint

_REGISTERED_WITHIN_S = 90.0
_WHOLE_WITHIN_S = 150.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """After a restart, in seconds from the start of the new process: when every nsqd had registered everything,
    and when a client had seen every topic with all its producers. `asked` is what the clients saw until then."""

    endpoint: Endpoint
    registered_s: float
    whole_s: float
    asked: Window


class Simulation:
    """A context manager. `window`: how many registrations of an nsqd may be unanswered; None for all of them."""

    def __init__(self, endpoint: Endpoint, window: int | None = None) -> None:
        self.cluster = Cluster()
        self._endpoint = endpoint
        self._reactor = Reactor()
        self._fleet = Fleet(self._reactor, endpoint.tcp_port, self.cluster, window)
        self._crowd = Crowd(self._reactor, endpoint.http_port, self.cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()
        self._crowd.close()
        self._reactor.close()

    @property
    def registrations(self) -> int:
        return self.cluster.peers * len(self.cluster.registrations)

    def register(self) -> float:
        """All nsqds connect at once; the seconds until every registration was answered."""
        return self._fleet.register(_REGISTERED_WITHIN_S)

    def ask(self, seconds: float, pause_s: float = 0.0) -> Window:
        """All clients, each about `pause_s` after it last asked, or right after its last answer. A wrong answer
        raises LoadError."""
        return self._crowd.ask(seconds, pause_s)

    def restart(self, pause_s: float = 0.0, on_restart: Callable[[Endpoint], None] = lambda endpoint: None) -> Recovery:
        """Kill nsqlookupd and start it again, while all clients ask, with pauses as in `ask`."""
        fleet, crowd = self._fleet, self._crowd
        fleet.may_lose = crowd.may_lose = True
        crowd.want_all()
        crowd.start(pause_s)
        endpoint = self._endpoint = self._endpoint.restart()
        on_restart(endpoint)
        fleet.wait_until_registered_anew(_WHOLE_WITHIN_S)
        registered_s = time.perf_counter() - endpoint.started_s
        self._reactor.run_until(crowd.is_whole, within_s=_WHOLE_WITHIN_S, what="all topics are whole again")
        whole_s = time.perf_counter() - endpoint.started_s
        asked = Window.of(crowd.latencies_s, whole_s)
        crowd.stop()
        fleet.may_lose = crowd.may_lose = False
        return Recovery(endpoint, registered_s, whole_s, asked)
