"""Programs that speak NSQ: their rules of reading, restated, get what they need from our answers; their configurations.

The rules are those of KEDA's scaler nsq and of fluent-plugin-nsq with nsq-ruby. The keys and types that Telegraf's input
nsq reads are in test_http.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.support.module_servers import module_nsqlookupd
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess

pytestmark = pytest.mark.ours

CONFIGS = REPOSITORY / "contrib/integrations"


lookupd = module_nsqlookupd()


@pytest.fixture(scope="module")
def nsqd(lookupd, make_shared_nsqd) -> NsqdProcess:
    return make_shared_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")


def decoded(value: Any, shape: Any, place: str = "") -> Any:
    """Return what Go's decoder makes of a JSON value: only the fields of `shape`, each of its type.

    It compares names without case. Unlike there, all fields must be in the value: zero would be a wrong measurement.
    """
    if isinstance(shape, list):
        assert value is None or isinstance(value, list), place
        return [decoded(item, shape[0], f"{place}[]") for item in value or ()]
    if not isinstance(shape, dict):
        assert type(value) is shape, f"{place} is {value!r}"
        return value
    found = {}
    for name, inner in value.items():
        if name.lower() in shape:
            found[name.lower()] = decoded(inner, shape[name.lower()], f"{place}.{name}")
    assert found.keys() == shape.keys(), place
    return found


# ---- KEDA


def keda_depth(lookupd: NsqlookupdProcess, nsqd: NsqdProcess, topic: str, channel: str) -> int:
    answer = lookupd.http("GET", f"/lookup?topic={topic}")
    if answer.status == 404:
        return 0
    assert answer.status == 200
    shape = {"producers": [{"http_port": int, "broadcast_address": str}]}
    hosts = {(p["broadcast_address"], p["http_port"]) for p in decoded(answer.json(), shape)["producers"]}
    if not hosts:
        return 0
    assert hosts == {("127.0.0.1", nsqd.http_port)}
    answer = nsqd.http("GET", f"/stats?format=json&include_clients=false&include_mem=false&topic={topic}")
    assert answer.status == 200
    channel_shape = {"channel_name": str, "depth": int, "paused": bool}
    topic_shape = {"topic_name": str, "depth": int, "channels": [channel_shape]}
    depth = 0
    for found in decoded(answer.json(), {"topics": [topic_shape]})["topics"]:
        assert found["topic_name"] == topic
        named = [item for item in found["channels"] if item["channel_name"] == channel]
        depth += sum(item["depth"] for item in named if not item["paused"]) if named else found["depth"]
    return depth


def test_keda_counts_what_waits(lookupd, nsqd):
    assert keda_depth(lookupd, nsqd, "keda", "billing") == 0  # nobody has the topic
    nsqd.pub("keda", b"1", b"2", b"3")
    wait_until(lambda: "keda" in lookupd.topics())
    assert keda_depth(lookupd, nsqd, "keda", "billing") == 3  # of the topic, as long as there is no channel
    nsqd.create("keda", "billing")
    nsqd.wait_for_channel("keda", "billing", depth=3)
    assert keda_depth(lookupd, nsqd, "keda", "billing") == 3
    assert keda_depth(lookupd, nsqd, "keda", "other") == 0
    nsqd.post("/channel/pause?topic=keda&channel=billing")
    assert keda_depth(lookupd, nsqd, "keda", "billing") == 0
    nsqd.post("/channel/unpause?topic=keda&channel=billing")
    with nsqd.consumer("keda", "billing", 1) as client:
        client.messages(1)
        nsqd.wait_for_channel("keda", "billing", in_flight_count=1)
        assert keda_depth(lookupd, nsqd, "keda", "billing") == 2


# ---- Fluentd


def ruby_nsqds(lookupd: NsqlookupdProcess, path: str) -> list[str]:
    """It adds the time to each request, and looks at the content only, not at the status."""
    producers = lookupd.http("GET", path).json().get("producers")
    return [f"{producer['broadcast_address']}:{producer['tcp_port']}" for producer in producers or ()]


def test_fluentd_s_plugin_finds_nsqds(lookupd, nsqd):
    nsqd.create("fluentd")
    wait_until(lambda: "fluentd" in lookupd.topics())
    address = f"127.0.0.1:{nsqd.tcp_port}"
    assert ruby_nsqds(lookupd, "/lookup?ts=1700000000&topic=fluentd") == [address]
    assert ruby_nsqds(lookupd, "/lookup?ts=1700000000&topic=missing") == []
    assert ruby_nsqds(lookupd, "/nodes?ts=1700000000") == [address]


# ---- Prometheus


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, of Debian's package prometheus")
def test_promtool_finds_nothing_in_metrics_and_rules(nsqd):
    nsqd.create("promtool", "readers")
    subprocess.run(["promtool", "check", "metrics"], input=nsqd.http("GET", "/metrics").body, check=True)
    subprocess.run(["promtool", "check", "rules", *(REPOSITORY / "contrib/prometheus").iterdir()], check=True)


# ---- the configurations


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CONFIGS.iterdir() if path.suffix in (".conf", ".yaml")),
    ids=lambda p: p.name,
)
def test_a_configuration_can_be_read(path):
    text = path.read_text()
    if path.suffix == ".yaml":
        assert yaml.safe_load(text)
    elif path.name == "telegraf.conf":
        assert tomllib.loads(text).keys() == {"inputs", "outputs"}
    else:
        opened, closed = (sorted(re.findall(rf"^ *<{slash}(\w+)", text, re.MULTILINE)) for slash in ("", "/"))
        assert opened == closed
