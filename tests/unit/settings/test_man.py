"""The pages for man(1) and the completions that the wheel installs are those of the declarations."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nsq_apps.manual import PRINTED_BY, printed_files
from nsqd_py.options import NSQD
from nsqd_py.settings.docs import man_page

CHECKOUT = Path(__file__).resolve().parents[3]
FILES = {path: text for path, text in printed_files() if path.parts[:2] in (("contrib", "man"), ("contrib", "completions"))}
PAGES = [path for path in FILES if path.suffix == ".1"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_file_is_fresh(path: Path) -> None:
    assert (CHECKOUT / path).read_text("utf-8") == FILES[path], f"run: {PRINTED_BY}"


def test_there_is_no_other_file() -> None:
    found = {path for folder in ("man", "completions") for path in (CHECKOUT / "contrib" / folder).rglob("*") if path.is_file()}
    assert found == {CHECKOUT / path for path in FILES}
    assert len(PAGES) == 11


def test_a_page_has_every_flag() -> None:
    page = man_page(NSQD, PRINTED_BY, ())
    assert [s.name for s in NSQD.settings if f"\\fB\\-\\-{s.name.replace('-', chr(92) + '-')}" not in page] == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("path", PAGES, ids=str)
def test_groff_has_nothing_to_warn_of(path: Path) -> None:
    run = subprocess.run(
        ["groff", "-man", "-Tutf8", "-Kutf8", "-P-cbou", "-ww", CHECKOUT / path],
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert run.stderr == ""
    for heading in ("NAME", "SYNOPSIS", "OPTIONS"):
        assert heading in run.stdout
