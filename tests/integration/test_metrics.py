"""/metrics as Prometheus reads it, and the dashboard that is made for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nsqd_py.cluster.problems.kinds import INFO, KINDS
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION
from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import NsqdProcess, wait_until

pytestmark = pytest.mark.ours

CONTRIB = Path(__file__).parents[2] / "contrib"
DASHBOARD = CONTRIB / "grafana" / "nsqd.json"
ALERTS = CONTRIB / "prometheus"
# What expressions consist of next to metrics and labels.
PROMQL = (
    "absent|and|by|changes|deriv|histogram_quantile|increase|label_values|max|min|on|or|rate|sum|time|unless"
)
# A metric that Prometheus adds for each target.
UP = {"up"}

Labels = frozenset[tuple[str, str]]


class Scrape:
    """One answer of /metrics."""

    def __init__(self, nsqd: NsqdProcess) -> None:
        answer = nsqd.http("GET", "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in self.families.values():
            for sample in family.samples:
                of_name = self.samples.setdefault(sample.name, {})
                assert frozenset(sample.labels.items()) not in of_name, (
                    f"{sample.name} has {sample.labels} twice"
                )
                of_name[frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name][frozenset(labels.items())]

    def sum(self, name: str) -> float:
        return sum(self.samples[name].values())


# For most of these tests: each uses topics of its own.
nsqd = module_nsqd("--e2e-processing-latency-percentile=0.99,0.5", "--sync-timeout=10ms")


def test_topics_and_channels(nsqd):
    nsqd.create("orders", "c")
    nsqd.create("held", "c")
    nsqd.post("/topic/pause?topic=held")
    nsqd.post("/pub?topic=held", b"four")
    with nsqd.consumer("orders", "c", 3) as client:
        client.mpub("orders", [b"1", b"22", b"333", b"4444", b"55555", b"666666"])
        client.dpub("orders", 60_000, b"later")
        first, second, _ = (client.message() for _ in range(3))
        client.send(b"REQ " + second.id + b" 60000\n")
        client.fin(first)
        nsqd.wait_for_channel("orders", "c", in_flight_count=3, depth=1, deferred_count=2)
        scrape = Scrape(nsqd)
    of_topic = {
        name: scrape.value(f"nsqd_topic_{name}", topic="orders")
        for name in ("messages_total", "message_bytes_total", "depth", "backend_depth", "paused")
    }
    assert of_topic == {
        "messages_total": 7,
        "message_bytes_total": 26,
        "depth": 0,
        "backend_depth": 0,
        "paused": 0,
    }
    assert (
        scrape.value("nsqd_topic_paused", topic="held") == scrape.value("nsqd_topic_depth", topic="held") == 1
    )
    expected = {
        "messages_total": 7,
        "requeued_total": 1,
        "timed_out_total": 0,
        "lost_total": 0,
        "depth": 1,
        "backend_depth": 0,
        "in_flight": 3,
        "deferred": 2,
        "clients": 1,
        "paused": 0,
    }
    assert {
        name: scrape.value(f"nsqd_channel_{name}", topic="orders", channel="c") for name in expected
    } == expected
    for quantile in ("0.99", "0.5"):
        assert (
            0
            < scrape.value("nsqd_channel_e2e_latency_seconds", topic="orders", channel="c", quantile=quantile)
            < 60
        )
        assert 0 < scrape.value("nsqd_topic_e2e_latency_seconds", topic="orders", quantile=quantile) < 60
    assert scrape.value("nsqd_log_bytes", topic="orders") > 20
    assert scrape.value("nsqd_log_files", topic="orders") == 1
    assert scrape.value("nsqd_topic_memory_bytes", topic="orders") > 20
    assert scrape.value("nsqd_memory_bytes", kind="log") <= scrape.sum("nsqd_memory_limit_bytes") == 1 << 28
    assert scrape.value("nsqd_memory_bytes", kind="ephemeral") == 0


def test_the_process(nsqd):
    nsqd.post("/pub?topic=synced", b"1")

    for name in ("log_sync_duration", "event_loop_lag"):
        wait_until(lambda name=name: Scrape(nsqd).sum(f"nsqd_{name}_seconds_count"))
    scrape = Scrape(nsqd)
    assert scrape.sum("nsqd_log_sync_duration_seconds_bucket") >= scrape.sum(
        "nsqd_log_sync_duration_seconds_count"
    )
    assert 0 < scrape.sum("nsqd_log_sync_duration_seconds_sum") < 60
    assert scrape.sum("nsqd_log_write_errors_total") == 0
    assert scrape.sum("nsqd_healthy") == 1
    assert 0 < scrape.sum("nsqd_disk_free_bytes") < 1 << 60
    assert 0 < scrape.sum("nsqd_disk_left_ratio") <= 1
    (labels,) = scrape.samples["nsqd_build_info"]
    assert {("version", NSQ_VERSION), ("project_version", PROJECT_VERSION)} < labels
    assert scrape.sum("nsqd_build_info") == 1
    assert scrape.value("nsqd_connections", protocol="http") == 1
    assert 1 << 20 < scrape.sum("process_resident_memory_bytes") < 1 << 32
    assert scrape.sum("process_cpu_seconds_total") > 0
    assert 5 < scrape.sum("process_open_fds") <= scrape.sum("process_max_fds")
    assert scrape.value("python_gc_collections_total", generation="0") > 0


def test_without_percentiles_there_are_no_latencies(make_nsqd):
    nsqd = make_nsqd()
    nsqd.create("t", "c")
    scrape = Scrape(nsqd)
    assert scrape.value("nsqd_channel_depth", topic="t", channel="c") == 0
    assert not [name for name in scrape.families if "latency" in name]


# --- the dashboard


def expressions(dashboard: Any) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for each in (panel, *panel.get("panels", ())):
            yield from (target["expr"] for target in each.get("targets", ()))
    yield from (
        variable["query"]["query"]
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    )


def metrics_of(expression: str) -> set[str]:
    """The words of an expression that are neither labels nor part of the language."""
    rest = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", "", expression)
    rest = re.sub(r"\b(by|on)\s*\([^)]*\)", "", rest)
    rest = re.sub(r"label_values\((\w+),\s*\w+\)", r"\1", rest)
    return {word for word in re.findall(r"[a-z_][a-z0-9_]*", rest) if not re.fullmatch(PROMQL, word)}


def declared(scrape: Scrape) -> set[str]:
    """Return all metrics: some have samples only where something was refused, or where there is a standby."""
    counters = {f"{f.name}_total" for f in scrape.families.values() if f.type == "counter"}
    return {*scrape.samples, *scrape.families, *counters}


def alerts(name: str) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((ALERTS / name).read_text("utf-8"))["groups"]
    return group["rules"]


def test_every_metric_of_the_alerts_is_exported(nsqd):
    wanted = set().union(*(metrics_of(rule["expr"]) for rule in alerts("nsqd.yml")))
    assert len(wanted) > 10
    assert wanted - declared(Scrape(nsqd)) == UP


def test_nsqadmin_has_an_alert_for_every_kind_of_problem():
    rules = alerts("nsqadmin.yml")
    kinds = [kind for rule in rules for kind in re.findall('kind="([a-z_]+)"', rule["expr"])]
    assert kinds == [kind for kind, info in KINDS.items() if info.severity != INFO]
    assert set().union(*(metrics_of(rule["expr"]) for rule in rules)) == {
        "nsqadmin_problem",
        "nsqadmin_topics",
    }


def test_every_metric_of_the_dashboard_is_exported(nsqd):
    nsqd.create("of-the-dashboard", "c")
    wanted = set().union(*map(metrics_of, expressions(json.loads(DASHBOARD.read_text("utf-8")))))
    assert len(wanted) > 20
    assert wanted - declared(Scrape(nsqd)) == UP
