"""`python -m tests.hostile --peer-nsqd CMD`: hostile inputs against ours and another nsqd, in turn, as a table.

Each input is sent on ten connections to a fresh process, while a neighbour publishes. `wait` is the neighbour's longest
round trip, the lesser of wall time and the daemon's CPU time; `memory` what the daemon gained at most, `log` what it
logged. Each figure is the least of all rounds: other programs on the machine can only add to it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.test_slices import INPUTS
from tests.support.certificates import Certificates, make_certificates
from tests.support.hostile_attack import TRANSPORTS, Cost, Open, Sender, attack, nsqd_over, plain
from tests.support.hostile_table import LOOKUPD_COMMANDS, LOOKUPD_ROUTES, NSQD_COMMANDS, NSQD_ROUTES, http_inputs
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import MAGIC, Client

# Rows with less than that on both sides are not shown.
_DEAR_S, _DEAR_MB, _DEAR_LOG_BYTES = 0.02, 50, 1_000_000
_INTRODUCTION = MAGIC + b"IDENTIFY\n"
_COMPRESSED = ("deflated", "snappy")


@dataclass(frozen=True)
class Attack:
    """An input, by name: `run` sends it to a daemon that was just started. `route` is that of HTTP, if it is one."""

    name: str
    is_on_nsqd: bool
    run: Callable[[ServerProcess], Cost]
    route: str = ""


@dataclass(frozen=True)
class Statistics:
    """The least of all rounds."""

    wait_s: float
    gained_mb: float
    log_bytes: int

    @property
    def is_dear(self) -> bool:
        return self.wait_s >= _DEAR_S or self.gained_mb >= _DEAR_MB or self.log_bytes >= _DEAR_LOG_BYTES

    @staticmethod
    def of(costs: Sequence[Cost]) -> Statistics:
        return Statistics(
            min(cost.worst_threads_s for cost in costs),
            max(0.0, min(cost.gained_mb for cost in costs)),
            min(cost.log_bytes for cost in costs),
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--peer-nsqd", help="command of another nsqd")
    parser.add_argument("--peer-nsqlookupd", help="command of another nsqlookupd")
    parser.add_argument("--only", default="", help="inputs whose names this regular expression finds")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each input on each side (default: 3)")
    options = parser.parse_args()
    if not (options.peer_nsqd or options.peer_nsqlookupd) or options.rounds < 1:
        parser.error("--peer-nsqd or --peer-nsqlookupd must be given, and --rounds must be at least 1")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        certificates = make_certificates(Path(directory))
        for each in attacks(certificates):
            peer = options.peer_nsqd if each.is_on_nsqd else options.peer_nsqlookupd
            if not peer or not re.search(options.only, each.name):
                continue
            found = duel(each, shlex.split(peer), options.rounds, certificates)
            if found is not None:
                rows.append((each.name, *found))
                print(line(*rows[-1]), file=sys.stderr, flush=True)
    print("| input | wait: ours | peer | memory: ours | peer | log: ours | peer |")
    print("|---|---|---|---|---|---|---|")
    dear = [row for row in rows if row[1].is_dear or row[2].is_dear]
    for row in sorted(dear, key=lambda row: loss(*row[1:]), reverse=True):
        print(line(*row))
    others = len(rows) - len(dear)
    print(f"{others} other inputs: less than {_DEAR_S * 1000:.0f} ms, {_DEAR_MB} MB and 1 MB of log on both sides")
    return 0


def loss(ours: Statistics, peer: Statistics) -> float:
    """How many times longer the neighbour waits at ours."""
    return max(ours.wait_s, _DEAR_S) / max(peer.wait_s, _DEAR_S)


def line(name: str, ours: Statistics, peer: Statistics) -> str:
    cells = [f"{each.wait_s * 1000:.0f} ms" for each in (ours, peer)]
    cells += [f"{each.gained_mb:.0f} MB" for each in (ours, peer)]
    cells += [f"{each.log_bytes / 1000:.0f} kB" for each in (ours, peer)]
    return f"| {name} | {' | '.join(cells)} |"


def duel(each: Attack, peer: list[str], rounds: int, certificates: Certificates) -> tuple[Statistics, Statistics] | None:
    """None where the peer does not know the route."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            with tempfile.TemporaryDirectory() as directory:
                process = start(each, peer if side else None, Path(directory), certificates)
                try:
                    if each.route and not knows(process, each.route):
                        return None
                    costs[side].append(each.run(process))
                finally:
                    process.destroy()
    return Statistics.of(costs[0]), Statistics.of(costs[1])


def start(each: Attack, command: list[str] | None, directory: Path, certificates: Certificates) -> ServerProcess:
    if each.is_on_nsqd:
        nsqd = NsqdProcess(directory / "nsqd", *certificates.nsqd_flags, command=command).start()
        nsqd.create("hostile", "c#ephemeral")
        nsqd.create("t", "c")
        return nsqd
    lookupd = NsqlookupdProcess(directory / "nsqlookupd.log", command=command).start()
    lookupd.create_channel("neighbour", "c")
    return lookupd


def knows(process: ServerProcess, route: str) -> bool:
    method, _, path = route.partition(" ")
    if path == "/debug/pprof/profile":
        return True  # asking takes 30 s
    answer = process.http(method, path.replace(":opt", "log_level"))
    return answer.status != 405 and not (answer.status == 404 and b'"NOT_FOUND"' in answer.body)


# ---- the inputs


def attacks(certificates: Certificates) -> Iterator[Attack]:
    for name, (port, make) in INPUTS.items():
        yield Attack(name, True, _compressed(make) if name.startswith(_COMPRESSED) else _of_port(port, make))
    for place, (command, inputs) in enumerate(NSQD_COMMANDS.items()):
        for number, (name, make) in enumerate(inputs):
            for transport in ("plain", TRANSPORTS[1 + place % 3])[: 1 if number else 2]:
                label = f"{command} {name}, {transport}".strip()
                yield Attack(label, True, _over(transport, make, certificates))
    for route, query in NSQD_ROUTES.items():
        if route != "POST /drain":  # asking whether it is known would end the process
            yield Attack(route, True, _of_route(route, query), route)
    for command, inputs in LOOKUPD_COMMANDS.items():
        for name, make in inputs:
            yield Attack(f"nsqlookupd {command} {name}", False, _of_lookupd(make))
    for route, query in LOOKUPD_ROUTES.items():
        yield Attack(f"nsqlookupd {route}", False, _of_route(route, query), route)


def _of_port(port: str, make: Callable[[], bytes]) -> Callable[[ServerProcess], Cost]:
    return lambda process: attack(process, [plain(process.http_port if port == "http" else process.tcp_port)], [make()])


def _compressed(make: Callable[[], bytes]) -> Callable[[ServerProcess], Cost]:
    def run(process: ServerProcess) -> Cost:
        data = make()
        end = _end_of_introduction(data)
        return attack(process, [_introduced(process.tcp_port, data[:end])], [data[end:]])

    return run


def _end_of_introduction(data: bytes) -> int:
    size_at = len(_INTRODUCTION)
    return size_at + 4 + int.from_bytes(data[size_at : size_at + 4], "big")


def _introduced(port: int, introduction: bytes) -> Open:
    """Connections whose IDENTIFY was answered: Go's nsqd throws away what follows one that asks for compression."""

    def connect() -> Sender:
        client = Client(port)
        client.send(introduction.removeprefix(MAGIC))
        client.frame()
        return Sender(client.socket.sendall, client.socket)

    return connect


def _over(transport: str, make: Callable[[], bytes], certificates: Certificates) -> Callable[[ServerProcess], Cost]:
    def run(process: ServerProcess) -> Cost:
        opener: Open = nsqd_over(process.tcp_port, transport, certificates)
        return attack(process, [opener], [make()])

    return run


def _of_lookupd(make: Callable[[], bytes]) -> Callable[[ServerProcess], Cost]:
    return lambda process: attack(process, [plain(process.tcp_port, b"  V1")], [make()])


def _of_route(route: str, query: str) -> Callable[[ServerProcess], Cost]:
    return lambda process: attack(process, [plain(process.http_port)], http_inputs(route, query))


if __name__ == "__main__":
    sys.exit(main())
