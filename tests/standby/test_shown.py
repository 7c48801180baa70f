"""What nsq-stat and nsqadmin show of a primary and its standby, as processes; and a promotion through nsqadmin."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.nsqadmin_cluster import address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import REPOSITORY, HTTPAnswer, wait_until
from tests.support.standby_cluster import StandbyCluster
from tests.support.standby_processes import DEADLINE_S, consume_all, is_primary, wait_until_it_has_all

pytestmark = pytest.mark.ours


@pytest.fixture
def pair(tmp_path) -> Iterator[StandbyCluster]:
    with StandbyCluster(tmp_path, with_relay=True) as cluster:
        cluster.primary.create("orders", "archive")
        cluster.primary.post("/mpub?topic=orders", b"one\ntwo\nthree")
        wait_until_it_has_all(cluster.primary)
        yield cluster


def nsq_stat(pair: StandbyCluster, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "nsq_apps",
        "nsq_stat",
        f"--lookupd-http-address={pair.lookupd.http_address}",
        *flags,
    ]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)


def act(admin: NsqadminProcess, action: str, node: str, **headers: str) -> HTTPAnswer:
    token = admin.get("/api/v2/session")["token"]
    body = json.dumps({"action": action, "node": node}).encode()
    return admin.http("POST", "/api/v2/actions", body, {"X-Nsqadmin-Token": token, **headers})


def metrics(admin: NsqadminProcess) -> str:
    return admin.http("GET", "/metrics").text


def hold_back(pair: StandbyCluster, count: int) -> None:
    """The standby gets no more, and the primary gets this many messages."""
    pair.relay.hold()
    for number in range(count):
        pair.primary.post("/pub?topic=orders", b"%d" % number)

    def lags() -> bool:
        (listed,) = pair.primary.stats()["standbys"]["list"]
        return bool(listed["lag_messages"] == count and listed["lag_ms"] > 200)

    wait_until(lags, DEADLINE_S, "the lag")


def test_nsq_stat_shows_the_lag_and_fails_beyond_a_limit(pair):
    primary, standby = address(pair.primary), address(pair.standby)
    result = nsq_stat(pair, "--once", "--format=json")
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(result.stdout)
    assert sorted(document["nodes"]) == sorted([primary, standby])
    depths = {(row["topic"], row["channel"]): (row["depth"], row["in_per_s"]) for row in document["rows"]}
    assert depths["orders", "archive"] == (3, None)  # once, and no rate between two answers of one moment
    (row,) = document["standbys"]
    assert row | {"as_of_s": 0} == {
        "primary": primary,
        "standby": standby,
        "state": "following",
        "is_complete": True,
        "lag_messages": 0,
        "lag_bytes": 0,
        "lag_s": 0.0,
        "as_of_s": 0,
        "acks": 0,
        "is_alone": False,
        "primary_answers": True,
        "epoch": 0,
        "set_aside_messages": 0,
        "trouble": "",
    }

    hold_back(pair, 5)
    assert nsq_stat(pair, "--once").returncode == 0  # ten seconds are allowed
    result = nsq_stat(pair, "--once", "--standbys", "--max-standby-lag=100ms", "--format=csv")
    assert result.returncode == 1
    (late,) = csv.DictReader(io.StringIO(result.stdout))
    assert (late["standby"], late["lag_messages"], late["is_complete"]) == (standby, "5", "true")
    assert float(late["lag_s"]) > 0.2
    assert late["trouble"].startswith(f"lacks what its primary {primary} has had for")
    assert f"ERROR: nsqd {standby}: {late['trouble']}" in result.stderr
    result = nsq_stat(pair, "--max-standby-lag=100ms", "--count=1", "--interval=200ms")
    # The lines are those of Go's nsq_stat.
    assert (result.returncode, result.stdout.count("orders")) == (0, 2)
    assert f"WARNING: nsqd {standby}: lacks" in result.stderr

    pair.standby.kill()
    result = nsq_stat(pair, "--once")
    assert (result.returncode, " failed " in result.stdout) == (1, True), result
    pair.relay.go_on()
    wait_until(lambda: not pair.primary.stats()["standbys"]["list"], DEADLINE_S, "the end of the connection")
    result = nsq_stat(pair, "--once", "--standbys")
    assert result.returncode == 1
    assert f"nsqd {primary}: accepts standbys, and none follows it" in result.stderr
    assert "\x1b" not in result.stdout


def test_a_standby_is_promoted_when_its_primary_is_gone(pair, tmp_path):
    history = f"--history-file={tmp_path / 'history'}"
    admin = pair.admin(history)
    pair.wait_for_row(admin, pair.standby, standby_state="following")
    refused = act(admin, "promote", address(pair.primary))
    assert (refused.status, refused.json()["message"]) == (409, "NOT_A_STANDBY")
    assert act(admin, "promote", "127.0.0.1:1").status == 404
    assert act(admin, "promote", "").status == 400
    passed_on = act(admin, "promote", address(pair.standby), Via="1.1 proxy")
    assert (passed_on.status, passed_on.json()["message"].partition(":")[0]) == (403, "FORBIDDEN")
    pair.primary.kill()
    pair.wait_for_row(admin, pair.standby, standby_state="connecting", standby_primary_answers=False)
    # Nobody can tell a new nsqadmin where the standby is; it has remembered that.
    admin.stop()
    admin.start()
    row = pair.wait_for_row(admin, pair.standby, standby_state="connecting", is_listed=True)
    assert row["troubles"][0].startswith("is not connected to its primary")
    answer = act(admin, "promote", address(pair.standby))
    assert (answer.status, answer.json()["errors"]) == (200, [])
    wait_until(lambda: is_primary(pair.standby), DEADLINE_S, "the promotion")
    pair.wait_for_row(admin, pair.standby, role="primary", is_listed=True, depth=3)
    assert f'AUDIT: promote node="{address(pair.standby)}"' in admin.log_path.read_text()
    assert sorted(consume_all(pair.standby, "orders", "archive")) == [b"one", b"three", b"two"]
