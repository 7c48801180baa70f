"""The alerts for Prometheus that are made from what nsqadmin lists under Attention: one for each kind of problem."""

from __future__ import annotations

from typing import Any

import yaml

from nsqadmin_py.cluster.problems import ERROR, KINDS, Kind

_INTRODUCTION = """\
# Printed by `{printed_by}`; change the code, not this file.
#
# Alerts about all that nsqadmin lists under Attention, for `rule_files` of a Prometheus that scrapes nsqadmin's
# /metrics. Each has the labels topic, channel and node of its problem; those that do not apply are empty. Without
# nsqadmin, use nsqd.yml.
"""
_LABELS = ("topic", "channel", "node")
_WHERE = "".join(f"{{{{ with $labels.{name} }}}} {name} {{{{ . }}}}{{{{ end }}}}" for name in _LABELS)


def nsqadmin_rules(printed_by: str) -> str:
    """Return contrib/prometheus/nsqadmin.yml."""
    rules: list[dict[str, Any]] = [_rule(name, kind) for name, kind in KINDS.items()]
    rules.append(
        {
            "alert": "NsqadminGone",
            "expr": "absent(nsqadmin_topics)",
            "for": "5m",
            "labels": {"severity": "critical"},
            "annotations": {
                "summary": "No nsqadmin answers",
                "description": "Start it again: without it, the other alerts of this file stay silent.",
            },
        }
    )
    document = {"groups": [{"name": "nsqadmin", "rules": rules}]}
    text: str = yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)
    return _INTRODUCTION.format(printed_by=printed_by) + text


def _rule(name: str, kind: Kind) -> dict[str, Any]:
    is_error = kind.severity == ERROR
    return {
        "alert": "Nsq" + name.title().replace("_", ""),
        "expr": f'nsqadmin_problem{{kind="{name}"}} == 1',
        "for": "1m" if is_error else "5m",
        "labels": {"severity": "critical" if is_error else "warning"},
        "annotations": {"summary": f"NSQ: {kind.word}:{_WHERE}", "description": kind.advice},
    }
