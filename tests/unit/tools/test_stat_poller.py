"""nsq-stat's requests: to all nsqd at the same time, none of them delaying the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent.event import Event

from nsq_tools.stat.figures import Counts, Name, Reading
from nsq_tools.stat.model import Model
from nsq_tools.stat.poller import Poller, Round, Sources, shown_address
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, Url

FAST_S = 0.05
ARCHIVE = Name("orders", "archive")


class FakeSources:
    """nsqd that answer at once, fail (`reasons`), or wait for an event (`held`); one nsqlookupd that names `named`."""

    def __init__(self) -> None:
        self.held: dict[str, Event] = {}
        self.reasons: dict[str, str] = {}
        self.named: list[str] = []
        self.asked: list[str] = []

    def reading(self, address: str) -> Reading:
        self._answer(address)
        return Reading(address, float(len(self.asked)), 1, {ARCHIVE: Counts(depth=1)}, frozenset())

    def nodes(self, address: str) -> list[str]:
        self._answer(address)
        return list(self.named)

    def _answer(self, address: str) -> None:
        self.asked.append(address)
        if address in self.held:
            self.held[address].wait()
        if address in self.reasons:
            raise HttpClientError(self.reasons[address])


@pytest.fixture
def sources() -> FakeSources:
    return FakeSources()


MakePoller = Callable[..., Poller]


@pytest.fixture
def make_poller(sources: FakeSources) -> Iterator[MakePoller]:
    pollers: list[Poller] = []

    def make(*nsqd: str, lookupd: tuple[str, ...] = ()) -> Poller:
        pollers.append(Poller(sources, nsqd, lookupd))  # type: ignore[arg-type]
        return pollers[-1]

    yield make
    for poller in pollers:
        poller.close()


def answered(poller: Poller, limit_s: float | None = None) -> list[str]:
    return [reading.node for reading in poller.round(limit_s).readings]


def test_all_are_asked_once_a_round(make_poller: MakePoller, sources: FakeSources) -> None:
    poller = make_poller("a", "b", "a")
    assert answered(poller) == ["a", "b"]
    assert answered(poller, FAST_S) == ["a", "b"]
    assert sorted(sources.asked) == ["a", "a", "b", "b"]


def test_who_fails_is_told_with_the_reason(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.reasons["b"] = "Connection refused"
    poller = make_poller("a", "b")
    found = poller.round(None)
    assert (found.nodes, found.failed) == (["a", "b"], {"b": "Connection refused"})
    assert found.failures == [("nsqd b", "Connection refused")]
    sources.reasons.clear()
    assert poller.round(None).failures == []


def test_who_is_late_delays_one_round_only(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.held["b"] = Event()
    poller = make_poller("a", "b")
    found = poller.round(FAST_S)
    assert ([reading.node for reading in found.readings], list(found.late)) == (["a"], ["b"])
    began_s = time.monotonic()
    found = poller.round(limit_s=10.0)
    assert time.monotonic() - began_s < 5.0
    assert ([reading.node for reading in found.readings], list(found.late)) == (["a"], ["b"])
    assert sources.asked.count("b") == 1  # its first answer is still awaited
    sources.held.pop("b").set()
    gevent.sleep(0)
    assert answered(poller, 10.0) == ["a", "b"]


def test_who_is_late_for_long_is_told() -> None:
    assert Round(["a", "b"], late={"a": 0.9, "b": 3.2}).failures == [("nsqd b", "no answer for 3s")]


def test_without_a_limit_everyone_is_awaited(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.held["b"] = Event()
    poller = make_poller("a", "b")
    poller.round(FAST_S)
    gevent.spawn_later(FAST_S, sources.held["b"].set)
    assert sorted(answered(poller)) == ["a", "b"]


def test_nsqlookupds_name_nsqd_that_come_and_go(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.named = ["a", "b"]
    poller = make_poller(lookupd=("lookupd",))
    assert answered(poller) == ["a", "b"]
    sources.named = ["b", "c"]
    found = poller.round(None)
    assert ([reading.node for reading in found.readings], found.gone) == (["b", "c"], ["a"])
    sources.reasons["lookupd"] = "down"
    found = poller.round(None)  # what it said last still holds
    assert [reading.node for reading in found.readings] == ["b", "c"]
    assert found.failures == [("nsqlookupd lookupd", "down")]


def test_a_nsqlookupd_that_hangs_delays_the_first_round_only(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.named = ["a"]
    sources.held["hangs"] = Event()
    poller = make_poller(lookupd=("works", "hangs"))
    assert answered(poller, FAST_S) == ["a"]
    began_s = time.monotonic()
    assert answered(poller, 10.0) == ["a"]
    assert time.monotonic() - began_s < 5.0


def test_the_model_hears_of_all_of_it(make_poller: MakePoller, sources: FakeSources) -> None:
    sources.named = ["a", "b", "c"]
    poller, model = make_poller(lookupd=("lookupd",)), Model(per_node=True)
    poller.round(None).apply_to(model)
    sources.named, sources.reasons = ["a", "b"], {"b": "down"}
    poller.round(None).apply_to(model)
    assert [row.node for row in model.end_round()] == ["a"]


# --- one request


class FakeClient:
    """Answers by URL; an exception is raised."""

    def __init__(self, answers: dict[str, object]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def ask(self, url: Url) -> object:
        self.asked.append(f"{url.place}{url.path}")
        answer = self._answers[url.place]
        if isinstance(answer, Exception):
            raise answer
        return answer


def sources_with(answers: dict[str, object], topic: str = "", channel: str = "") -> tuple[Sources, FakeClient]:
    client = FakeClient(answers)
    as_client: HttpClient = client  # type: ignore[assignment]
    return Sources(as_client, topic, channel, clock=lambda: 5.0), client


STATS = {"start_time": 1, "topics": []}


def test_the_question_names_topic_and_channel() -> None:
    sources, client = sources_with({"http://a:1": STATS}, "t", "c")
    assert sources.reading("a:1") == Reading("a:1", 5.0, 1, {}, frozenset())
    assert client.asked == ["http://a:1/stats?format=json&topic=t&channel=c&include_clients=false"]


def test_a_server_that_wants_https_is_asked_so() -> None:
    refusal = BadStatus(403, "Forbidden", b'{"message": "TLS_REQUIRED", "https_port": 2}')
    sources, client = sources_with({"http://a:1": refusal, "https://a:2": STATS})
    assert sources.reading("a:1").node == "a:1"
    assert [url.partition("/stats")[0] for url in client.asked] == ["http://a:1", "https://a:2"]


@pytest.mark.parametrize("answer", [BadStatus(403, "No", b"no"), BadStatus(500, "Error", b""), [], {"topics": 1}])
def test_what_cannot_be_used_is_a_failure(answer: object) -> None:
    sources, _ = sources_with({"http://a:1": answer})
    with pytest.raises(HttpClientError):
        sources.reading("a:1")


def test_nsqlookupd_names_http_addresses() -> None:
    producers = [
        {"broadcast_address": "host", "http_port": 1},
        {"broadcast_address": "::1", "http_port": 2},
        {"broadcast_address": "host", "http_port": 1},
    ]
    sources, client = sources_with({"http://l:1": {"producers": producers}})
    assert sources.nodes("l:1") == ["host:1", "[::1]:2"]
    assert client.asked == ["http://l:1/nodes"]


def test_a_topic_that_nsqlookupd_does_not_know_has_no_nsqd() -> None:
    unknown = BadStatus(404, "Not Found", b'{"message": "TOPIC_NOT_FOUND"}')
    sources, client = sources_with({"http://l:1": unknown}, topic="t")
    assert sources.nodes("l:1") == []
    assert client.asked == ["http://l:1/lookup?topic=t"]
    with pytest.raises(BadStatus):
        sources_with({"http://l:1": unknown})[0].nodes("l:1")


def test_a_password_is_never_shown() -> None:
    assert shown_address("https://user:secret@host:1") == "host:1"
    sources, _ = sources_with({"https://host:1": STATS})
    assert sources.reading("https://user:secret@host:1").node == "host:1"
