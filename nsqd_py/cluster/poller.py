"""Asks all nsqlookupds and nsqds in parallel, round after round. No server delays the others.

A round does not wait for servers that were late in the round before. Their answers are used when they arrive; until
then their last statistics stay.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from time import monotonic, thread_time, time
from typing import Any

import gevent
import gevent.event
import gevent.lock
import gevent.socket

from nsqd_py.cluster.admin_client import Answer, UpstreamError, parsed, shown_address
from nsqd_py.cluster.model import SLOW_ANSWER_S, BadStats, Cluster, Node
from nsqd_py.cluster.producers import (
    SharedAddress,
    departed_in,
    http_address,
    merged_producers,
    producer,
    producer_of_info,
    shared_addresses,
    tcp_address,
)
from nsqd_py.cluster.questions import LookupQuestion, Question
from nsqd_py.cluster.roles import KnownStandby, Primary
from nsqd_py.cluster.upstream import Upstream, ask_all, named_producers
from nsqd_py.cluster.values import Statistics, texts_in
from nsqd_py.net.http import AnswerTooLong
from nsqd_py.protocol import MAGIC_V2
from nsqd_py.runtime.documents import MOST_NSQDS, TOO_MANY_NSQDS, TooManyValues
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.runtime.threads import in_slices

# A round waits for answers for this part of the interval, but not longer than _LONGEST_WAIT_S.
_WAITING_PART = 0.5
_LONGEST_WAIT_S = 1.0
# Reading answers may take this part of a core at most. In a cluster that needs more, rounds become rarer.
_BUSY_PART = 0.25
_SHORTEST_PAUSE_S = 0.05
_NOT_FOUND = 404
# An nsqd with a lease closes its ports while it changes its role; it is asked for this long after its last answer.
_ROLE_CHANGE_S = 15.0
# Of the nsqds that do not answer, so many are asked in a round, in turn: anyone can register some at an nsqlookupd, and 1,500
# took a quarter of a core.
_MOST_FAILING = 200
# An nsqd is slow after this many late rounds, and until this many rounds were in time.
_LATE_ROUNDS = 2
_PROMPT_ROUNDS = 5
# A difference of clocks is measured this exactly.
_CLOCK_NOISE_S = 2
# An announced TCP port is tried at the first answer of an nsqd, after each of its starts, and then so often.
_TCP_EVERY_S = 600.0
_TCP_RETRY_S = 15.0
_TCP_TIMEOUT_S = 3.0
_TOPIC_KEY = b'"topic_name":'
_CHANNEL_KEY = b'"channel_name":'
_TOO_MUCH_ADVICE = (
    "nsq-stat --topic shows one of them; delete those that no one needs, and limit them with --max-topics"
)


@dataclass(eq=False, repr=False)
class ClusterPoller:
    """Keeps `cluster` up to date.

    _interval_s  the time from the start of one round to the start of the next
    _on_round    called after each round
    _report      called with an unexpected exception that ended a round early
    topic        with a topic or a channel, only those are asked for
    checks_tcp   connect to the announced TCP ports now and then
    """

    cluster: Cluster
    _upstream: Upstream
    lookupd_addresses: InitVar[Sequence[str]]
    nsqd_addresses: InitVar[Sequence[str]]
    _interval_s: float
    _on_round: Callable[[], None]
    _report: Callable[[Exception], None]
    _clock: Callable[[], float] = monotonic
    _: KW_ONLY
    topic: str = ""
    channel: str = ""
    asks_info: bool = False
    checks_tcp: bool = False

    def __post_init__(self, lookupd_addresses: Sequence[str], nsqd_addresses: Sequence[str]) -> None:
        asked = {"format": "json", "topic": self.topic, "channel": self.channel}
        self._query = {name: value for name, value in asked.items() if value}
        self._query |= {"include_clients": "false", "include_mem": "false"}
        self._drops_unlisted = False
        self._nsqds = {shown_address(nsqd): nsqd for nsqd in nsqd_addresses}
        self._lookups: dict[str, LookupQuestion] = {}
        self._infos: dict[str, Statistics] = {}  # what nsqds report, if there is no nsqlookupd
        self._standbys: dict[str, Statistics] = {}  # found through their primaries, with what they report
        self._questions: dict[str, Question] = {}
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self._wake = gevent.event.Event()
        self._reading = gevent.lock.Semaphore(1)
        self._busy_s = 0.0  # the time spent on reading answers since the last round ended
        self._ended_s = self._clock()
        self.set_lookupds(lookupd_addresses)

    # ---- its life

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
        for question in [*self._lookups.values(), *self._questions.values()]:
            question.close()

    def poll_soon(self) -> None:
        """Begin the next round now: an action changed something."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            began_s = self._clock()
            self._wake.clear()
            try:
                self.round()
            except Exception as error:  # noqa: BLE001  an unexpected answer must not end the rounds for good
                self._report(error)
            took_s = self._clock() - began_s
            pause_s = max(self._interval_s, self._busy_s / _BUSY_PART) - took_s
            self._busy_s = 0.0
            self._wake.wait(max(pause_s, _SHORTEST_PAUSE_S))

    def set_lookupds(self, addresses: Iterable[str]) -> None:
        """Ask these nsqlookupds from now on, and no others."""
        requested = dict.fromkeys(addresses)
        for gone in self._lookups.keys() - requested.keys():
            self._drops_unlisted = True
            self._lookups.pop(gone).close()
            self.cluster.failed_lookups.pop(shown_address(gone), None)
        for address in requested:
            if address not in self._lookups:
                self._lookups[address] = LookupQuestion(partial(self._ask_lookupd, address), self._clock)
        self.cluster.lookups = len(self._lookups)

    @property
    def lookupds(self) -> tuple[str, ...]:
        return tuple(self._lookups)

    def listed_topics(self) -> set[str]:
        """Return the topics that the nsqlookupds list now; those of an nsqlookupd that does not answer are missing."""
        answers = ask_all(self._lookups, lambda lookupd: self._upstream.get(lookupd, "/topics"))
        return {topic for answer in answers.good.values() for topic in texts_in(answer, "topics")}

    # ---- a round

    def round(self, *, waits_for_all: bool = False) -> None:
        """Ask all servers, and wait for those that are usually in time, or for all."""
        if waits_for_all:
            limit_s = None
        else:
            limit_s = min(self._interval_s * _WAITING_PART, _LONGEST_WAIT_S)
        self._ask(self._lookups.values(), limit_s)
        reported = self._listed()
        if not self._lookups:
            reported = {address: self._infos.get(address, {}) for address in self._nsqds}
        self._find_standbys(reported)
        self._keep_nodes(self._standbys | reported)
        due = self._questions.values() if waits_for_all else self._due_questions()
        self._ask(due, limit_s)
        for address, question in self._questions.items():
            self._note_lateness(self.cluster.nodes[address], question)
        now_s = self._clock()
        round_s = now_s - self._ended_s
        self._ended_s = now_s
        with self._reading:  # the sums of this round would miss an answer that is processed in the meantime
            for _ in in_slices(self.cluster.ending_round(now_s, max(round_s, self._interval_s))):
                pass
            self._on_round()
            self.cluster.tick += 1

    def _due_questions(self) -> list[Question]:
        """Return the questions to nsqds that answer, and those to others that have waited longest."""
        nodes = self.cluster.nodes
        due: list[Question] = []
        failing: list[Question] = []
        for address, question in in_slices(self._questions.items()):
            group = failing if nodes[address].failure else due
            group.append(question)
        failing.sort(key=lambda question: question.began_s)
        return due + failing[:_MOST_FAILING]

    def _listed(self) -> dict[str, Statistics]:
        """Return the nsqds that the nsqlookupds list, by address, and note what else these say."""
        cluster = self.cluster
        by_lookupd = {}
        departed: set[str] = set()
        shared: dict[str, SharedAddress] = {}
        for address, lookup in self._lookups.items():
            departed |= lookup.departed
            shared |= lookup.shared
            if lookup.nodes is not None:
                by_lookupd[shown_address(address)] = in_slices(lookup.nodes)
        listed = {http_address(node): node for node in merged_producers(by_lookupd)}
        cluster.unheard_lookups = sum(lookup.nodes is None for lookup in self._lookups.values())
        cluster.heard_lookups = tuple(by_lookupd)
        cluster.departed = frozenset(departed - listed.keys())
        cluster.shared = shared
        return listed

    def _ask(self, questions: Iterable[Question], limit_s: float | None) -> None:
        asked = list(questions)
        now_s = self._clock()
        for question in in_slices(asked):
            if limit_s is None or (not question.is_busy and question.took_s <= limit_s):
                question.is_late = False  # it answers in time again, so the round waits for it again
            question.begin(now_s)
        with gevent.Timeout(limit_s, False):  # type: ignore[arg-type]
            for question in in_slices(asked):
                if question.greenlet is not None and not question.is_late:
                    question.greenlet.join()
        for question in in_slices(asked):
            question.is_late = question.is_busy and not question.is_heard
            question.late_rounds = question.late_rounds + 1 if question.is_late else 0
            if question.is_late:
                question.prompt_rounds = 0
            else:
                question.prompt_rounds += 1

    def add_standbys(self, addresses: Iterable[str]) -> None:
        """Ask these standbys too. A primary that is gone cannot say where they are."""
        self._standbys |= {address: producer_of_info({}, (), address) for address in addresses}

    def _find_standbys(self, reported: dict[str, Statistics]) -> None:
        """Find the standbys that primaries name: no nsqlookupd lists them. Each stays for as long as it answers."""
        nodes = self.cluster.nodes
        named: set[str] = set()
        for node in nodes.values():
            if isinstance(node.role, Primary) and not node.failure:
                named.update(standby.http_address for standby in node.role.standbys)
        for address in named - self._standbys.keys():
            statistics = producer_of_info({}, (), address)
            if http_address(statistics) == address:
                self._standbys[address] = statistics
        for address in list(self._standbys):
            is_over = address not in named and address in nodes and self._has_ended(nodes[address])
            if address in reported or is_over:
                del self._standbys[address]

    def _keep_nodes(self, reported: dict[str, Statistics]) -> None:
        for gone in self._unlisted(reported):
            self._questions.pop(gone).close()
            with self._reading:
                for _ in in_slices(self.cluster.removing_node(gone)):
                    pass
        for address, statistics in in_slices(reported.items()):
            node = self.cluster.add_node(address, statistics)
            node.is_listed = (
                address not in self._standbys or not node.answers or isinstance(node.role, KnownStandby)
            )
            if address not in self._questions:
                self._questions[address] = Question(partial(self._ask_nsqd, node), self._clock)

    def _unlisted(self, reported: dict[str, Statistics]) -> list[str]:
        """Mark the nsqds that no nsqlookupd lists any more, and return those to remove: all that do not answer.

        After an nsqlookupd was taken out of the configuration, those that answer are removed too.
        """
        removed = []
        for address in self.cluster.nodes.keys() - reported.keys():
            node = self.cluster.nodes[address]
            node.is_listed = isinstance(node.role, KnownStandby)
            if self._drops_unlisted or node.answered_s is None or self._has_ended(node):
                removed.append(address)
        self._drops_unlisted = False
        return removed

    def _has_ended(self, node: Node) -> bool:
        """True if an nsqd that no nsqlookupd lists does not answer, and does not only change its role."""
        has_lease = node.role is not None and node.role.lease is not None
        age_s = node.age_s(self._clock())
        if not node.failure:
            return False
        return not (has_lease and age_s is not None and age_s < _ROLE_CHANGE_S)

    def _note_lateness(self, node: Node, question: Question) -> None:
        node.asked_s = question.began_s
        node.is_late = question.is_late
        if node.is_slow:
            node.is_slow = question.prompt_rounds < _PROMPT_ROUNDS
        else:
            node.is_slow = question.late_rounds >= _LATE_ROUNDS

    # ---- questions; each runs in its own greenlet

    def _ask_lookupd(self, address: str) -> None:
        failures = self.cluster.failed_lookups
        name = shown_address(address)
        try:
            with self._upstream.answer() as answer:
                nodes = self._read_listing(self._lookups[address], address, self._listing(answer, address))
            failures.pop(name, None)
            if len(nodes) >= MOST_NSQDS:
                failures[name] = TOO_MANY_NSQDS
        except UpstreamError as error:
            failures[name] = error.reason
        except Exception as error:  # noqa: BLE001  a bug in reading one answer costs that answer
            failures[name] = "the answer could not be read"
            self._report(error)

    @staticmethod
    def _read_listing(lookup: LookupQuestion, address: str, body: bytes) -> list[Statistics]:
        """Return the nsqds of an answer, and note them unless it is equal to the one before. Raises UpstreamError."""
        if lookup.nodes is None or lookup.digest != hash(body):
            document = parsed(address, body, in_slices)
            rows = named_producers(address, document)
            lookup.nodes = [_reported(row) for row in rows]
            lookup.shared = shared_addresses(rows)
            lookup.departed = departed_in(document)
            lookup.digest = hash(body)
        return lookup.nodes

    def _listing(self, answer: Answer, address: str) -> bytes:
        """Return the answer of an nsqlookupd that lists all nsqds, or those of the topic. Raises UpstreamError."""
        if not self.topic:
            return self._upstream.get_bytes(answer, address, "/nodes")
        try:
            return self._upstream.get_bytes(answer, address, "/lookup", {"topic": self.topic})
        except UpstreamError as error:
            if error.status != _NOT_FOUND:
                raise
            return b'{"producers":[]}'  # no nsqd has the topic yet

    def _ask_nsqd(self, node: Node) -> None:
        began_s = self._clock()
        try:
            self._introduce(node)
            asked_s = time()
            with self._upstream.answer() as answer:
                address = self._nsqds.get(node.address, node.address)
                body = self._upstream.get_bytes(answer, address, "/stats", self._query)
                heard_s = self._clock()
                ahead_s = clock_ahead_s(answer.date, asked_s, time())
                if abs(ahead_s - node.clock_ahead_s) > _CLOCK_NOISE_S:
                    node.clock_ahead_s = ahead_s
                self._questions[node.address].is_heard = True
                with self._reading:
                    self._read(node, body, heard_s)
                    del body
                    gc.collect(0)  # once for all answers of a round it takes 50 ms with 2000 nsqds
                    gevent.sleep(0)  # a hundred answers at once must not delay the page
        except UpstreamError as error:
            reason = error.reason
            if isinstance(error.__cause__, AnswerTooLong):
                reason = f"{reason}: it has too many topics and channels; {_TOO_MUCH_ADVICE}"
            self.cluster.fail(node, reason)
        except BadStats as error:
            self.cluster.fail(node, str(error))
        except Exception as error:  # noqa: BLE001  a bug in reading one answer costs that answer
            self.cluster.fail(node, "the answer could not be read")
            self._report(error)
        node.took_s = self._clock() - began_s
        if node.took_s >= SLOW_ANSWER_S:
            node.slow_answers += 1
        else:
            node.slow_answers = 0
        if self.checks_tcp and not node.failure and self._tcp_is_due(node):
            self._check_tcp(node)

    # ---- TCP ports

    def check_tcp_ports(self) -> None:
        """Connect to the announced TCP port of each nsqd that answers, and wait for the results."""
        nodes = [node for node in self.cluster.nodes.values() if not node.failure]
        gevent.joinall([gevent.spawn(self._check_tcp, node) for node in nodes])

    def _tcp_is_due(self, node: Node) -> bool:
        if node.tcp_checked_s is None or node.start_time != node.tcp_start_time:
            return True
        pause_s = _TCP_RETRY_S if node.tcp_failure else _TCP_EVERY_S
        return self._clock() - node.tcp_checked_s >= pause_s

    def _check_tcp(self, node: Node) -> None:
        if not node.reported.get("tcp_port"):
            return
        node.tcp_checked_s = self._clock()
        node.tcp_start_time = node.start_time
        failure = tcp_failure(str(node.reported["broadcast_address"]), int(node.reported["tcp_port"]))
        announced = f"announces the TCP address {tcp_address(node.reported)}, and nothing can connect there"
        node.tcp_failure = f"{announced}: {failure}" if failure else ""

    def _introduce(self, node: Node) -> None:
        """Ask an nsqd for its /info if no nsqlookupd says where it is: at first, and after each failure."""
        address = node.address
        has_address = bool(node.reported.get("tcp_port"))
        if address in self._standbys:
            if not has_address:
                self._standbys[address] = self._info_of(address, address)
        elif not self._lookups:
            is_unknown = address not in self._infos or node.failure
            needs_address = node.role is not None and not has_address
            if needs_address or (self.asks_info and is_unknown):
                self._infos[address] = self._info_of(self._nsqds[address], address)
                self.cluster.add_node(address, self._infos[address])

    def _info_of(self, asked: str, address: str) -> Statistics:
        info: Any = self._upstream.get(asked, "/info")
        return producer_of_info(info, (), address)

    def _read(self, node: Node, body: bytes, heard_s: float) -> None:
        """Process an answer of /stats, unless it is equal to the one before."""
        if self.cluster.nodes.get(node.address) is not node:  # removed in the meantime
            return
        began_s = thread_time()  # CPU time, not time in which other threads had the core
        digest = (len(body), hash(body))
        if digest == node.digest and node.answered_s is not None:
            self.cluster.unchanged(node, heard_s)
        else:
            for _ in self.cluster.observing(node, _statistics(node.address, body), heard_s):
                self._busy_s += thread_time() - began_s
                gevent.sleep(0)  # the answer may be long
                if self.cluster.nodes.get(node.address) is not node:
                    return
                began_s = thread_time()
            node.digest = digest
        self._busy_s += thread_time() - began_s


def _statistics(address: str, body: bytes) -> Any:
    """Return the JSON of an answer of /stats. Raises UpstreamError; if there is too much of it, that says what there is."""
    try:
        return parsed(address, body, in_slices)
    except UpstreamError as error:
        if not isinstance(error.__cause__, TooManyValues):
            raise
        counts = f"{body.count(_TOPIC_KEY):,} topics and {body.count(_CHANNEL_KEY):,} channels"
        raise UpstreamError(
            f"it has {counts}, too many to read: {error.reason}; {_TOO_MUCH_ADVICE}", address
        ) from None


def tcp_failure(host: str, port: int) -> str:
    """Return why a connection fails; empty if it does not. Blocks this greenlet."""
    try:
        with gevent.socket.create_connection((host, port), _TCP_TIMEOUT_S) as sock:
            sock.sendall(MAGIC_V2)  # a client that says nothing is one line more in the log of nsqd
    except TimeoutError:
        return f"no answer within {_TCP_TIMEOUT_S:g} s"
    except (OSError, OverflowError, ValueError) as error:
        return one_line(getattr(error, "strerror", None) or str(error))
    return ""


def clock_ahead_s(date: str, asked_s: float, heard_s: float) -> int:
    """Return by how much a Date header is later than the time of its request and answer; negative if it is earlier."""
    try:
        date_s = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return 0
    return round(max(date_s - heard_s, 0.0) or min(date_s + 1 - asked_s, 0.0))  # a Date is rounded down


def _reported(row: Any) -> Statistics:
    """Return an nsqd as an nsqlookupd describes it, with only its tombstoned topics: /stats has the others."""
    node = producer(row)
    node["topics"] = [topic for topic in node["topics"] or () if topic["tombstoned"]] or None
    return node
