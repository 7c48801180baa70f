"""The reference pages in docs/ say what the declarations of the settings say."""

from pathlib import Path

import pytest

from nsq_apps.manual import PRINTED_BY
from nsqadmin_py.options import NSQADMIN
from nsqd_py.options import NSQD
from nsqd_py.settings.docs import reference_page
from nsqd_py.settings.program import Program
from nsqlookupd_py.options import NSQLOOKUPD

DOCS = Path(__file__).resolve().parents[3] / "docs"

PAGES = [
    (NSQD, "options.md", PRINTED_BY),
    (NSQLOOKUPD, "options-nsqlookupd.md", PRINTED_BY),
    (NSQADMIN, "options-nsqadmin.md", PRINTED_BY),
]
pages = pytest.mark.parametrize(("program", "name", "command"), PAGES, ids=[name for _, name, _ in PAGES])


@pages
def test_the_page_is_fresh(program: Program, name: str, command: str) -> None:
    assert (DOCS / name).read_text("utf-8") == reference_page(program, command), f"run: {command}"


@pages
def test_the_page_has_every_flag(program: Program, name: str, command: str) -> None:
    page = (DOCS / name).read_text("utf-8")
    assert [s.name for s in program.settings if f"`{s.usage}`".replace("|", "\\|") not in page] == []


@pages
def test_the_page_is_the_same_on_every_machine(program: Program, name: str, command: str) -> None:
    by_name = {setting.name: setting for setting in program.settings}
    of_the_host = [by_name[flag] for flag in ("node-id", "broadcast-address") if flag in by_name]
    assert of_the_host or program is NSQADMIN
    assert all(setting.default_text for setting in of_the_host)
