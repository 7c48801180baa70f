"""Files that are made from the code are those that are in the tree."""

from __future__ import annotations

import pytest

from nsq_apps.manual import printed_files
from tests.support.nsqd_process import REPOSITORY


@pytest.mark.parametrize("name", ["docs/http-api.md", "docs/metrics.md", "contrib/prometheus/nsqadmin.yml"])
def test_the_reference_pages_are_fresh(name: str) -> None:
    texts = {str(path): text for path, text in printed_files()}
    assert (REPOSITORY / name).read_text("utf-8") == texts[name], "run: python -m nsq_apps.manual"
