"""A scenario: one row of the result. A load, the servers that it is made on, and what they are held to."""

from dataclasses import dataclass

from bench.peers.setups import Setup
from bench.run import Amount, Run
from bench.server import NSQD, Daemon
from bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Side:
    """How one server is started and loaded."""

    amount: Amount
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured in place of a server: a tool or a client library, on a server that is the same for all.

    subject  arguments for Python: a module, and what it takes
    peer     the same; or the name of a program among the peer's tools
    """

    name: str
    subject: tuple[str, ...]
    peer: tuple[str, ...] | str | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the result.

    `at_least` is held against the median ratio subject / peer (peer / subject where lower is better);
    `below` and `above` against the subject's median, in `unit`. `one_core` puts server and load on the same core:
    where they only ever wait for each other, a second core adds the time that waking it takes (on a virtual machine
    several times that of the exchange itself) and takes it away again whenever the kernel moves one of them.
    `with_tls` gives the servers a certificate.
    `beside_itself`: the peer is the same program, with the peer's flags. `work` is for those that measure no server.
    `generator` has the arguments of the program that `--load` names, for the loads that it generates.
    `setups`: the servers, the subject first, of which those run that are installed; `workload`: what is published.
    `place` is where the row stands on the axis of its section. `is_quick`: it belongs to a quick run.
    `rounds` is how often each side runs at most, unless the command says otherwise; `least_s` is how long each run
    takes at least. `text` says what is measured.
    """

    load: str
    unit: str
    subject: Side
    peer: Side
    peer_setting: str = "in memory"
    lower_is_better: bool = False
    at_least: float | None = None
    below: float | None = None
    above: float | None = None
    one_core: bool = False
    daemon: Daemon = NSQD
    with_tls: bool = False
    beside_itself: bool = False
    work: Work | None = None
    name: str = ""
    generator: tuple[str, ...] = ()
    setups: tuple[Setup, ...] = ()
    workload: Workload | None = None
    section: str = "nsqd"
    place: float | None = None
    is_quick: bool = False
    rounds: int = 3
    least_s: float = 0
    text: str = ""

    @property
    def label(self) -> str:
        if self.work is not None:
            return self.work.name
        if self.name:
            return self.name
        return self.load if self.peer_setting == "in memory" else f"{self.load}, peer {self.peer_setting}"

    def ratio(self, subject: Run, peer: Run) -> float:
        """How many times better the subject is."""
        return peer.value / subject.value if self.lower_is_better else subject.value / peer.value
