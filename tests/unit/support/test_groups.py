"""Workers of pytest get whole files, so that fixtures of a module start their processes once (tests/conftest.py)."""

from __future__ import annotations

import pytest


def test_a_worker_gets_all_tests_of_a_file(request):
    worker = getattr(request.config, "workerinput", {"mainargv": []})
    if "loadgroup" not in worker["mainargv"]:
        pytest.skip("only with --dist loadgroup, as in `make test`")
    assert request.node.get_closest_marker("xdist_group").args == (request.node.location[0],)
