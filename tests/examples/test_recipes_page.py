"""The page docs/recipes.md names every example, and each example says how it is started."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES
from tests.support.nsqd_process import REPOSITORY

PROGRAMS = sorted(EXAMPLES.rglob("*.py"))


def test_the_page_names_every_example() -> None:
    named = re.findall(r"^\| `(examples/\S+)`", (REPOSITORY / "docs/recipes.md").read_text("utf-8"), re.MULTILINE)
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sorted(named) == sorted(str(path.relative_to(REPOSITORY)) for path in files)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_says_how_to_start_it(program: Path) -> None:
    text = program.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None and re.search(r"^Start:  ", docstring, re.MULTILINE)


def test_every_example_is_tested() -> None:
    tests = "\n".join(path.read_text("utf-8") for path in (REPOSITORY / "tests/examples").glob("test_*.py"))
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert [path.name for path in files if path.stem not in tests] == []
