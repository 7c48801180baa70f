"""Open a PagerDuty incident when nsqadmin reports a problem, and resolve it when the problem has ended.

Start:  PAGERDUTY_ROUTING_KEY=... python examples/problem_receiver.py
        nsqadmin-py --lookupd-http-address=127.0.0.1:4161 --attention-http-endpoint=http://127.0.0.1:8090/
Try:    curl -X POST 'http://127.0.0.1:4151/topic/pause?topic=orders'

Several nsqadmins may report to it: they give a problem the same `dedup_key`, so it is one incident. If PagerDuty does not
take an event, nsqadmin gets 502 and tries again later.
"""

import json
import os
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

ADDRESS = ("127.0.0.1", int(os.environ.get("PORT", "8090")))
PAGERDUTY = os.environ.get("PAGERDUTY_URL", "https://events.pagerduty.com/v2/enqueue")
ROUTING_KEY = os.environ.get("PAGERDUTY_ROUTING_KEY", "")
ACTIONS = {"problem_began": "trigger", "problem_ended": "resolve"}


def pagerduty_event(report: dict[str, Any]) -> dict[str, Any]:
    subject = "/".join(filter(None, (report["topic"], report["channel"]))) or report["node"] or "the cluster"
    return {
        "routing_key": ROUTING_KEY,
        "event_action": ACTIONS[report["event"]],
        "dedup_key": report["dedup_key"],
        "payload": {
            "summary": f"NSQ: {report['word']}: {subject}: {report['text']}",
            "severity": report["severity"],
            "source": report["source"],
            "custom_details": {"advice": report["advice"]},
        },
        "links": [
            {"href": report["url"], "text": "nsqadmin"},
            {"href": report["runbook_url"], "text": "Runbook"},
        ],
    }


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        event = pagerduty_event(report)
        request = Request(PAGERDUTY, json.dumps(event).encode(), {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=4):
                status = 204
        except OSError as error:
            print("PagerDuty did not take it:", error, flush=True)
            status = 502
        self.send_response(status)
        self.end_headers()


if __name__ == "__main__":
    with ThreadingHTTPServer(ADDRESS, Receiver) as server, suppress(KeyboardInterrupt):
        print("listening on port", server.server_port, flush=True)
        server.serve_forever()
