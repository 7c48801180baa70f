"""docs/security.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.api.routes import ROUTES as NSQD_ROUTES
from nsqd_py.net.http.router import Access
from nsqd_py.server.options import NSQD
from nsqd_py.settings.program import LimitOptions
from nsqlookupd_py.http import ROUTES as LOOKUPD_ROUTES
from nsqlookupd_py.options import NSQLOOKUPD

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
LINES = PAGE.splitlines()
KIB, MIB = 1024, 1024 * 1024


def access_rows() -> dict[str, list[str]]:
    """The cells of the table of access rules, by kind of access."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES if line.startswith("| ")
    ]
    return {
        row[0].strip("| "): row for row in cells if row[0].strip("| ") in {access.value for access in Access}
    }


@pytest.mark.parametrize(
    ("column", "routes"), [(1, NSQD_ROUTES), (2, LOOKUPD_ROUTES)], ids=["nsqd", "nsqlookupd"]
)
def test_each_path_is_in_the_row_of_its_access(column: int, routes: tuple[object, ...]) -> None:
    rows_by_access = access_rows()
    assert rows_by_access.keys() == {access.value for access in Access}
    for route in routes:
        path = route.path  # type: ignore[attr-defined]
        access = route.access.value  # type: ignore[attr-defined]
        word = "/debug/" if path.startswith("/debug/") else path
        assert f"{word}`" in rows_by_access[access][column], (path, access)


def test_limits_that_are_settings() -> None:
    names = {setting.name for program in (NSQD, NSQLOOKUPD) for setting in program.settings}
    for flag in [word for line in LINES for word in line.split("`") if word.startswith("--max-")]:
        assert flag.removeprefix("--").partition("=")[0] in names, flag
    for setting in LimitOptions.settings.values():
        assert f"`--{setting.name}`" in PAGE
