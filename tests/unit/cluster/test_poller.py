"""How nsqadmin asks: all at the same time, and nobody waits for those that are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from time import monotonic
from typing import Any

import gevent
import orjson
import pytest
from gevent.event import Event

from nsqadmin_py.cluster import views
from nsqadmin_py.cluster.findings import Findings
from nsqd_py.cluster.admin_client import Answer, UpstreamError
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller, clock_ahead_s
from nsqd_py.cluster.producers import SharedAddress
from nsqd_py.cluster.upstream import AnswerBudget
from nsqd_py.net.http import AnswerTooLong

INTERVAL_S = 1.6  # so a round waits for at most 0.8 s


class Servers:
    """Stands in for all nsqlookupds and nsqds: `answers` has what each says, an error, or what it waits for."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.queries: list[Any] = []
        self.delay_s = 0.0
        self.date = ""

    def answer(self) -> AbstractContextManager[Answer]:
        return AnswerBudget().answer()

    def get_bytes(
        self, answer: Answer, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        self.asked.append(f"{address}{path}")
        self.queries.append(query)
        gevent.sleep(self.delay_s)
        answer.date = self.date
        answer = self.answers[f"{address}{path}"]
        if isinstance(answer, Event):
            answer.wait()
            raise UpstreamError("too late")
        if isinstance(answer, UpstreamError):
            raise answer
        return orjson.dumps(answer)

    def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        return orjson.loads(self.get_bytes(self.answer(), address, path, query))


@pytest.fixture
def servers() -> Servers:
    return Servers()


MakePoller = Callable[..., ClusterPoller]


@pytest.fixture
def poller(servers: Any) -> Iterator[MakePoller]:
    """`poller(lookupds=…, nsqds=…)` asks these servers; it has asked once when it is returned."""
    with ExitStack() as stack:

        def make(
            *, lookupds: tuple[str, ...] = (), nsqds: tuple[str, ...] = (), **asked: Any
        ) -> ClusterPoller:
            made = ClusterPoller(
                Cluster(),
                servers,
                lookupds,
                nsqds,
                INTERVAL_S,
                int,
                raise_again,
                **{"asks_info": True} | asked,
            )
            stack.callback(made.close)
            made.round()
            return made

        yield make


def raise_again(error: Exception) -> None:
    raise error


def stats(**messages: int) -> dict[str, Any]:
    topics = [
        {
            "topic_name": name,
            "depth": count,
            "backend_depth": 0,
            "message_count": count,
            "paused": False,
            "channels": [],
        }
        for name, count in messages.items()
    ]
    return {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": topics}


def named(*hosts: str) -> dict[str, Any]:
    return {
        "producers": [
            {"broadcast_address": host, "tcp_port": 1, "http_port": 2, "topics": []} for host in hosts
        ]
    }


def depth(asker: ClusterPoller) -> int:
    return int(views.overview(asker.cluster, monotonic(), Findings()).head["depth"])


def test_nsqds_that_announce_one_address_are_noticed_and_asked_where_they_can_be_reached(
    servers: Servers, poller: MakePoller
) -> None:
    row = {"broadcast_address": "a", "hostname": "h", "tcp_port": 1, "http_port": 2}
    again = [
        row | {"remote_address": "x:1", "topics": ["t"]},
        row | {"remote_address": "x:2", "topics": ["t"]},
    ]
    servers.answers = {"l/nodes": {"producers": again}, "a:2/stats": stats(t=1), "a:3/stats": stats(t=2)}
    asker = poller(lookupds=("l",))
    assert asker.cluster.shared == {}  # one nsqd, with two connections to nsqlookupd
    others = [row | {"remote_address": "x:3", "topics": ["u"]}, row | {"http_port": 3, "topics": []}]
    servers.answers["l/nodes"] = {"producers": again + others}
    asker.round()
    assert asker.cluster.shared == {
        "a:2": SharedAddress("a:2", 2, ("t", "u")),
        "a:1": SharedAddress("a:2", 2, ()),
    }
    assert depth(asker) == 3
    asker.set_lookupds([])
    asker.round()
    assert asker.cluster.shared == {}


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Tue, 14 Nov 2023 22:13:22 GMT", 0),
        ("Tue, 14 Nov 2023 22:18:22 GMT", 300),
        ("Tue, 14 Nov 2023 22:08:19 GMT", -300),
        ("", 0),
        ("soon", 0),
        ("Tue, 14 Nov 99999 22:13:20 GMT", 0),
    ],
)
def test_the_clock_of_an_nsqd_is_compared_with_the_time_of_its_request_and_answer(
    date: str, ahead_s: int
) -> None:
    assert clock_ahead_s(date, 1_700_000_000.0, 1_700_000_002.0) == ahead_s  # 22:13:20 and 22:13:22


def test_an_nsqd_that_no_nsqlookupd_lists_any_more_is_asked_as_long_as_it_answers(
    servers: Servers, poller: MakePoller
) -> None:
    servers.answers = {"l/nodes": named("a", "b"), "a:2/stats": stats(t=1), "b:2/stats": stats(t=2)}
    asker = poller(lookupds=("l",))
    servers.answers["l/nodes"] = named("b")
    asker.round()
    assert (depth(asker), asker.cluster.nodes["a:2"].is_listed) == (3, False)
    servers.answers["l/nodes"] = named("a", "b")
    asker.round()
    assert asker.cluster.nodes["a:2"].is_listed
    servers.answers |= {"l/nodes": named("b"), "a:2/stats": UpstreamError("Connection refused")}
    asker.round()
    assert asker.cluster.nodes["a:2"].failure == "Connection refused"
    asker.round()
    assert asker.cluster.nodes.keys() == {"b:2"}


def test_an_nsqd_of_an_nsqlookupd_that_was_removed_is_asked_no_more(
    servers: Servers, poller: MakePoller
) -> None:
    servers.answers = {
        "l1/nodes": named("a"),
        "l2/nodes": named("b"),
        "a:2/stats": stats(t=1),
        "b:2/stats": stats(t=2),
    }
    asker = poller(lookupds=("l1", "l2"))
    asker.set_lookupds(["l2"])
    asker.round()
    assert asker.cluster.nodes.keys() == {"b:2"}


def test_an_nsqd_that_was_late_once_is_waited_for_again(servers: Servers, poller: MakePoller) -> None:
    servers.answers["n1:1/info"] = {
        "broadcast_address": "n1",
        "http_port": 1,
        "tcp_port": 2,
        "hostname": "n1",
    }
    slow = Event()
    servers.answers["n1:1/stats"] = slow
    asking = poller(nsqds=("n1:1",))
    (node,) = asking.cluster.nodes.values()
    assert node.is_late
    slow.set()
    servers.answers["n1:1/stats"], servers.delay_s = stats(orders=1), 0.001
    with gevent.Timeout(40):
        while node.is_late:
            asking.round()


def test_only_a_topic_and_its_nsqds_may_be_asked_for(servers: Servers, poller: MakePoller) -> None:
    servers.answers = {
        "l/lookup": named("a"),
        "a:2/stats": stats(t=1),
        "m/lookup": UpstreamError("no", "", 404),
    }
    asker = poller(lookupds=("l", "m"), topic="t", channel="c")
    assert (depth(asker), asker.cluster.failed_lookups) == (1, {})
    others = {"include_clients": "false", "include_mem": "false"}
    assert servers.queries == [{"topic": "t"}] * 2 + [
        {"format": "json", "topic": "t", "channel": "c"} | others
    ]


def test_an_answer_that_is_no_nsqds_is_a_failure_of_that_nsqd_only(
    servers: Servers, poller: MakePoller
) -> None:
    servers.answers = {"l/nodes": named("a", "b"), "a:2/stats": {"topics": 5}, "b:2/stats": stats(t=1)}
    asker = poller(lookupds=("l",))
    assert "not that of an nsqd" in asker.cluster.nodes["a:2"].failure
    assert depth(asker) == 1
    servers.answers["a:2/stats"] = stats(t=2)
    asker.round()
    assert (asker.cluster.nodes["a:2"].failure, depth(asker)) == ("", 3)


def test_a_bug_ends_one_round_and_not_all(servers: Any) -> None:
    servers.answers = {"a:2/info": {"broadcast_address": "a", "http_port": 2}, "a:2/stats": stats(t=1)}
    rounds = 0
    bugs = []
    done = Event()

    def on_round() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ZeroDivisionError("a bug")
        done.set()

    asker = ClusterPoller(
        Cluster(), servers, (), ("a:2",), 0.01, on_round, lambda error: bugs.append(repr(error))
    )
    asker.start()
    assert done.wait(40)
    assert bugs == ["ZeroDivisionError('a bug')"]


def stats_of_primary(*standbys: str) -> dict[str, Any]:
    listed = [{"http_address": standby, "is_following": True} for standby in standbys]
    return stats(t=3) | {"standbys": {"acks": 0, "list": listed}}


def stats_of_standby() -> dict[str, Any]:
    return stats() | {"standby": {"primary": "a:1", "state": "following", "is_complete": True}}


def test_a_standby_that_is_gone_is_forgotten_once_its_primary_does_not_name_it(
    servers: Servers, poller: MakePoller
) -> None:
    servers.answers = {
        "a:2/stats": stats_of_primary("b:2"),
        "a:2/info": {"tcp_port": 1},
        "b:2/info": {"tcp_port": 1},
    }
    servers.answers |= {"b:2/stats": stats_of_standby()}
    asker = poller(nsqds=("a:2",))
    asker.round()
    servers.answers["b:2/stats"] = UpstreamError("refused")
    asker.round()
    asker.round()
    assert asker.cluster.nodes["b:2"].failure == "refused"
    servers.answers["a:2/stats"] = stats_of_primary()
    asker.round()
    asker.round()
    assert asker.cluster.nodes.keys() == {"a:2"}


def test_a_standby_of_a_primary_that_is_gone_can_be_named(servers: Servers, poller: MakePoller) -> None:
    servers.answers = {"l/nodes": named(), "b:2/stats": stats_of_standby(), "b:2/info": {"tcp_port": 1}}
    servers.answers["c:2/stats"] = UpstreamError("refused")
    asker = poller(lookupds=("l",))
    asker.add_standbys(["b:2", "c:2"])
    for _ in range(2):
        asker.round()
    assert asker.cluster.nodes.keys() == {"b:2"}


def test_of_many_nsqds_that_do_not_answer_some_are_asked_in_a_round_in_turn(
    servers: Servers, poller: MakePoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsqd_py.cluster.poller._MOST_FAILING", 2)
    gone = [f"gone{number}" for number in range(5)]
    servers.answers = {"l/nodes": named("good", *gone), "good:2/stats": stats(t=1)}
    servers.answers |= {f"{host}:2/stats": UpstreamError("refused") for host in gone}
    asker = poller(lookupds=("l",))
    assert len(servers.asked) == 1 + 6, "each one once"
    asked = []
    for _ in range(3):
        servers.asked.clear()
        asker.round()
        assert "good:2/stats" in servers.asked
        asked += [one for one in servers.asked if one.startswith("gone")]
        assert len(servers.asked) == 4
    assert set(asked) == {f"{host}:2/stats" for host in gone}
    servers.answers["gone3:2/stats"] = stats(t=2)
    for _ in range(3):
        asker.round()
    assert depth(asker) == 3


def test_statistics_with_too_many_values_say_how_many_topics_and_channels_there_are(
    servers: Servers, poller: MakePoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsqd_py.runtime.documents.MAX_VALUES", 10)
    monkeypatch.setattr("nsqd_py.runtime.documents._COUNTED_FROM_BYTES", 10)
    servers.answers = {"a:2/stats": stats(t=1, u=2, v=3), "a:2/info": {"tcp_port": 1}}
    (node,) = poller(nsqds=("a:2",)).cluster.nodes.values()
    assert node.failure.startswith(
        "it has 3 topics and 0 channels, too many to read: the answer has more than 10 values"
    )
    assert "nsq-stat --topic" in node.failure


def test_statistics_that_are_too_long_say_why(servers: Servers, poller: MakePoller) -> None:
    error = UpstreamError("the answer is longer than 9 bytes")
    error.__cause__ = AnswerTooLong()
    servers.answers = {"a:2/stats": error, "a:2/info": {"tcp_port": 1}}
    (node,) = poller(nsqds=("a:2",)).cluster.nodes.values()
    assert node.failure.startswith(
        "the answer is longer than 9 bytes: it has too many topics and channels; nsq-stat"
    )
