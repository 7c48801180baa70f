"""The alerts of Prometheus about what nsqadmin lists under Attention, made of the kinds of problems."""

from __future__ import annotations

from typing import Any

import yaml

from nsqd_py.cluster.problems.kinds import ERROR, INFO, KINDS, ProblemKind

_HEAD = """\
# Alerts about all that nsqadmin lists under Attention, for `rule_files` of a Prometheus that scrapes nsqadmin's
# /metrics. Each has the labels topic, channel and node of its problem; those that do not apply are empty. Planned work,
# such as a drain or a clean stop, is listed there and is no alert. Without nsqadmin, use nsqd.yml.
#
# Each alert has the heading of docs/runbooks.md that says how to look and what to do. Where you publish the documentation
# (make docs), put its address there: sed -i 's,docs/runbooks.md,https://docs.example.org/runbooks/,' nsqadmin.yml
#
# `python -m nsq_apps.manual` prints this file: the words are those of nsqd_py/cluster/problems/kinds.py.
"""
# An alert about nsqadmin itself.
_LAST = """\
  - alert: NsqadminGone
    expr: absent(nsqadmin_topics)
    for: 5m
    labels:
      severity: critical
    annotations:
      summary: No nsqadmin answers
      description: 'Start it again: without it, the other alerts of this file stay silent.'
      runbook_url: docs/runbooks.md#nsqadmin_gone
"""
_LABELS = ("topic", "channel", "node")
_SUBJECT = "".join(f"{{{{ with $labels.{label} }}}} {label} {{{{ . }}}}{{{{ end }}}}" for label in _LABELS)
# Errors of these kinds are often over once a process has started again.
_OVER_AFTER_A_START = ("node_failed", "node_gone", "standby_alone", "no_consumer")


def alert_rules() -> str:
    """Return contrib/prometheus/nsqadmin.yml. Planned work is no alert."""
    rules = [_rule(kind, about) for kind, about in KINDS.items() if about.severity != INFO]
    groups = {"groups": [{"name": "nsqadmin", "rules": rules}]}
    return _HEAD + yaml.safe_dump(groups, sort_keys=False, width=10_000) + _LAST


def _rule(kind: str, about: ProblemKind) -> dict[str, Any]:
    severity = "warning"
    lasts = "5m"
    if about.severity == ERROR:
        severity = "critical"
        lasts = "2m" if kind in _OVER_AFTER_A_START else "1m"
    return {
        "alert": f"Nsq{kind.title().replace('_', '')}",
        "expr": f'nsqadmin_problem{{kind="{kind}"}} == 1',
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {
            "summary": f"NSQ: {about.word}:{_SUBJECT}",
            "description": about.advice,
            "runbook_url": f"docs/runbooks.md#{kind}",
        },
    }
