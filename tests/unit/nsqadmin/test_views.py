"""What nsqadmin makes of the answers of many nsqds."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqadmin_py.cluster import node_views, views
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.views import Page
from nsqadmin_py.history.series import History, Key, records
from nsqadmin_py.permissions import VIEW, Grant, Scope
from nsqadmin_py.web.events import Reader
from nsqadmin_py.web.node_queries import answer_of_each, ask_nodes
from nsqadmin_py.web.views_api import Views, ViewsOfUsers
from nsqd_py.cluster.model import FORGET_AFTER_S, BadStats, Cluster, Node
from nsqd_py.cluster.problems import states
from tests.support.examples import examples
from tests.support.fake_nsqd import CHANNEL_COUNTS

ROUND_S = 2.0


def channel(name: str, **counts: Any) -> dict[str, Any]:
    statistics = dict.fromkeys(CHANNEL_COUNTS, 0)
    latency = {"count": 0, "percentiles": None}
    return {"channel_name": name, **statistics, "paused": False, "e2e_processing_latency": latency, **counts}


def topic(name: str, *channels: dict[str, Any], **counts: Any) -> dict[str, Any]:
    statistics = {"depth": 0, "backend_depth": 0, "message_count": 0, "paused": False}
    return {"topic_name": name, **statistics, "channels": list(channels), **counts}


def stats(*topics: dict[str, Any], start_time: int = 1) -> dict[str, Any]:
    return {"version": "1.3.0", "health": "OK", "start_time": start_time, "topics": list(topics)}


class Cluster2(Cluster):
    """A cluster whose rounds a test makes: `say` what nsqds answer at a time."""

    def say(self, now_s: float, **answers: dict[str, Any]) -> None:
        for address, answer in answers.items():
            list(self.observing(self.add_node(address, {}), answer, now_s))
        list(self.ending_round(now_s, ROUND_S))
        self.tick += 1

    def row(self, name: str) -> dict[str, Any]:
        return views.topic(self, name, 0.0, Findings()).head


def test_an_nsqd_that_is_known_not_to_answer_is_not_asked() -> None:
    cluster = Cluster2()
    now_s = monotonic()
    cluster.say(now_s, up=stats(topic("orders")), down=stats(topic("orders")), silent=stats(topic("orders")))
    cluster.fail(cluster.nodes["down"], "connection refused")
    cluster.nodes["silent"].answered_s, cluster.nodes["silent"].is_whole = now_s - 60, False
    asked: list[str] = []

    def ask(address: str) -> dict[str, Any]:
        asked.append(address)
        return {"depth": 1}

    found = answer_of_each(cluster, ask_nodes(cluster, "orders", "", ""), ask)
    assert asked == ["up"]
    assert found == [
        {"node": "up", "answer": {"depth": 1}, "can": True},
        {"node": "down", "error": "does not answer: connection refused", "can": True},
        {"node": "silent", "error": "does not answer", "can": True},
    ]


# ---- sums and rates


def test_rates_are_of_each_nsqds_own_time() -> None:
    cluster = Cluster2()
    cluster.say(10.0, a=stats(topic("t", message_count=100)), b=stats(topic("t", message_count=0)))
    cluster.say(12.0, a=stats(topic("t", message_count=120)))  # 10 a second; b is late
    # And 1 a second.
    cluster.say(14.0, a=stats(topic("t", message_count=140)), b=stats(topic("t", message_count=4)))
    assert cluster.row("t")["message_rate"] == 11.0
    cluster.say(16.0, a=stats(topic("t", message_count=140)), b=stats(topic("t", message_count=4)))
    assert cluster.row("t")["message_rate"] == 0.0


def test_the_first_message_of_an_idle_channel_has_a_rate() -> None:
    cluster = Cluster2()
    cluster.say(10.0, a=stats(topic("t", channel("c"))))
    cluster.say(12.0, a=stats(topic("t", channel("c"))))
    cluster.say(14.0, a=stats(topic("t", channel("c", message_count=2, requeue_count=4, timeout_count=6))))
    row = cluster.row("t")
    assert (row["finish_rate"], row["requeue_rate"], row["timeout_rate"]) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("start_time", [1, 2], ids=["deleted and made again", "restarted"])
def test_a_count_that_began_anew_makes_no_rate(start_time: int) -> None:
    cluster = Cluster2()
    cluster.say(10.0, a=stats(topic("t", channel("c", message_count=100), message_count=100)))
    cluster.say(
        12.0, a=stats(topic("t", channel("c", message_count=90), message_count=90), start_time=start_time)
    )
    assert cluster.row("t")["message_rate"] == cluster.row("t")["finish_rate"] == 0.0
    assert views.channel(cluster, "t", "c", 12.0, Findings()).head["message_rate"] == 0.0


@pytest.mark.parametrize("clients", [0, 1])
def test_emptying_a_channel_is_not_finishing(clients: int) -> None:
    cluster = Cluster2()
    waiting = {"message_count": 100, "finish_count": 10, "client_count": clients}
    cluster.say(10.0, a=stats(topic("t", channel("c", depth=90, **waiting))))
    cluster.say(12.0, a=stats(topic("t", channel("c", **waiting))))
    assert cluster.row("t")["finish_rate"] == 0.0
    cluster.say(
        14.0, a=stats(topic("t", channel("c", **waiting | {"message_count": 104, "finish_count": 14})))
    )
    assert cluster.row("t")["finish_rate"] == 2.0


def test_the_oldest_message_of_all_nsqds_counts() -> None:
    cluster = Cluster2()
    ages = [channel("c", depth=1, oldest_timestamp=time_ns) for time_ns in (9_000_000_000, 7_000_000_000)]
    cluster.say(
        10.0, a=stats(topic("t", ages[0])), b=stats(topic("t", ages[1])), c=stats(topic("t", channel("c")))
    )
    assert views.channel(cluster, "t", "c", 10.0, Findings()).head["oldest_s"] == 7.0
    assert cluster.row("t")["oldest_s"] == 7.0
    cluster.say(12.0, b=stats(topic("t", channel("c"))))
    assert cluster.row("t")["oldest_s"] == 9.0
    cluster.say(14.0, a=stats(topic("t", channel("c"))))
    assert cluster.row("t")["oldest_s"] is None


def test_sums_and_rates_are_not_known_until_all_nsqds_have_answered_twice() -> None:
    cluster = Cluster2()
    shared = Views(cluster, Findings(), lambda: 12.0)
    cluster.add_node("b", {})
    cluster.say(10.0, a=stats(topic("t", message_count=10)))
    cluster.say(12.0, a=stats(topic("t", message_count=20)))
    assert not cluster.is_settled
    assert shared.document({"view": "overview"})["message_rate"] is None
    assert shared.document({"view": "topics"})["rows"][0]["message_rate"] is None
    cluster.fail(cluster.nodes["b"], "Connection refused")
    cluster.say(14.0, a=stats(topic("t", message_count=30)))
    assert cluster.is_settled
    assert shared.document({"view": "overview"})["message_rate"] == 5.0


def test_an_nsqd_that_hangs_at_the_start_is_not_waited_for_for_long() -> None:
    cluster = Cluster2()
    cluster.add_node("b", {})
    cluster.say(10.0, a=stats())
    cluster.say(12.0, a=stats())
    assert not cluster.is_settled
    cluster.say(41.0, a=stats())
    assert cluster.is_settled


def timed(value_ns: int) -> dict[str, Any]:
    return {"count": 5, "percentiles": [{"quantile": 0.5, "value": 1}, {"quantile": 0.99, "value": value_ns}]}


def recorded(cluster: Cluster, key: Key) -> tuple[float, float, tuple[float, ...]]:
    """Both latencies that go into the history, and the quantiles that they are of."""
    values, quantiles = next(
        (values, quantiles) for found, values, quantiles in records(cluster) if found == key
    )
    return values["latency_0"], values["latency_1"], quantiles


def test_the_worst_latency_of_all_nsqds_counts() -> None:
    cluster = Cluster2()
    slow, slower = (stats(topic("t", channel("c", e2e_processing_latency=timed(ns)))) for ns in (7, 9))
    cluster.say(10.0, a=slow, b=slower)
    assert views.channel(cluster, "t", "c", 0.0, Findings()).head["latency"] == [
        {"quantile": 0.99, "ns": 9.0},
        {"quantile": 0.5, "ns": 1.0},
    ]
    assert recorded(cluster, Key("t", "c")) == (9.0, 1.0, (0.99, 0.5))


# ---- what comes and goes


def test_an_nsqd_that_is_silent_keeps_its_figures_for_a_while() -> None:
    cluster = Cluster2()
    cluster.say(10.0, a=stats(topic("t")))
    cluster.say(12.0, a=stats(topic("t", message_count=10)))
    node = cluster.nodes["a"]
    cluster.fail(node, "Connection refused")
    cluster.say(20.0)
    assert (cluster.row("t")["messages"], cluster.row("t")["message_rate"]) == (10, 0.0)
    assert states.state_of(node, 20.0) == states.FAILED
    cluster.say(12.0 + FORGET_AFTER_S + 1)
    assert cluster.topics == {}
    cluster.say(60.0, a=stats(topic("t", message_count=12)))
    assert cluster.row("t")["messages"] == 12
    assert states.state_of(node, 60.0) == states.OK


@pytest.mark.parametrize(
    "document",
    [
        [],
        None,
        {"topics": 5},
        {"topics": [{}]},
        stats(topic("t", depth="1")),
        stats(topic("t", channel("c", oldest_timestamp=-1))),
        stats(topic("t", oldest_timestamp="x")),
        stats(topic("t", depth=2**63)),
        stats(topic("t", message_count=1e308)),
        stats(
            topic(
                "t",
                channel(
                    "c",
                    e2e_processing_latency={"count": 1, "percentiles": [{"quantile": 0.9, "value": "nan"}]},
                ),
            )
        ),
        stats(topic("t", channel("c", depth=None))),
        stats(topic(["t"])),
        stats(topic("t", channel(""))),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_answer_of_an_nsqd_is_refused(document: Any) -> None:
    cluster = Cluster2()
    cluster.say(10.0, a=stats(topic("t", message_count=3)))
    with pytest.raises(BadStats):
        list(cluster.observing(cluster.nodes["a"], document, 12.0))
    cluster.say(14.0, a=stats(topic("t", message_count=4)))
    assert cluster.row("t")["messages"] == 4


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["t", "u", "\n", "\u2028", "__proto__"]) | ANYTHING
LATENCIES = st.fixed_dictionaries(
    {
        "count": st.just(1) | ANYTHING,
        "percentiles": st.lists(
            st.fixed_dictionaries({"quantile": st.just(0.99) | ANYTHING, "value": ANYTHING}), max_size=2
        ),
    }
)


def hostile(good: dict[str, Any], **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Such a row, with anything in the place of some statistics."""
    changes = st.dictionaries(st.sampled_from(sorted(good)), ANYTHING, max_size=2)
    named = st.fixed_dictionaries(parts)
    return st.builds(lambda change, name: good | name | change, changes, named)


OWN = channel("c", finish_count=0, oldest_timestamp=0)
HOSTILE_CHANNELS = hostile(OWN, channel_name=NAMES, e2e_processing_latency=LATENCIES | ANYTHING)
HOSTILE_TOPICS = hostile(
    topic("t"), topic_name=NAMES, channels=st.lists(HOSTILE_CHANNELS, max_size=2) | ANYTHING
)
HOSTILE_STATS = hostile(stats(), topics=st.lists(HOSTILE_TOPICS, max_size=2))


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.sampled_from("ab"), HOSTILE_STATS | ANYTHING), max_size=6))
def test_nothing_that_an_nsqd_answers_breaks_the_views(answers: list[tuple[str, Any]]) -> None:
    cluster, history, findings, now_s = Cluster2(), History(), Findings(), 10.0
    cluster.say(now_s, a=stats(topic("t", channel("c"))), b=stats(topic("t", channel("c"))))
    for address, document in answers:
        now_s += ROUND_S
        with suppress(BadStats):
            list(cluster.observing(cluster.nodes[address], document, now_s))
        cluster.say(now_s)
        history.record(now_s, records(cluster))
        findings.note_round(cluster, now_s, now_s)
        seen = [views.overview(cluster, now_s, findings), node_views.nodes(cluster, now_s, findings.memory)]
        seen += [views.topic_list(cluster, Page(), findings), findings.attention.view()]
        seen += [node_views.node(cluster, name, now_s, findings.memory) for name in cluster.nodes]
        seen += [views.topic(cluster, name, now_s, findings) for name in cluster.topics]
        parts = [(name, part) for name, row in cluster.topics.items() for part in row.channels]
        seen += [views.channel(cluster, name, part, now_s, findings) for name, part in parts]
        for view in seen:
            assert b"\n" not in orjson.dumps([view.head, view.rows])


COUNTS = st.integers(0, 3)
CHANNELS = st.dictionaries(st.sampled_from("cd"), st.tuples(COUNTS, COUNTS), max_size=2)
TOPICS = st.dictionaries(st.sampled_from("tu"), st.tuples(COUNTS, CHANNELS), max_size=2)
ROUNDS = st.lists(st.dictionaries(st.sampled_from("ab"), TOPICS, max_size=2), max_size=8)


@given(ROUNDS)
def test_sums_are_always_those_of_what_was_said_last(rounds: list[dict[str, dict[str, Any]]]) -> None:
    cluster, said, now_s = Cluster2(), dict[str, dict[str, Any]](), 10.0
    for answers in rounds:
        said |= answers
        now_s += ROUND_S
        cluster.say(
            now_s,
            **{
                address: stats(
                    *(
                        topic(
                            name,
                            *(channel(key, depth=d, message_count=m) for key, (d, m) in channels.items()),
                            depth=depth,
                        )
                        for name, (depth, channels) in topics.items()
                    )
                )
                for address, topics in answers.items()
            },
        )
        if any(address not in answers for address in said):
            continue  # metrics of the silent are kept; those that answered are checked below
        for name in "tu":
            parts = [topics[name] for topics in said.values() if name in topics]
            if not parts:
                assert name not in cluster.topics
                continue
            depth = sum(own + sum(d for d, _ in channels.values()) for own, channels in parts)
            assert cluster.row(name)["depth"] == depth
            assert cluster.topics[name].channels.keys() == {key for _, channels in parts for key in channels}
        total = sum(
            own + sum(d for d, _ in chs.values()) for topics in said.values() for own, chs in topics.values()
        )
        assert views.overview(cluster, now_s, Findings()).head["depth"] == total


# ---- views


def test_states_of_nsqds() -> None:
    cluster = Cluster2()
    node: Node = cluster.add_node("a", {})
    assert states.state_of(node, 10.0) == states.NEW
    node.is_slow = True
    assert states.state_of(node, 10.0) == states.SLOW
    node.is_slow = False
    cluster.say(10.0, a=stats())
    assert states.state_of(node, 60.0) == states.OK  # no one has asked since
    node.asked_s = 61.0
    assert states.state_of(node, 62.0) == states.OK
    assert states.state_of(node, 67.0) == states.SLOW


# ---- what a reader of events is found


def test_a_reader_that_missed_rounds_misses_no_change() -> None:
    cluster, reader = Cluster2(), Reader()
    cluster.say(10.0, a=stats(topic("t"), topic("u")))
    reader.news(views.topic_list(cluster, Page(), Findings()))
    cluster.say(12.0, a=stats(topic("t", message_count=1), topic("u")))
    cluster.say(14.0, a=stats(topic("t", message_count=1), topic("u", depth=1)))
    found = reader.news(views.topic_list(cluster, Page(), Findings()))
    assert found is not None
    assert found["rows"].keys() == {"t", "u"}


# --- the cluster as users see it who may not view all topics


def test_what_an_nsqd_reports_of_its_health_may_name_a_topic() -> None:
    cluster = Cluster2()
    cluster.say(100.0, a=stats() | {"health": "NOK - the log of secret cannot be written"})
    views = ViewsOfUsers(Views(cluster, Findings(), lambda: 100.0)).of(Scope((Grant(VIEW, "orders*"),)))
    assert views.read({"view": "node", "node": "a"}).head["health"] == "NOK"


def test_rows_are_sorted_by_their_harm() -> None:
    """Errors before warnings, of equal ones that with more messages, then what is well by name."""
    cluster, findings = Cluster2(), Findings()
    well = channel("c", client_count=1)
    answer = stats(
        topic("b-well", well),
        topic("a-well", well),
        topic("paused", channel("c", paused=True, depth=99)),
        topic("few", channel("c", depth=3)),
        topic("many", channel("idle"), channel("c", depth=7)),
    )
    for now_s in (1.0, 40.0):
        cluster.say(now_s, a=answer)
        findings.note_round(cluster, now_s, 1e9 + now_s)
    page = Page.read({"sort": "harm"}, views.SORTS)
    shown = views.topic_list(cluster, Page.read({"sort": "harm"}), findings)
    assert list(shown.rows) == ["many", "few", "paused", "a-well", "b-well"]
    rows = views.channel_list(cluster, page, findings).rows.values()
    assert [f"{row['topic']}/{row['channel']}" for row in rows] == [
        "many/c", "few/c", "paused/c", "a-well/c", "b-well/c", "many/idle",
    ]  # fmt: skip
    upwards = views.topic_list(cluster, Page.read({"sort": "harm", "order": "asc"}), findings)
    assert list(upwards.rows)[:2] == ["a-well", "b-well"]
