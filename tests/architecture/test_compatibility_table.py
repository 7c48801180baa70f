"""docs/compatibility.md names everything that Go's nsqd has and ours, each with its test; here it is held to that.

Apart from the settings, nothing is imported: the declarations and the tests are read from the sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqd_py.options import NSQD

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/compatibility.md"
PART = "## Name by name"

ROUTES = ("nsqd_py/api/routes.py", "nsqd_py/net/http/debug.py")
# Files whose dictionaries become JSON, and in which function; all of the file where that is empty.
KEYS = (
    ("nsqd_py/protocol/session.py", ""),
    ("nsqd_py/stats/collect.py", ""),
    ("nsqd_py/debug/memory.py", ""),
    ("nsqd_py/broker/metadata.py", ""),
    ("nsqd_py/broker/drain.py", "figures"),
    ("nsqd_py/api/handlers.py", "info"),
)
METHODS = {"GET", "POST", "PUT"}
NO_TEST = "no test"
# `wire/test_x.py::test_y`, and in parentheses which of its cases; the path begins in tests/.
REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`(?: \((`[^)]*`)\))?")


# ---- the page


class Row(NamedTuple):
    section: str
    cells: dict[str, str]  # by the head of their column

    @property
    def name(self) -> str:
        return next(iter(self.cells.values()))


class Reference(NamedTuple):
    path: str
    test: str
    cases: tuple[str, ...]


def rows_of(text: str) -> Iterator[Row]:
    """The rows of all tables, below their `###` section."""
    section, head = "", list[str]()
    for line in text.splitlines():
        if line.startswith("### "):
            section = line.removeprefix("### ")
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells_of(line)
        elif not line.startswith("|---"):
            yield Row(section, dict(zip(head, cells_of(line), strict=True)))


def cells_of(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def part_of_the_page() -> str:
    _, begin, rest = PAGE.read_text("utf-8").partition(f"\n{PART}\n")
    assert begin
    return rest.partition("\n## ")[0]


TABLE = list(rows_of(part_of_the_page()))
WORDS = set(re.findall(r"`([^`]+)`", part_of_the_page()))
REFERENCES = [
    Reference(path, test, tuple(re.findall("`([^`]+)`", cases)))
    for row in TABLE
    for path, test, cases in REFERENCE.findall(row.cells["test"])
]


def names_in(*sections: str, pattern: str) -> set[str]:
    """What the first column of these sections has that matches."""
    rows = [row for row in TABLE if row.section in sections]
    return {name for row in rows for name in re.findall(pattern, row.name)}


# ---- the sources


@lru_cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


def strings_in(path: str) -> Iterator[re.Pattern[str]]:
    """All texts of a file; what is filled in by an f-string may be anything."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.compile(re.escape(node.value))
        elif isinstance(node, ast.JoinedStr) and any(len(constant(part)) > 2 for part in node.values):
            yield re.compile("".join(re.escape(constant(part)) or ".+" for part in node.values))


def constant(node: ast.AST | None) -> str:
    """The text that a node is; "" for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls_of(path: str, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def declared_flags() -> dict[str, str]:
    """Return the key in the config file of each `--flag`, "" if it has none."""
    return {f"--{setting.name}": setting.key for setting in NSQD.settings}


def declared_routes() -> set[str]:
    """Every `METHOD /path`: they are the first arguments of a Route, or the first parts of a tuple."""
    found = set()
    for node in (node for path in ROUTES for node in ast.walk(tree_of(path))):
        parts = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        if len(parts) > 1 and constant(parts[0]) in METHODS and constant(parts[1]).startswith("/"):
            found.add(f"{constant(parts[0])} {constant(parts[1])}")
    return found


def declared_errors() -> dict[str, bool]:
    """The code of each class of client errors: whether it ends the connection."""
    found = {}
    for node in ast.walk(tree_of("nsqd_py/errors.py")):
        if isinstance(node, ast.ClassDef):
            values = {ast.unparse(line.targets[0]): line.value for line in node.body if isinstance(line, ast.Assign)}
            if "code" in values:
                found[constant(values["code"])] = "fatal" not in values
    return found


def http_messages() -> set[str]:
    """`message` of the answers that are spelled out: of errors, and of bodies that are too big."""
    found = set()
    for path in sorted((ROOT / "nsqd_py").rglob("*.py")):
        for call in calls_of(str(path.relative_to(ROOT)), "HttpError", "BodyRule"):
            found.add(constant(call.args[1]) if len(call.args) > 1 else "")
    return found - {""}


def json_keys(path: str, function: str) -> set[str]:
    defined = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef) and n.name == function]
    assert defined or not function
    dictionaries = (n for n in ast.walk(defined[0] if defined else tree_of(path)) if isinstance(n, ast.Dict))
    return {constant(key) for dictionary in dictionaries for key in dictionary.keys} - {""}


# ---- rows and their tests


def test_the_table_is_read() -> None:
    assert len(TABLE) > 300
    assert len({row.section for row in TABLE}) > 10
    assert all(row.name for row in TABLE)


def test_every_row_names_its_test_or_says_that_there_is_none() -> None:
    nothing = [row for row in TABLE if row.cells["test"] != NO_TEST and REFERENCE.sub("", row.cells["test"]).strip(" ,")]
    assert nothing == []
    assert [row for row in TABLE if not row.cells["test"]] == []


@pytest.mark.parametrize("path", sorted({reference.path for reference in REFERENCES}))
def test_the_tests_that_are_named_exist(path: str) -> None:
    defined = {node.name for node in ast.walk(tree_of(f"tests/{path}")) if isinstance(node, ast.FunctionDef)}
    assert {reference.test for reference in REFERENCES if reference.path == path} - defined == set()


@pytest.mark.parametrize("path", sorted({reference.path for reference in REFERENCES if reference.cases}))
def test_the_cases_that_are_named_exist(path: str) -> None:
    cases = {case for reference in REFERENCES if reference.path == path for case in reference.cases}
    texts = list(strings_in(f"tests/{path}"))
    assert [case for case in sorted(cases) if not any(text.fullmatch(case) for text in texts)] == []


# ---- the program


def test_every_flag_is_in_the_table_and_no_other() -> None:
    assert names_in("Flags", "Only in nsqd-py", pattern=r"^`(--[\w-]+)`$") == declared_flags().keys()


def test_config_keys_are_those_that_are_declared() -> None:
    of_go = {row.name.strip("`"): row.cells["config key"].strip("`") for row in TABLE if row.section == "Flags"}
    assert of_go == {flag: key for flag, key in declared_flags().items() if flag in of_go}


def test_every_route_is_in_the_table_and_no_other() -> None:
    pattern = rf"^`((?:{'|'.join(sorted(METHODS))}) /\S*)`$"
    assert names_in("HTTP paths", "Only in nsqd-py", pattern=pattern) == declared_routes()


def test_every_command_is_in_the_table_and_no_other() -> None:
    declared = {constant(call.args[0]) for call in calls_of("nsqd_py/protocol/command_table.py", "CommandSpec")}
    assert names_in("Commands", pattern=r"^`([A-Z]+)`$") == declared


def test_every_error_is_in_the_table_and_closes_as_it_says() -> None:
    rows = [row for row in TABLE if row.section == "Errors of the TCP protocol"]
    closes = {(match[0], row.cells["closes"] == "yes") for row in rows if (match := re.findall(r"^`(E_\w+)", row.name))}
    assert closes == {*declared_errors().items(), ("E_BAD_PROTOCOL", True)}


def test_every_http_error_is_in_the_table() -> None:
    assert http_messages() - WORDS == set()


@pytest.mark.parametrize(("path", "function"), KEYS)
def test_every_json_key_is_in_the_table(path: str, function: str) -> None:
    keys = json_keys(path, function)
    assert len(keys) > 2
    assert keys - WORDS == set()
