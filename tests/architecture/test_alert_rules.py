"""The alerts of contrib/prometheus: unit tests of promtool where it is installed, and a runbook for each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nsqd_py.cluster.problems.kinds import ERROR, INFO, KINDS
from tests.support.nsqd_process import REPOSITORY

RULES = REPOSITORY / "contrib/prometheus"
NAMES = ("nsqd.yml", "nsqadmin.yml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def alerts(name: str) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((RULES / name).read_text("utf-8"))["groups"]
    return list(group["rules"])


def promtool(*words: str) -> None:
    done = subprocess.run([str(PROMTOOL), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_are_valid() -> None:
    promtool("check", "rules", *(str(RULES / name) for name in NAMES))


@needs_promtool
def test_the_rules_about_nsqd_fire_when_they_should(tmp_path: Path) -> None:
    cases = (REPOSITORY / "tests/support/prometheus/nsqd_rules.yml").read_text("utf-8")
    file = tmp_path / "cases.yml"
    file.write_text(cases.replace("[RULES]", f"[{RULES / 'nsqd.yml'}]"), "utf-8")
    promtool("test", "rules", str(file))


@needs_promtool
@pytest.mark.parametrize("kind", [kind for kind, info in KINDS.items() if info.severity != INFO])
def test_a_problem_that_lasts_becomes_one_alert(kind: str, tmp_path: Path) -> None:
    (rule,) = [rule for rule in alerts("nsqadmin.yml") if f'kind="{kind}"' in str(rule["expr"])]
    info = KINDS[kind]
    severity = "critical" if info.severity == ERROR else "warning"
    labels = {"kind": kind, "topic": "t", "node": "n:1"}
    series = "nsqadmin_problem{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
    alert = {
        "exp_labels": labels | {"severity": severity},
        "exp_annotations": {
            "summary": f"NSQ: {info.word}: topic t node n:1",
            "description": info.advice,
            "runbook_url": f"docs/runbooks.md#{kind}",
        },
    }
    test = {
        "interval": "30s",
        "input_series": [{"series": series, "values": "1x40"}],
        "alert_rule_test": [
            {"eval_time": "30s", "alertname": rule["alert"], "exp_alerts": []},
            {"eval_time": "10m", "alertname": rule["alert"], "exp_alerts": [alert]},
        ],
    }
    cases = {"rule_files": [str(RULES / "nsqadmin.yml")], "evaluation_interval": "30s", "tests": [test]}
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump(cases), "utf-8")
    promtool("test", "rules", str(file))


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_runbook(name: str) -> None:
    headings = set(
        re.findall(r"^### (\w+)$", (REPOSITORY / "docs/runbooks.md").read_text("utf-8"), re.MULTILINE)
    )
    urls = [rule["annotations"]["runbook_url"] for rule in alerts(name)]
    assert {url.partition("#")[0] for url in urls} == {"docs/runbooks.md"}
    assert {url.partition("#")[2] for url in urls} - headings == set()


def test_each_kind_of_problem_has_a_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", (REPOSITORY / "docs/runbooks.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted([*KINDS, "nsqadmin_gone"])
