"""The example that makes incidents of what nsqadmin reports, between a real nsqadmin and a fake PagerDuty."""

from __future__ import annotations

import json

import pytest

from tests.support.web_server import Reply, WebServer

pytestmark = pytest.mark.ours


def test_a_problem_becomes_one_incident(nsqd, start, make_nsqadmin, set_constants):
    quick = {
        "nsqadmin_py.cluster.reports.BEGINS_AFTER_S": 1.0,
        "nsqadmin_py.problem_webhook._FIRST_PAUSE_S": 0.5,
    }
    set_constants("nsqadmin", quick)
    with WebServer(lambda _: Reply(503)) as pagerduty:
        receiver = start(
            "problem_receiver.py", PORT="0", PAGERDUTY_URL=pagerduty.url, PAGERDUTY_ROUTING_KEY="key"
        )
        port = receiver.wait_for(r"listening on port (\d+)")[1]
        nsqd.post("/topic/create?topic=orders")
        nsqd.post("/topic/pause?topic=orders")
        make_nsqadmin(
            f"--nsqd-http-address={nsqd.http_address}",
            f"--attention-http-endpoint=http://127.0.0.1:{port}/",
            "--attention-quiet-time=1s",
            "--runbooks-url=https://wiki.example.org/nsq",
            "--history-file=",
        )
        pagerduty.wait_until_asked(1)
        pagerduty.reply = lambda _: Reply(202)
        pagerduty.wait_until_asked(2)
        nsqd.post("/topic/unpause?topic=orders")
        pagerduty.wait_until_asked(3)
    first, again, resolved = map(json.loads, pagerduty.bodies())
    assert first == again
    assert (again["event_action"], resolved["event_action"]) == ("trigger", "resolve")
    assert (again["dedup_key"], again["routing_key"]) == (resolved["dedup_key"], "key")
    assert again["payload"]["summary"].startswith("NSQ: paused: orders: The topic is paused")
    assert again["links"][1]["href"] == "https://wiki.example.org/nsq#paused"
