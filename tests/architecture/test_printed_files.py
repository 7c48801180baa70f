"""Files that are made from the code are those that are in the tree."""

from __future__ import annotations

from nsq_apps.manual import printed_files
from nsqd_py.cluster.problems.kinds import INFO, KINDS
from tests.support.nsqd_process import REPOSITORY


def test_the_reference_pages_are_fresh() -> None:
    old = [str(path) for path, text in printed_files() if (REPOSITORY / path).read_text("utf-8") != text]
    assert old == [], "run: python -m nsq_apps.manual"


def test_each_kind_of_problem_has_an_alert() -> None:
    rules = (REPOSITORY / "contrib/prometheus/nsqadmin.yml").read_text("utf-8")
    missing = [kind for kind in KINDS if f'nsqadmin_problem{{kind="{kind}"}}' not in rules]
    # Planned work is no alert.
    assert missing == [kind for kind, info in KINDS.items() if info.severity == INFO]
