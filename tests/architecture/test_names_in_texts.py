"""Every file, folder and module that a page or a room's docstring names is there, and every file of a room is named."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, relative

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DRAWINGS = sorted((ROOT / "docs").glob("*.svg"))
TOP_FOLDERS = (
    "nsqd_py",
    "nsqlookupd_py",
    "nsqadmin_py",
    "apps",
    "tools",
    "spark",
    "tests",
    "bench",
    "contrib",
    "docs",
    "examples",
)
# A name in a table may leave away the package that the page is about.
PARENTS = (ROOT, ROOT / "nsqd_py", ROOT / "nsqadmin_py", ROOT / "nsqlookupd_py", ROOT / "tests")

_IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./*-]+\.py")
_FOLDER = re.compile(rf"({'|'.join(TOP_FOLDERS)})/[\w./*-]*")
_MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")
# `name  what it holds`, or several names with commas between them.
_ENTRY = re.compile(r"^(\w+(?:, \w+)*)(?:  +\S|$)", re.MULTILINE)

ROOMS = [
    path for package, folder in PACKAGES.items() for path in sorted((folder / package).rglob("__init__.py"))
]


def missing_paths(line: str) -> Iterator[str]:
    """Yield the paths in a line that lead nowhere. A lone file name belongs to the folder of the path before it."""
    folder: Path | None = None
    for name in _IN_BACKTICKS.findall(line):
        if not (_FILE.fullmatch(name) or _FOLDER.fullmatch(name)):
            continue
        parents = (folder, *PARENTS) if folder else PARENTS
        found = [path for parent in parents for path in parent.glob(name.rstrip("/"))]
        if not found:
            yield name
        elif "/" in name:
            folder = found[0].parent if name.endswith(".py") else found[0]


def module_exists(name: str) -> bool:
    """True if it is a module, or a name that a module defines."""
    package = name.partition(".")[0]
    path = PACKAGES[package].joinpath(*name.split("."))
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return True
    parent = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return parent.is_file() and re.search(rf"\b{path.name}\b", parent.read_text("utf-8")) is not None


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    missing = {number: found for number, line in enumerate(lines, 1) if (found := list(missing_paths(line)))}
    assert missing == {}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    named = {match[0] for match in re.finditer(rf"\b{_MODULE.pattern}", text)}
    named |= {match[1] for match in re.finditer(r"python3? -m (nsq\w+(?:\.\w+)*)", text)}
    assert sorted(name for name in named if not module_exists(name)) == []


@pytest.mark.parametrize("drawing", DRAWINGS, ids=relative)
def test_the_files_that_a_drawing_names_are_there(drawing: Path) -> None:
    named = set(_FILE.findall(drawing.read_text("utf-8")))
    assert named
    assert sorted(name for name in named if not any((p / name).is_file() for p in PARENTS)) == []


def test_the_drawing_of_the_rooms_has_the_order_of_the_contract() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    layers = re.findall(r"nsqd_py\.(\w+)", setup["importlinter:contract:rooms"]["layers"])
    drawn = re.findall(r'class="name">(\w+)/<', (ROOT / "docs/rooms.svg").read_text("utf-8"))
    assert drawn == layers


@pytest.mark.parametrize("room", ROOMS, ids=relative)
def test_a_room_says_what_each_file_holds(room: Path) -> None:
    """One line for each module and each room in it: its name, two spaces or more, and what it holds."""
    reported = {name for names in _ENTRY.findall(docstring(room)) for name in names.split(", ")}
    held = {path.stem for path in room.parent.glob("*.py")} - {"__init__"}
    held |= {path.parent.name for path in room.parent.glob("*/__init__.py")}
    assert sorted(held - reported) == []
    # A heading of one word is none of these.
    assert (
        sorted(name for name in reported - held if name.islower() and not (room.parent / name).exists()) == []
    )


def docstring(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text, f"{path} has no docstring"
    return text
