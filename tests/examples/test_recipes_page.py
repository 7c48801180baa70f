"""The page docs/recipes.md names every example, and each example says how it is started."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES

PROGRAMS = sorted(EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_says_how_to_start_it(program: Path) -> None:
    text = program.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None and re.search(r"^Start:  ", docstring, re.MULTILINE)
