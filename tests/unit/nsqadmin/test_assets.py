"""The files of nsqadmin's page: those of other people are what the manifest says, and none asks another host."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "nsqadmin_py" / "static"
VENDOR = STATIC / "vendor"
SCRIPT = ROOT / "contrib" / "vendor-assets"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
MODULES = [path for path in FILES if path.suffix == ".js"]
TEXTS = [path for path in FILES if path.suffix in (".js", ".css", ".html", ".svg")]

# What a module imports, in `import … from "x"`, `export … from "x"`, `import "x"` and `import("x")`.
# A word "from" elsewhere, as in a query, begins no import: what is imported stands before it: a name, `}` or `*`.
_IMPORT = re.compile(r"""(?:[\w$}*]\s*\bfrom|\bimport)\s*\(?\s*["'`]([^"'`\n]+)["'`]""")
# The names that a module imports, and from where: all at once, or one when it is needed.
_IMPORTED_NAMES = re.compile(r"""\bimport\s*\{([^}]*)\}\s*from\s*"(\.[^"]+)\"""")
_IMPORTED_LATER = re.compile(r"""\(await import\("(\.[^"]+)"\)\)\.(\w+)""")
_EXPORTED = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
_EXPORTED_TOGETHER = re.compile(r"\bexport\s*\{([^}]*)\}")
# What a browser fetches for a style or a page.
_FETCHED = re.compile(
    r"""url\(\s*["']?([^"')\s]+)|@import\s+["']([^"']+)|\b(?:src|href)\s*=\s*["']([^"']+)"""
)
_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//|^(?:https?|wss?):", re.IGNORECASE)
_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|<script>|\son\w+=\"|\sstyle=\""
)


def _name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("vendor_assets", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look there for the types of their fields
    loader.exec_module(module)
    return module


# ---- the files of others


def test_vendored_files_are_those_of_the_manifest(script: ModuleType) -> None:
    assert script.differences() == []


# ---- what the page asks for


@pytest.mark.parametrize("path", TEXTS, ids=_name)
def test_nothing_is_fetched_from_another_host(path: Path) -> None:
    text = path.read_text()
    targets = _IMPORT.findall(text) if path.suffix == ".js" else []
    targets += [target for found in _FETCHED.findall(text) for target in found if target]
    assert [target for target in targets if _HOST.match(target)] == []


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_what_a_module_imports_is_there(path: Path) -> None:
    text = path.read_text()
    files = [path.parent / target for target in _IMPORT.findall(text) if target.startswith(".")]
    assert [file for file in files if not file.is_file()] == []
    names = {
        (target, name.split()[0])
        for names, target in _IMPORTED_NAMES.findall(text)
        for name in names.split(",")
        if name.strip()
    }
    names.update(_IMPORTED_LATER.findall(text))
    assert [(target, name) for target, name in names if name not in exported(path.parent / target)] == []


@functools.cache
def exported(path: Path) -> set[str]:
    """Return the names that a module exports."""
    text = path.read_text()
    together = ",".join(_EXPORTED_TOGETHER.findall(text)).split(",")
    return {*_EXPORTED.findall(text), *(name.split()[-1] for name in together if name.strip())}


@pytest.mark.parametrize("path", [path for path in TEXTS if not path.is_relative_to(VENDOR)], ids=_name)
def test_nothing_makes_markup_of_text(path: Path) -> None:
    """Names and messages are other people's."""
    assert _MARKUP.findall(path.read_text()) == []
