"""docs/openapi*.yaml describe each HTTP path of nsqd and nsqlookupd, and no other."""

from __future__ import annotations

import pytest
import yaml

from nsqd_py.api.routes import ROUTES as NSQD_ROUTES
from nsqlookupd_py.http import ROUTES as NSQLOOKUPD_ROUTES
from tests.support.nsqd_process import REPOSITORY


@pytest.mark.parametrize(
    ("page", "routes"),
    [("openapi.yaml", NSQD_ROUTES), ("openapi-nsqlookupd.yaml", NSQLOOKUPD_ROUTES)],
    ids=["nsqd", "lookupd"],
)
def test_each_path_is_described(page, routes):
    described = yaml.safe_load((REPOSITORY / "docs" / page).read_text())
    operations = {
        (method.upper(), path)
        for path, item in described["paths"].items()
        for method in item
        if method in ("get", "post", "put")
    }
    assert operations == {(route.method, route.path.replace(":opt", "{opt}")) for route in routes}
