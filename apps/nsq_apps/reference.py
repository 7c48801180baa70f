"""Reference pages made from the running code: the HTTP paths of nsqd and nsqlookupd, and the metrics of nsqd."""

from __future__ import annotations

import urllib.request
from functools import partial
from typing import Any

import nsqd_py

HTTP_INTRODUCTION = """\
Answers are JSON where this page does not say otherwise. An error is JSON with a `message`. The page
[compatibility](compatibility.md) lists the errors, the parameters, and the differences from Go's NSQ, and
[security](security.md#access-rules) describes the access rules that the column "access" names.
"""

METRICS_INTRODUCTION = """\
`GET /metrics` of nsqd has these metrics in Prometheus' text format (`pip install 'nsqd-py[metrics]'`). Counters start at 0
when nsqd starts. With
`--e2e-processing-latency-percentile` there are percentiles too: `nsqd_topic_e2e_latency_seconds` and
`nsqd_channel_e2e_latency_seconds`. `python -m nsq_apps.contrib` lists dashboards for Grafana that use these metrics.
"""


def http_page(printed_by: str) -> str:
    """Return docs/http-api.md."""
    from nsqd_py.api.routes import ROUTES as nsqd_routes
    from nsqlookupd_py.http import ROUTES as nsqlookupd_routes

    parts = [_head(printed_by, "HTTP paths", HTTP_INTRODUCTION)]
    for program, routes in (("nsqd", nsqd_routes), ("nsqlookupd", nsqlookupd_routes)):
        parts += [f"\n## {program}\n\n| method | path | what it does | access |\n|---|---|---|---|\n"]
        parts += [
            f"| {route.method} | `{route.path}` | {_first_sentences(route.handler)} | {route.access.value} |\n"
            for route in routes
        ]
    return "".join(parts)


def metrics_page(printed_by: str) -> str:
    """Return docs/metrics.md. An nsqd is started, and asked for its metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    with nsqd_py.embedded() as nsqd:
        nsqd.post("/topic/create?topic=t")
        nsqd.post("/channel/create?topic=t&channel=c")
        with urllib.request.urlopen(f"http://{nsqd.http_address}/metrics") as answer:
            families = sorted(text_string_to_metric_families(answer.read().decode()), key=lambda family: family.name)
    rows = []
    for family in families:
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        suffix = "_total" if family.type == "counter" else "_info" if family.type == "info" else ""
        words = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{family.name}{suffix}` | {family.type} | {words} | {family.documentation} |\n")
    head = "\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
    return "".join([_head(printed_by, "Metrics", METRICS_INTRODUCTION), head, *rows])


def _head(printed_by: str, title: str, introduction: str) -> str:
    return f"<!-- Printed by `{printed_by}`; change the code, not this page. -->\n\n# {title}\n\n{introduction}"


def _first_sentences(handler: Any) -> str:
    while isinstance(handler, partial):
        handler = handler.func
    return " ".join((handler.__doc__ or "").split("\n\n")[0].split()).replace("|", r"\|")
